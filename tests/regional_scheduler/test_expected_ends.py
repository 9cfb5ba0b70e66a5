"""When attempts are expected to end, for reservations."""

from __future__ import annotations

import math

import pytest

from domain.reservation import ReservationRule
from regional_scheduler.expected_ends import expected_end_s

RULE = ReservationRule(start_up_s=200.0, assumed_run_time_s=5_000.0)


@pytest.mark.parametrize(
    ("remaining_s", "started_s", "now", "expected_s"),
    [
        (300.0, 1_000.0, 2_000.0, 2_300.0),
        (0.0, 1_000.0, 2_000.0, 2_000.0),
        # What has not started starts up first, or could start at any moment when it has been at that for too long.
        (300.0, None, 950.0, 1_400.0),
        (300.0, None, 2_000.0, 2_300.0),
        # Nobody knows: so long from its start on, or from now on.
        (math.inf, 1_000.0, 2_000.0, 6_000.0),
        (math.inf, 1_000.0, 6_000.0, 11_000.0),
        (math.inf, None, 950.0, 6_100.0),
    ],
)
def test_an_attempt_that_was_dispatched_at_900(
    remaining_s: float, started_s: float | None, now: float, expected_s: float
) -> None:
    assert expected_end_s(RULE, remaining_s, 900.0, started_s, now) == expected_s


@pytest.mark.parametrize(
    ("remaining_s", "started_s", "now", "expected_s"),
    [
        # No later than its time limit, however much work is left.
        (3_000.0, 1_000.0, 2_000.0, 2_500.0),
        (math.inf, 1_000.0, 2_000.0, 2_500.0),
        (math.inf, None, 950.0, 2_600.0),
        # It is being stopped: at any moment.
        (math.inf, 1_000.0, 2_600.0, 2_600.0),
        # Work that is done before the limit is over then.
        (300.0, 1_000.0, 2_000.0, 2_300.0),
    ],
)
def test_an_attempt_that_lasts_for_1500_seconds_at_most(
    remaining_s: float, started_s: float | None, now: float, expected_s: float
) -> None:
    assert expected_end_s(RULE, remaining_s, 900.0, started_s, now, 1_500.0) == expected_s
