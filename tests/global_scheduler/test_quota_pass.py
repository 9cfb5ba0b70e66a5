from collections.abc import Sequence

from domain.rank import Standing
from domain.tenant import LOWEST_PRIORITY, Tenant
from global_scheduler.explanation import explain_entry
from global_scheduler.scan_pass import scan_pass
from global_scheduler.scan_plan import ScanPlan
from global_scheduler.scan_view import ScanView
from tests.global_scheduler.scan_worlds import NOW_S, LiveRow, Queued, ScanWorld, tenant


def scan(owner: Tenant, queued: Sequence[Queued] = (), live: Sequence[LiveRow] = ()) -> tuple[ScanView, ScanPlan]:
    view = ScanWorld((owner,), tuple(queued), tuple(live)).view()
    return view, scan_pass(view, NOW_S)


def within(owner: Tenant, queued: Sequence[Queued], live: Sequence[LiveRow] = ()) -> list[str]:
    """Queued workloads within quota, by submit time."""
    view, plan = scan(owner, queued, live)
    return [name for entry, name in enumerate(view.pending.workloads) if plan.within_quota[entry]]


def changes(owner: Tenant, live: Sequence[LiveRow], queued: Sequence[Queued] = ()) -> list[tuple[str, bool]]:
    """Re-classifications in order."""
    return [(c.key.workload, c.within_quota) for c in scan(owner, queued, live)[1].reclassifications]


def test_who_does_not_fit_is_passed_over_for_a_smaller_one() -> None:
    queued = [Queued("w1", "t", 1, {"any": 6}), Queued("w2", "t", 2, {"any": 6}), Queued("w3", "t", 3, {"any": 2})]
    assert within(tenant("t", any=8), queued) == ["w1", "w3"]


def test_a_quota_may_be_used_to_the_last_gpu_and_no_further() -> None:
    assert within(tenant("t", any=8), [Queued("w1", "t", 1, {"any": 8})]) == ["w1"]
    assert within(tenant("t", any=7), [Queued("w1", "t", 1, {"any": 8})]) == []


def test_every_bucket_must_have_room() -> None:
    owner = tenant("t", cpus=10.0, H100=8, any=8)
    queued = [
        Queued("w1", "t", 1, {"H100": 4}, cpus=10.5),
        Queued("w2", "t", 2, {"H100": 4, "A100": 9}),
        Queued("w3", "t", 3, {"H100": 8, "A100": 8}, cpus=10.0),
    ]
    assert within(owner, queued) == ["w3"]


def test_two_models_of_one_bucket_are_charged_together() -> None:
    assert within(tenant("t", any=8), [Queued("w1", "t", 1, {"A100": 5, "V100": 5})]) == []


def test_without_quota_all_is_over_quota_unless_it_asks_for_nothing_charged() -> None:
    queued = [Queued("w1", "t", 1, {"A100": 1}), Queued("w2", "t", 2, {"A100": 0}), Queued("w3", "t", 3, {}, cpus=9e4)]
    assert within(tenant("t"), queued) == ["w2", "w3"]
    assert within(tenant("t", cpus=0.0), queued) == ["w2"]


def test_a_demand_of_zero_fits_an_over_full_bucket() -> None:
    live = [LiveRow("r1", "t", 1, {"A100": 8}, True, priority=1, leaving=False)]
    owner = tenant("t", H100=8)
    assert within(owner, [Queued("w1", "t", 1, {"H100": 8})], live) == ["w1"]


def test_a_tenant_of_the_lowest_priority_still_knows_who_is_within_quota() -> None:
    queued = [Queued("w1", "t", 1, {"any": 8}), Queued("w2", "t", 2, {"any": 8})]
    view, plan = scan(tenant("t", priority=LOWEST_PRIORITY, any=8), queued)
    assert plan.priority.tolist() == [LOWEST_PRIORITY, LOWEST_PRIORITY]
    assert plan.within_quota.tolist() == [True, False]
    assert [view.buckets[bucket] for bucket in plan.exceeded_bucket if bucket >= 0] == ["any"]


def test_quota_that_came_free_goes_to_the_oldest_live_attempts_before_the_queue() -> None:
    live = [
        LiveRow("r2", "t", 20.0, {"any": 4}, False),
        LiveRow("r1", "t", 10.0, {"any": 4}, False),
        LiveRow("r3", "t", 30.0, {"any": 2}, False),
    ]
    queued = [Queued("w1", "t", 0.0, {"any": 1}), Queued("w2", "t", 0.0, {"any": 2})]
    assert changes(tenant("t", any=7), live, queued) == [("r1", True), ("r3", True)]
    assert within(tenant("t", any=7), queued, live) == ["w1"]


def test_a_promoted_attempt_gets_its_tenants_priority_and_the_level_that_it_has_there() -> None:
    _, plan = scan(tenant("t", priority=2, any=8), live=[LiveRow("r1", "t", 1.0, {"any": 8}, False, attempt=4)])
    (change,) = plan.reclassifications
    assert change.promoted
    assert (change.key.workload, change.key.attempt) == ("r1", 4)
    assert (change.was_standing, change.standing) == (Standing(6, 0), Standing(2, 0))


