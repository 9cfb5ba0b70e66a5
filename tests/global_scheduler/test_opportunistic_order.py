"""The order of over-quota workloads where tenants own cells: the tenant furthest below its share goes first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.cells.fair_share import max_min_shares
from domain.declared_cells import DeclaredCells, DeclaredVirtualCluster
from domain.identifiers import ClusterId, TenantId
from domain.tenant import Tenant
from global_scheduler.ordering import ORDERINGS
from global_scheduler.scan_pass import scan_pass
from global_scheduler.scan_settings import QueueRule, ScanSettings
from tests.examples import examples
from tests.global_scheduler.scan_worlds import LiveRow, Queued, ScanWorld, tenant

OWNED = (DeclaredVirtualCluster(ClusterId("c"), (DeclaredCells("machine", 1),)),)
FIFO = ScanSettings(rules=(QueueRule(ORDERINGS["fifo"]),) * 7)


def tenants(*weights: float) -> tuple[Tenant, ...]:
    """Without quota for GPUs, and one that owns cells."""
    guests = [tenant(name, weight=weight) for name, weight in zip("abc", weights, strict=False)]
    return (*guests, replace(tenant("owner", any=8), virtual_clusters=OWNED))


def queued(number: int, name: str, gpus: int = 1) -> Queued:
    return Queued(f"{name}{number:03}", name, float(number), {"A100": gpus})


def order_of(world: ScanWorld, now: float = 1000.0) -> list[str]:
    view = world.view()
    return [str(view.pending.workloads[entry]) for entry in scan_pass(view, now).order.tolist()]


def test_the_head_of_the_queue_is_shared_by_weights() -> None:
    rows = tuple(queued(number, name) for name in "ab" for number in range(40))
    head = order_of(ScanWorld(tenants(1.0, 3.0), rows, settings=FIFO))[:40]
    assert [sum(name.startswith(t) for name in head) for t in "ab"] == [10, 30]
    assert [name for name in head if name.startswith("b")] == [f"b{number:03}" for number in range(30)], "fifo within"


def test_who_uses_more_already_comes_later() -> None:
    live = (
        LiveRow("a-runs", "a", 0.0, {"A100": 5}, False),
        LiveRow("b-leaves", "b", 0.0, {"A100": 50}, False, leaving=True),
    )
    rows = (*(queued(number, "a") for number in range(3)), *(queued(number, "b") for number in range(10, 20)))
    found = order_of(ScanWorld(tenants(1.0, 1.0), rows, live, settings=FIFO))
    assert found[:5] == [f"b{number:03}" for number in range(10, 15)]
    assert found[5:7] == ["a000", "b015"], "then they take turns"


def test_work_within_quota_is_not_touched_and_comes_first_at_the_lowest_priority() -> None:
    owner = replace(tenant("owner", 6, any=8), virtual_clusters=OWNED)
    rows = (queued(0, "a"), queued(5, "owner", 4), queued(6, "owner", 4))
    assert order_of(ScanWorld((tenant("a"), owner), rows, settings=FIFO)) == ["owner005", "owner006", "a000"]


def test_without_virtual_clusters_the_ordering_policy_alone_decides() -> None:
    rows = tuple(queued(number, name) for name, first in (("a", 0), ("b", 40)) for number in range(first, first + 20))
    found = order_of(ScanWorld((tenant("a"), tenant("b", weight=3.0)), rows, settings=FIFO))
    assert found == sorted(found, key=lambda name: int(name[1:]))


@pytest.mark.parametrize("ordering", sorted(ORDERINGS.keys() & {"fifo", "credit", "fewest_gpus", "las"}))
def test_within_a_tenant_the_ordering_policy_decides(ordering: str) -> None:
    chosen = ScanSettings(rules=(QueueRule(ORDERINGS[ordering]),) * 7)
    rows = tuple(
        replace(queued(number, name, 1 + number % 4), attained_gpu_s=float(number * 37 % 11))
        for name in "ab"
        for number in range(12)
    )
    shared = order_of(ScanWorld(tenants(1.0, 2.0), rows, settings=chosen))
    alone = order_of(ScanWorld((tenant("a"), tenant("b", weight=2.0)), rows, settings=chosen))
    for name in "ab":
        assert [one for one in shared if one.startswith(name)] == [one for one in alone if one.startswith(name)]


@settings(max_examples=examples(80))
@given(
    st.tuples(*(st.integers(0, 30) for _ in "abc")),
    st.tuples(*(st.sampled_from([0.5, 1.0, 2.0, 3.0]) for _ in "abc")),
    st.integers(0, 60),
)
def test_never_starts_in_an_order_that_misses_the_shares(
    counts: tuple[int, ...], weights: tuple[float, ...], gpus: int
) -> None:
    """The first so many GPUs of the queue are each tenant's weighted max-min share of these."""
    rows = tuple(queued(number, name) for name, count in zip("abc", counts, strict=True) for number in range(count))
    head = order_of(ScanWorld(tenants(*weights), rows, settings=FIFO))[:gpus]
    named = {TenantId(name): weight for name, weight in zip("abc", weights, strict=True)}
    demands = {TenantId(name): count for name, count in zip("abc", counts, strict=True)}
    shares = max_min_shares(gpus, demands, named)
    for name in demands:
        assert abs(sum(one.startswith(name) for one in head) - shares[name]) <= 1


def test_starting_the_first_changes_no_other_credit() -> None:
    rows = tuple(queued(number, name) for name in "ab" for number in range(5))
    world = ScanWorld(tenants(1.0, 2.0), rows, settings=FIFO)
    view = world.view()
    plan = scan_pass(view, 10.0)
    before = dict(zip(view.pending.workloads, plan.credit.tolist(), strict=True))
    first = str(view.pending.workloads[int(plan.order[0])])
    started = LiveRow(first, first[0], 10.0, {"A100": 1}, False)
    after_view = replace(world, queued=tuple(row for row in rows if row.workload != first), live=(started,)).view()
    after = dict(zip(after_view.pending.workloads, scan_pass(after_view, 11.0).credit.tolist(), strict=True))
    assert after == pytest.approx({name: credit for name, credit in before.items() if name != first})
