"""What holds for every queue, and that the arrays decide what plain Python decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from global_scheduler.quota_pass import charged
from global_scheduler.scan_pass import scan_credits, scan_pass
from global_scheduler.scan_plan import ScanPlan
from global_scheduler.scan_view import ScanView
from tests.global_scheduler.brute_force_scan import brute_force_scan, charge_of, is_charged_to, limit_of, quotas_of
from tests.global_scheduler.scan_worlds import NOW_S, ScanWorld, after, worlds
from tests.house.determinism import assert_same_output


def decided(view: ScanView, plan: ScanPlan) -> dict[str, tuple[int, int, float, bool]]:
    """The tuples by workload."""
    positions = [plan.position(view, entry) for entry in range(len(view.pending))]
    return {p.workload: (*p.standing, p.credit, p.within_quota) for p in positions}


@given(worlds())
def test_the_plan_is_that_of_the_brute_force(world: ScanWorld) -> None:
    view = world.view()
    plan = scan_pass(view, NOW_S)
    oracle = brute_force_scan(world, NOW_S)
    assert decided(view, plan) == oracle.tuples
    assert [view.pending.workloads[entry] for entry in plan.order] == oracle.order
    then = after(world, view, plan)
    assert {row.workload: row.within_quota for row in then.live} == oracle.live_within_quota
    assert {row.workload: row.priority for row in then.live} == oracle.live_priority
    assert {row.workload: row.level for row in then.live} == oracle.live_level
    stored = {row.workload: row.stored for row in world.queued}
    assert [view.pending.workloads[entry] for entry in plan.changed] == [
        name for name in view.pending.workloads if stored[name] != oracle.tuples[name] or name in oracle.promoted
    ]
    assert {view.pending.workloads[entry] for entry in plan.promotions} == oracle.promoted


@given(worlds())
def test_never_exceeds_a_quota(world: ScanWorld) -> None:
    view = world.view()
    plan = scan_pass(view, NOW_S)
    queued = charged(view.tenants, view.pending.tenant, view.pending.demand, plan.within_quota)
    assert (plan.running_use + queued <= view.tenants.quota).all()


@given(worlds())
def test_never_takes_quota_for_a_queued_workload_that_a_live_one_could_have_had(world: ScanWorld) -> None:
    view = world.view()
    plan = scan_pass(view, NOW_S)
    live = after(world, view, plan).live
    for owner, own_priority in quotas_of(world):
        charged_to_it = [row for row in live if is_charged_to(row, owner, own_priority)]
        use: Counter[str] = Counter()
        for row in charged_to_it:
            if row.within_quota:
                use.update(charge_of(owner, row))
        for row in charged_to_it:
            if not row.within_quota and not row.leaving:
                charge = charge_of(owner, row)
                assert any(use[bucket] + gpus > limit_of(owner, bucket) for bucket, gpus in charge.items())


@given(worlds())
def test_never_exceeds_a_quota_between_two_reclassifications(world: ScanWorld) -> None:
    view = world.view()
    plan = scan_pass(view, NOW_S)
    within = view.running.within_quota.copy()
    use = charged(view.tenants, view.running.tenant, view.running.demand, within)
    fitted = use <= view.tenants.quota
    for change in plan.reclassifications:
        within[change.row] = change.within_quota
        use = charged(view.tenants, view.running.tenant, view.running.demand, within)
        assert (use <= view.tenants.quota)[fitted].all()
        fitted = use <= view.tenants.quota
        if change.promoted:
            assert fitted.all()
    assert (charged(view.tenants, view.running.tenant, view.running.demand, within) == plan.running_use).all()


@given(worlds())
def test_never_gives_two_entries_one_place(world: ScanWorld) -> None:
    view = world.view()
    plan = scan_pass(view, NOW_S)
    assert sorted(plan.order.tolist()) == list(range(len(world.queued)))
    keys = [plan.position(view, int(entry)).sort_key for entry in plan.order]
    assert all(a < b for a, b in pairwise(keys))
    assert plan.rank[plan.order].tolist() == list(range(len(world.queued)))


@given(worlds())
def test_never_gives_a_later_workload_of_a_tenant_more_credit(world: ScanWorld) -> None:
    # The quota pass visits the entries in this order instead of sorting them by credit.
    view = world.view()
    credit = scan_credits(view, NOW_S)
    for tenant in range(len(view.tenants.ids)):
        assert (np.diff(credit[view.pending.tenant == tenant]) <= 0.0).all()


@given(worlds())
def test_never_changes_anything_when_nothing_happened(world: ScanWorld) -> None:
    view = world.view()
    plan = scan_pass(view, NOW_S)
    again = after(world, view, plan).view()
    second = scan_pass(again, NOW_S)
    assert second.changed.size == 0
    assert second.reclassifications == ()
    assert second.order.tolist() == plan.order.tolist()


@given(worlds(), st.randoms(use_true_random=False))
def test_never_depends_on_the_order_of_rows_and_tenants(world: ScanWorld, shuffler: Random) -> None:
    view = world.view()
    plan = scan_pass(view, NOW_S)
    tenants, queued, live, use = list(world.tenants), list(world.queued), list(world.live), list(world.use)
    for rows in (tenants, queued, live, use):
        shuffler.shuffle(rows)
    shuffled = replace(world, tenants=tuple(tenants), queued=tuple(queued), live=tuple(live), use=tuple(use)).view()
    other = scan_pass(shuffled, NOW_S)
    assert shuffled.pending.workloads == view.pending.workloads
    assert digest_of(other) == digest_of(plan)


def digest_of(plan: ScanPlan) -> list[object]:
    """Everything that the plan says, as plain values."""
    arrays = (plan.priority, plan.level, plan.credit, plan.within_quota, plan.exceeded_bucket, plan.order, plan.changed)
    return [
        *(array.tolist() for array in (*arrays, plan.promotions)),
        plan.reclassifications,
        plan.running_use.tolist(),
    ]


_SCAN = """
import numpy as np
from benchmarks.scan_pass import make_world
from global_scheduler.scan_pass import scan_pass
from tests.global_scheduler.test_scan_pass_properties import digest_of
print(digest_of(scan_pass(make_world(2_000, np.random.default_rng(3)).view(), 1_700_000_000.0)))
"""


def test_never_depends_on_the_hash_seed() -> None:
    assert "AttemptKey" in assert_same_output(_SCAN)
