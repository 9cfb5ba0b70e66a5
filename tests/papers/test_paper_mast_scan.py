"""MAST §4.2, sentence by sentence: credit (Expressions 10 and 11), the greedy quota pass, the order of the queue."""

from dataclasses import replace

import pytest

from domain.tenant import LOWEST_PRIORITY
from global_scheduler.credit import CreditSettings, FairShare
from global_scheduler.explanation import explain_entry
from global_scheduler.scan_pass import scan_credits, scan_pass
from global_scheduler.scan_settings import ScanSettings
from global_scheduler.usage_window import WindowedUse
from tests.global_scheduler.scan_worlds import LiveRow, Queued, ScanWorld, tenant

NOW_S = 7_200.0
# Worked by hand: one hour of waiting is worth 1, up to 3 hours; the fair share is worth 4; nothing is rounded.
CREDIT = CreditSettings(
    age_weight_per_s=1 / 3_600, age_cap_s=10_800.0, fairness_weight=4.0, age_resolution_s=0.0, fair_share_resolution=0.0
)
SETTINGS = ScanSettings(CREDIT)


def test_credit_is_expressions_10_and_11() -> None:
    """credit(L) = w_workload_age x min(L.age, C_age_cap) + w_fair_share x (1 - window_avg(L.tenant.resources_used)
    / window_avg(all_tenants.resource_used))."""
    world = ScanWorld(
        (tenant("heavy", any=8), tenant("light", any=8), tenant("idle", any=8)),
        (
            Queued("w1", "heavy", -28_800.0, {"any": 1}),  # waiting for 10 hours, of which 3 count
            Queued("w2", "heavy", 0.0, {"any": 1}),
            Queued("w3", "light", 1_800.0, {"any": 1}),
            Queued("w4", "idle", 5_400.0, {"any": 1}),
        ),
        # All tenants together use 60 + 30 + 0 = 90.
        use=(("heavy", WindowedUse(60.0)), ("light", WindowedUse(30.0))),
        settings=SETTINGS,
    )
    credit = scan_credits(world.view(), NOW_S)
    assert credit.tolist() == pytest.approx(
        [
            3.0 + 4.0 * (1 - 60 / 90),
            2.0 + 4.0 * (1 - 60 / 90),
            1.5 + 4.0 * (1 - 30 / 90),
            0.5 + 4.0 * (1 - 0 / 90),
        ]
    )


def test_the_fair_share_may_be_compared_with_the_mean_use_instead() -> None:
    """Not the paper's: with it the tenant that used as much as the average has a term of 0, however many tenants there are."""
    world = ScanWorld(
        (tenant("heavy", any=8), tenant("light", any=8), tenant("idle", any=8)),
        tuple(Queued(f"of {name}", name, NOW_S, {"any": 1}) for name in ("heavy", "light", "idle")),
        # The mean of 60, 30 and 0 is 30.
        use=(("heavy", WindowedUse(60.0)), ("light", WindowedUse(30.0))),
        settings=ScanSettings(replace(CREDIT, fair_share=FairShare.RATIO_TO_MEAN)),
    )
    view = world.view()
    credit = dict(zip(view.pending.workloads, scan_credits(view, NOW_S).tolist(), strict=True))
    assert credit == {"of heavy": -4.0, "of light": 0.0, "of idle": 4.0}


def test_a_workload_has_a_higher_credit_if_it_has_been_waiting_longer() -> None:
    """ "Intuitively, a workload W has a higher credit if it has been waiting longer (Expression 10) [...]" """
    queued = tuple(Queued(f"w{hours}", "t", NOW_S - hours * 3_600.0, {"any": 1}) for hours in (0, 1, 2))
    view = ScanWorld((tenant("t", any=8),), queued, settings=SETTINGS).view()
    credit = dict(zip(view.pending.workloads, scan_credits(view, NOW_S).tolist(), strict=True))
    assert list(credit.values()) == [6.0, 5.0, 4.0]
    assert sorted(credit, key=lambda name: -credit[name]) == ["w2", "w1", "w0"]


