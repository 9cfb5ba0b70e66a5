"""When attempts will be gone, for reservations, by what is known of how long they still work.

Rule: work that is left ends by then; what is not known runs for as long as the rule assumes, from its start on, or from now on
when it has run for longer already. What has not started starts up first.
"""

from __future__ import annotations

import math

from domain.reservation import ReservationRule


def expected_end_s(
    rule: ReservationRule, remaining_s: float, dispatched_s: float, started_s: float | None, now: float
) -> float:
    """When an attempt ends that has so many seconds of work left; infinity: nobody knows. Never before `now`."""
    begins_s = dispatched_s + rule.start_up_s if started_s is None else started_s
    if math.isfinite(remaining_s):
        return max(now, begins_s) + remaining_s
    assumed_s = begins_s + rule.assumed_run_time_s
    return assumed_s if assumed_s > now else now + rule.assumed_run_time_s
