"""Promotion of the starving in scan passes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.rank import policy_level
from domain.tenant import LOWEST_PRIORITY
from global_scheduler.levels.attained_service import AttainedService
from global_scheduler.ordering.first_started import FirstStarted
from global_scheduler.scan_pass import scan_pass
from global_scheduler.scan_plan import ScanPlan
from global_scheduler.scan_settings import QueueRule, ScanSettings
from tests.global_scheduler.scan_worlds import NOW_S, Queued, ScanWorld, tenant, worlds

KNOB = AttainedService((100.0,), promote_knob=4.0)


def scan(levels: AttainedService, *queued: Queued, now: float = NOW_S) -> ScanPlan:
    """A pass over a queue of one tenant."""
    rules = (QueueRule(FirstStarted(), levels),) * (LOWEST_PRIORITY + 1)
    return scan_pass(ScanWorld((tenant("ash", any=100),), queued, settings=ScanSettings(rules=rules)).view(), now)


def demoted(waits_since_s: float, ran_s: float = 50.0, attained_gpu_s: float = 200.0) -> Queued:
    return Queued(
        "w", "ash", waits_since_s, {"A100": 4}, attained_gpu_s=attained_gpu_s, attained_s=ran_s, first_started_s=10.0
    )


def test_promoted_when_it_waits_the_knob_times_what_it_ran() -> None:
    assert scan(KNOB, demoted(NOW_S - 200.0)).promotions.tolist() == [0]
    assert scan(KNOB, demoted(NOW_S - 199.0)).promotions.tolist() == []
    assert scan(KNOB, demoted(NOW_S - 199.0)).next_promotion_s == NOW_S + 1.0


def test_the_promoted_waits_at_the_best_level_and_keeps_its_first_start() -> None:
    plan = scan(KNOB, demoted(NOW_S - 200.0))
    assert (plan.level.tolist(), plan.credit.tolist(), plan.next_promotion_s) == ([0], [-10.0], math.inf)


def test_what_waits_at_the_best_level_is_not_promoted() -> None:
    plan = scan(KNOB, demoted(NOW_S - 1e4, attained_gpu_s=99.0))
    assert (plan.promotions.tolist(), plan.next_promotion_s) == ([], math.inf)


@pytest.mark.parametrize(
    ("levels", "wait_s"),
    [
        (AttainedService((100.0,), promote_knob=4.0, starve_limit_s=60.0), 200.0),
        (AttainedService((100.0,), promote_knob=4.0, starve_limit_s=600.0), 600.0),
        (AttainedService((100.0,), starve_limit_s=60.0), 60.0),
        (AttainedService((100.0,)), math.inf),
        (AttainedService((100.0,), promote_knob=math.inf, starve_limit_s=60.0), math.inf),
    ],
    ids=["knob", "limit is a floor", "limit alone", "neither", "infinite knob"],
)
def test_knob_and_limit(levels: AttainedService, wait_s: float) -> None:
    plan = scan(levels, demoted(NOW_S - 30.0))
    assert plan.next_promotion_s == NOW_S - 30.0 + wait_s
    if not math.isinf(wait_s):
        assert scan(levels, demoted(NOW_S - wait_s)).promotions.tolist() == [0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"promote_knob": 0.0}, "promote_knob must be greater than 0"),
        ({"promote_knob": -1.0}, "promote_knob must be greater than 0"),
        ({"promote_knob": math.nan}, "promote_knob must be greater than 0"),
        ({"starve_limit_s": -1.0}, "starve_limit_s must be a number of seconds from 0 on"),
        ({"starve_limit_s": math.nan}, "starve_limit_s must be a number of seconds from 0 on"),
        ({"thresholds_gpu_s": (0.0,)}, "thresholds_gpu_s must be"),
        ({"thresholds_gpu_s": (100.0, math.inf)}, "thresholds_gpu_s must be"),
        ({"thresholds_gpu_s": (100.0, math.nan)}, "thresholds_gpu_s must be"),
    ],
)
def test_what_is_no_rule_is_refused(given: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AttainedService(**given)  # type: ignore[arg-type]  # what a file may say


@given(worlds(), st.floats(0.0, 20_000.0))
def test_never_does_a_demoted_workload_wait_past_its_bound(world: ScanWorld, later_s: float) -> None:
    """With a knob and a limit, whoever waits below the best level after a pass has waited for less than both allow, and
    the pass says in time when the next one will have."""
    view = world.view()
    plan = scan_pass(view, NOW_S + later_s)
    bounds = []
    rows = {row.workload: row for row in world.queued}
    for entry, name in enumerate(view.pending.workloads):
        levels = world.settings.rules[int(plan.priority[entry])].levels
        if (
            policy_level(int(plan.level[entry])) == 0
            or not isinstance(levels, AttainedService)
            or levels.promote_knob is None
        ):
            continue
        assert levels.starve_limit_s is not None
        row = rows[str(name)]
        bounds.append(row.submitted_s + max(levels.promote_knob * row.attained_s, levels.starve_limit_s))
        assert NOW_S + later_s < bounds[-1]
    assert plan.next_promotion_s == min(bounds, default=math.inf)


@given(worlds())
def test_never_is_one_promoted_twice_for_one_wait(world: ScanWorld) -> None:
    view = world.view()
    promoted = {str(view.pending.workloads[entry]) for entry in scan_pass(view, NOW_S).promotions.tolist()}
    queued = tuple(
        replace(row, attained_gpu_s=0.0, attained_s=0.0) if row.workload in promoted else row for row in world.queued
    )
    again = replace(world, queued=queued).view()
    assert not scan_pass(again, NOW_S).promotions.size
    assert not promoted & {
        str(again.pending.workloads[entry]) for entry in scan_pass(again, NOW_S + 1e9).promotions.tolist()
    }