def test_a_workload_has_a_higher_credit_if_its_tenant_used_fewer_resources_than_others() -> None:
    """ "[...] or belongs to a tenant that has used fewer resources than others (Expression 11)." """
    world = ScanWorld(
        (tenant("more", any=8), tenant("fewer", any=8)),
        (Queued("w1", "more", 0.0, {"any": 1}), Queued("w2", "fewer", 0.0, {"any": 1})),
        use=(("more", WindowedUse(9.0)), ("fewer", WindowedUse(3.0))),
        settings=SETTINGS,
    )
    more, fewer = scan_credits(world.view(), NOW_S).tolist()
    assert (more, fewer) == (2.0 + 4.0 * (1 - 9 / 12), 2.0 + 4.0 * (1 - 3 / 12))


def test_the_highest_priority_goes_first_and_then_the_highest_credit() -> None:
    """ "It schedules the workload with the highest priority and, in case of a tie, selects the one with the highest
    credit for scheduling." """
    world = ScanWorld(
        (tenant("high", priority=1, any=8), tenant("low", priority=2, any=8)),
        (
            Queued("old but low", "low", 0.0, {"any": 1}),
            Queued("young and low", "low", 7_000.0, {"any": 1}),
            Queued("old and high", "high", 6_000.0, {"any": 1}),
            Queued("young but high", "high", 7_100.0, {"any": 1}),
        ),
        settings=SETTINGS,
    )
    view = world.view()
    order = [view.pending.workloads[entry] for entry in scan_pass(view, NOW_S).order]
    assert order == ["old and high", "young but high", "old but low", "young and low"]


def greedy_pass_of_the_paper() -> dict[str, tuple[int, bool]]:
    """A quota of 16 GPUs of which 6 are in use; then 4, 8, 6 and 1 are asked for, in this order of credit."""
    world = ScanWorld(
        (tenant("t", priority=2, any=16),),
        (
            Queued("asks for 4", "t", 100.0, {"any": 4}),
            Queued("asks for 8", "t", 200.0, {"any": 8}),
            Queued("asks for 6", "t", 300.0, {"any": 6}),
            Queued("asks for 1", "t", 400.0, {"any": 1}),
        ),
        (LiveRow("running", "t", 0.0, {"any": 6}, True, priority=2),),
        settings=SETTINGS,
    )
    view = world.view()
    plan = scan_pass(view, NOW_S)
    return {
        name: (int(plan.priority[entry]), bool(plan.within_quota[entry]))
        for entry, name in enumerate(view.pending.workloads)
    }


def test_resource_used_starts_with_the_running_workloads() -> None:
    """ "GMS maintains a resource_used variable for each tenant, initialized to include resources used by the
    tenant's running workloads." Without the 6 in use, 4 and 8 would both fit into 16."""
    assert greedy_pass_of_the_paper()["asks for 8"] == (LOWEST_PRIORITY, False)


def test_who_would_exceed_the_quota_gets_the_lowest_priority() -> None:
    """ "When scanning a pending workload W, GMS checks if adding W's resource requirement to resource_used would exceed
    the tenant's quota. If so, W is assigned the lowest priority level [...]" """
    over = [name for name, (priority, _) in greedy_pass_of_the_paper().items() if priority == LOWEST_PRIORITY]
    assert over == ["asks for 8", "asks for 1"]


def test_who_fits_inherits_the_tenants_priority_and_is_charged() -> None:
    """ "[...] otherwise, W inherits its tenant's priority level, and GMS updates the tenant's resource_used to include
    W's resources." 6 + 4 = 10, then 10 + 6 = 16: full, so that even 1 does not fit any more."""
    decided = greedy_pass_of_the_paper()
    assert decided["asks for 4"] == (2, True)
    assert decided["asks for 6"] == (2, True)
    assert decided["asks for 1"] == (LOWEST_PRIORITY, False)


