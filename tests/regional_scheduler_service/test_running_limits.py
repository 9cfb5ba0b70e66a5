"""Which attempts have reached the time limits of their workloads."""

from __future__ import annotations

from dataclasses import replace

from services.execution.executor import AttemptPhase
from services.regional_scheduler.live_attempts import LiveAttempt, RegionAttempts
from services.regional_scheduler.time_limits import RunningLimits
from tests.regional_scheduler_service.test_live_attempts import EAST_A, attempt_in, report, running

LIMIT_S = 60.0


def limited(name: str) -> LiveAttempt:
    """It has run since 100, as far as the database knows."""
    attempt = running(attempt_in(EAST_A, name=name), since_s=100.0)
    attempt.specification = replace(attempt.specification, max_time_s=LIMIT_S)
    return attempt


def test_never_ends_for_its_limit_what_nobody_has_heard_of() -> None:
    """The service was down when the limit was reached: whether the attempt still runs is not known before its cluster says so."""
    heard, unheard = limited("w1"), limited("w2")
    report(heard, EAST_A, AttemptPhase.RUNNING)
    live, limits = RegionAttempts([heard, unheard]), RunningLimits()
    for attempt in live:
        limits.watch(attempt)
    assert limits.take_reached(live, 159.0) == []
    assert limits.take_reached(live, 160.0) == [heard]
    assert limits.take_reached(live, 170.0) == []
    report(unheard, EAST_A, AttemptPhase.RUNNING)
    assert limits.take_reached(live, 180.0) == [unheard]
