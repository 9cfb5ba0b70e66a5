"""Whose opportunistic work leaves for owners: what is left comes to weighted max-min shares."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.decisions import decide
from cluster_manager.cells.fair_share import max_min_shares
from cluster_manager.cells.invariants import check_cells
from cluster_manager.cells.requests import AffinityGroup, CellRequest, Tasks
from cluster_manager.cells.work import Placement, TaskCells
from domain.cells import OwnedCells, VirtualCluster
from domain.identifiers import TenantId, VirtualClusterId
from domain.rank import Standing
from tests.cluster_manager.cells.worlds import chain_of
from tests.examples import examples

OWNER = VirtualClusterId("owner")
TENANTS = tuple(TenantId(name) for name in "abc")
MACHINES = 8


def full_cluster(tenant_of_machine: list[TenantId], weights: dict[TenantId, float], gpus: int = 8) -> CellCluster:
    """Machines of the owner, each full of one tenant's opportunistic work of so many GPUs each."""
    chain = chain_of((2, 2, 2), 4, len(tenant_of_machine))
    owner = VirtualCluster(OWNER, (OwnedCells("chain", "node", len(tenant_of_machine)),))
    cells = CellCluster((chain,), (owner,), weights=weights)
    for machine, tenant in enumerate(tenant_of_machine):
        for number in range(8 // gpus):
            request = CellRequest(
                f"{tenant}{machine}.{number}", AffinityGroup((Tasks(1, gpus),)), tenant, None, Standing(6, 0)
            )
            cells.add(request, None, (TaskCells(0, machine, ((1 << gpus) - 1) << (number * gpus)),))
    return cells


def take(cells: CellCluster, key: str, tasks: int, gpus: int) -> Placement:
    request = CellRequest(key, AffinityGroup((Tasks(tasks, gpus),)), TenantId("owner"), OWNER, Standing(0, 0))
    placement = decide(cells, request)
    assert isinstance(placement, Placement)
    cells.commit(placement)
    for victim in placement.victims:
        cells.release(victim)
    check_cells(cells)
    return placement


def held(cells: CellCluster) -> Counter[TenantId]:
    use: Counter[TenantId] = Counter()
    for work in cells.work.values():
        if work.view is None:
            use[work.request.tenant] += sum(task.bits.bit_count() for task in work.tasks)
    return use


@settings(max_examples=examples(60))
@given(
    st.lists(st.sampled_from(TENANTS), min_size=MACHINES, max_size=MACHINES),
    st.tuples(*(st.sampled_from([0.5, 1.0, 2.0, 3.0]) for _ in TENANTS)),
    st.lists(st.integers(1, 3), max_size=4),
)
def test_never_leaves_tenants_with_other_than_their_shares(
    machines: list[TenantId], given_weights: tuple[float, ...], gangs: list[int]
) -> None:
    """To the machine, however the owner asks: one by one, or several at once."""
    weights = dict(zip(TENANTS, given_weights, strict=True))
    cells, before = full_cluster(machines, weights), Counter(machines)
    left = MACHINES
    for number, gang in enumerate(gangs):
        if gang > left:
            break
        take(cells, f"own{number}", gang, 8)
        left -= gang
        shares = max_min_shares(left, before, weights)
        for tenant in TENANTS:
            use, share = held(cells)[tenant] // 8, shares.get(tenant, 0)
            assert abs(use - share) <= 1
        highest = max((held(cells)[tenant] / 8 / weights[tenant] for tenant in TENANTS), default=0.0)
        for tenant in TENANTS:
            lost = before[tenant] - held(cells)[tenant] // 8
            assert not lost or (held(cells)[tenant] / 8 + 1) / weights[tenant] >= highest, "who lost had the most"


def test_the_tenant_with_the_most_for_its_weight_leaves_first() -> None:
    a, b, _ = TENANTS
    cells = full_cluster([a, a, a, b, b, b], {b: 3.0})
    assert take(cells, "one", 1, 8).victims == ("a0.0",)
    assert take(cells, "two", 1, 8).victims == ("a1.0",)
    assert held(cells) == {a: 8, b: 24}
    assert take(cells, "three", 1, 8).victims == ("a2.0",), "8 for a weight of 1, and 24 for one of 3: the lower number"
    assert take(cells, "four", 1, 8).victims == ("b3.0",)


def test_fewer_gpus_come_before_whose_they_are() -> None:
    """The fewest opportunistic GPUs (HiveD §3.3) decide first."""
    a, b, _ = TENANTS
    cells = full_cluster([a, a, a, b], {})
    cells.release("b3.0")
    cells.add(
        CellRequest("b", AffinityGroup((Tasks(1, 4),)), b, None, Standing(6, 0)), None, (TaskCells(0, 3, 0b1111),)
    )
    assert take(cells, "one", 1, 8).victims == ("b",)


def test_below_the_machine_it_is_the_same() -> None:
    """A socket of the machine where the tenant with more has its work."""
    a, b, _ = TENANTS
    chain = chain_of((2, 2, 2), 4, 2)
    owner = VirtualCluster(OWNER, (OwnedCells("chain", "socket", 4),))
    cells = CellCluster((chain,), (owner,))
    for key, tenant, machine, bits in (("b0", b, 0, 0xF), ("a0", a, 0, 0xF0), ("a1", a, 1, 0xFF)):
        request = CellRequest(key, AffinityGroup((Tasks(1, bits.bit_count()),)), tenant, None, Standing(6, 0))
        cells.add(request, None, (TaskCells(0, machine, bits),))
    assert take(cells, "one", 1, 4).victims == ("a1",)
    assert take(cells, "two", 1, 4).victims == (), "the other half of that machine is idle now"
    assert take(cells, "three", 1, 4).victims in (("a0",), ("b0",))