def test_pending_workloads_are_scanned_in_credit_order() -> None:
    """ "GMS calculates each workload's credit and sorts pending workloads based on it. It scans them to assess if they
    can be scheduled within their tenant's quota." The older one has more credit, so it gets the quota."""
    queued = (Queued("a younger", "t", 5_000.0, {"any": 8}), Queued("z older", "t", 0.0, {"any": 8}))
    view = ScanWorld((tenant("t", any=8),), queued, settings=SETTINGS).view()
    plan = scan_pass(view, NOW_S)
    assert dict(zip(view.pending.workloads, plan.within_quota.tolist(), strict=True)) == {
        "z older": True,
        "a younger": False,
    }


def test_the_quota_counts_gpus_and_cpus() -> None:
    """ "The quota specifies the maximum number of GPUs and CPUs that a tenant can use simultaneously." """
    queued = (
        Queued("too many CPUs", "t", 0.0, {"any": 1}, cpus=33.0),
        Queued("fits both", "t", 100.0, {"any": 8}, cpus=32.0),
        Queued("too many GPUs", "t", 200.0, {"any": 1}),
    )
    view = ScanWorld((tenant("t", any=8, cpus=32.0),), queued, settings=SETTINGS).view()
    assert scan_pass(view, NOW_S).within_quota.tolist() == [False, True, False]


def test_there_are_seven_priority_levels() -> None:
    """ "Currently, MAST uses seven priority levels." """
    assert len(SETTINGS.rules) == LOWEST_PRIORITY + 1 == 7


def test_one_pass_updates_all_as_the_state_of_one_workload_affects_others() -> None:
    """ "This approach is chosen because the state change of one workload may impact others' <priority, credit>." Here the
    end of one running workload takes another one, which waits, within quota."""
    owner, queued = tenant("t", priority=2, any=8), (Queued("waits", "t", 0.0, {"any": 8}),)
    busy = ScanWorld((owner,), queued, (LiveRow("runs", "t", 0.0, {"any": 8}, True, priority=2),), settings=SETTINGS)
    ended = ScanWorld((owner,), queued, settings=SETTINGS)
    assert scan_pass(busy.view(), NOW_S).priority.tolist() == [LOWEST_PRIORITY]
    assert scan_pass(ended.view(), NOW_S).priority.tolist() == [2]


def test_quotas_are_per_priority_level() -> None:
    """ "Training workloads with different priorities are assigned capacity quotas per priority level." (§2) Here 8 GPUs at
    priority 1 and 4 at priority 4: what is asked for at one of them takes nothing of the other."""
    owner = replace(tenant("t", priority=4, any=4), further_quotas=((1, tenant("t", any=8).quota),))
    queued = (
        Queued("first at 1", "t", 100.0, {"any": 6}, asked=1),
        Queued("too much at 1", "t", 200.0, {"any": 4}, asked=1),
        Queued("asks for none", "t", 300.0, {"any": 3}),
        Queued("asks for 4", "t", 400.0, {"any": 1}, asked=4),
        Queued("too much at 4", "t", 500.0, {"any": 1}),
    )
    running = (LiveRow("runs at 1", "t", 0.0, {"any": 2}, True, priority=1, asked=1),)
    view = ScanWorld((owner,), queued, running, settings=SETTINGS).view()
    plan = scan_pass(view, NOW_S)
    assert plan.reclassifications == ()
    stand = zip(plan.priority.tolist(), plan.within_quota.tolist(), strict=True)
    assert dict(zip(view.pending.workloads, stand, strict=True)) == {
        "first at 1": (1, True),
        "too much at 1": (LOWEST_PRIORITY, False),
        "asks for none": (4, True),
        "asks for 4": (4, True),
        "too much at 4": (LOWEST_PRIORITY, False),
    }


def test_why_says_at_which_priority_the_quota_is() -> None:
    owner = replace(tenant("t", priority=4, any=4), further_quotas=((1, tenant("t", any=8).quota),))
    view = ScanWorld((owner,), (Queued("w", "t", 0.0, {"any": 9}, asked=1),), settings=SETTINGS).view()
    assert explain_entry(view, scan_pass(view, NOW_S), 0) == (
        "w is over-quota: it asks for 9 GPUs at priority 1, but of tenant t's 8, 0 are used by running workloads and 0 by "
        "those ahead of it in the queue, which leaves 8."
    )