def test_a_quota_that_shrank_costs_the_newest_first_and_only_as_many_as_needed() -> None:
    live = [LiveRow(f"r{start}", "t", start, {"any": 4}, True, priority=1) for start in (1, 2, 3, 4)]
    assert changes(tenant("t", any=16), live) == []
    assert changes(tenant("t", any=9), live) == [("r4", False), ("r3", False)]


def test_who_does_not_use_the_bucket_that_shrank_keeps_its_place() -> None:
    live = [
        LiveRow("r1", "t", 1.0, {"H100": 8}, True, priority=1),
        LiveRow("r2", "t", 2.0, {"H100": 4}, True, priority=1),
        LiveRow("r3", "t", 3.0, {"A100": 4}, True, priority=1),
    ]
    assert changes(tenant("t", A100=4, H100=8), live) == [("r2", False)]


def test_a_demoted_attempt_that_fits_after_all_is_left_alone() -> None:
    # r3 goes for the A100s, r2 for the H100s; with r2 gone there is room for r3 again.
    live = [
        LiveRow("r1", "t", 1.0, {"H100": 8}, True, priority=1),
        LiveRow("r2", "t", 2.0, {"H100": 1, "A100": 4}, True, priority=1),
        LiveRow("r3", "t", 3.0, {"A100": 1}, True, priority=1),
    ]
    assert changes(tenant("t", A100=4, H100=8), live) == [("r2", False)]


def test_who_is_leaving_is_demoted_first_and_never_promoted() -> None:
    live = [
        LiveRow("r1", "t", 1.0, {"any": 4}, True, priority=1, leaving=True),
        LiveRow("r2", "t", 2.0, {"any": 4}, True, priority=1),
        LiveRow("r3", "t", 3.0, {"any": 4}, False, leaving=True),
    ]
    assert changes(tenant("t", any=12), live) == []
    assert changes(tenant("t", any=4), live) == [("r1", False)]


def test_who_is_leaving_is_charged_until_it_is_gone() -> None:
    live = [LiveRow("r1", "t", 1.0, {"any": 4}, True, priority=1, leaving=True)]
    assert within(tenant("t", any=4), [Queued("w1", "t", 1.0, {"any": 1})], live) == []


def test_live_attempts_follow_their_tenant_to_another_priority() -> None:
    live = [
        LiveRow("r1", "t", 1.0, {"any": 4}, True, priority=4),
        LiveRow("r2", "t", 2.0, {"any": 4}, False),
        LiveRow("r3", "t", 3.0, {"any": 4}, True, priority=4, leaving=True),
    ]
    _, plan = scan(tenant("t", priority=1, any=8), live=live)
    (change,) = plan.reclassifications
    assert (change.key.workload, change.within_quota, change.standing.priority) == ("r1", True, 1)
    assert not change.promoted
    assert not change.demoted


def test_demotions_come_before_promotions() -> None:
    live = [
        LiveRow("r1", "t", 1.0, {"any": 2}, False),
        LiveRow("r2", "t", 2.0, {"any": 4}, True, priority=1),
        LiveRow("r3", "t", 3.0, {"any": 4}, True, priority=1),
    ]
    assert changes(tenant("t", any=6), live) == [("r3", False), ("r1", True)]


def test_tenants_do_not_share_quota() -> None:
    world = ScanWorld(
        (tenant("a", any=8), tenant("b", any=2)),
        (Queued("w1", "a", 1.0, {"any": 4}), Queued("w2", "b", 2.0, {"any": 4}), Queued("w3", "a", 3.0, {"any": 4})),
    )
    assert scan_pass(world.view(), NOW_S).within_quota.tolist() == [True, False, True]


def test_who_asks_for_a_quota_that_is_not_there_is_over_quota_and_nobody_else_is_held_up() -> None:
    owner, other = tenant("t", priority=2, any=8), tenant("u", priority=2, any=8)
    queued = (
        Queued("w1", "t", 1, {"A100": 4}, asked=4),
        Queued("w2", "t", 2, {"A100": 8}),
        Queued("w3", "u", 3, {"A100": 8}, asked=2),
    )
    live = (LiveRow("r1", "t", 1, {"A100": 4}, within_quota=True, priority=4, asked=4),)
    view = ScanWorld((owner, other), queued, live).view()
    plan = scan_pass(view, NOW_S)
    assert plan.within_quota.tolist() == [False, True, True]
    assert plan.priority.tolist() == [LOWEST_PRIORITY, 2, 2]
    assert [(change.key.workload, change.standing.priority) for change in plan.reclassifications] == [("r1", 6)]
    assert explain_entry(view, plan, 0) == (
        "w1 is over-quota: it asks for 4 GPUs at priority 4, but tenant t has no quota of them."
    )
