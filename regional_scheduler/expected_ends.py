"""When attempts will be gone, for reservations, by what is known of how long they still work.

Rule: work that is left ends by then; what is not known runs for as long as the rule assumes, from its start on, or from now on
when it has run for longer already. What has not started starts up first. No attempt is expected to end after its time limit, whatever else is known.
"""

from __future__ import annotations

import math

from domain.reservation import ReservationRule


def expected_end_s(
    rule: ReservationRule,
    remaining_s: float,
    dispatched_s: float,
    started_s: float | None,
    now: float,
    at_most_s: float = math.inf,
) -> float:
    """When an attempt ends that has so many seconds of work left; infinity: nobody knows. Never before `now`. An
    attempt lasts for `at_most_s` seconds, which is its time limit and the time to save its work."""
    begins_s = dispatched_s + rule.start_up_s if started_s is None else started_s
    if math.isfinite(remaining_s):
        end_s = max(now, begins_s) + remaining_s
    else:
        assumed_s = begins_s + rule.assumed_run_time_s
        end_s = assumed_s if assumed_s > now else now + rule.assumed_run_time_s
    return max(now, min(end_s, begins_s + at_most_s))
