"""Service levels (MAST §5.5): a workload is to run within a limit after it became pending, by its priority.

MAST's objective is on the P95 latency from pending to running, anew after each preemption; it publishes no limits. Ours
are a parameter. A level is kept at P95 when at most 5 % of the waits of that priority are violations.

The defaults begin where a scheduler can be held to them: acquiring and setting up containers alone takes MAST 449 s at
P99, so ten minutes at the highest priority.
"""

from __future__ import annotations

from math import isfinite

import numpy as np

from domain.tenant import LOWEST_PRIORITY
from simulator.results.run_record import Flags
from simulator.results.waits import Waits

DEFAULT_LIMITS_S = tuple(600.0 * 2**priority for priority in range(LOWEST_PRIORITY + 1))
"""By priority from 0 on: ten minutes, and twice as long at each lower one (10 hours 40 minutes at the lowest)."""


def check_limits(limits_s: tuple[float, ...]) -> tuple[float, ...]:
    """The limits, when there is one for each priority and all are positive; else raises ValueError with the remedy."""
    if len(limits_s) != LOWEST_PRIORITY + 1 or not all(isfinite(limit_s) and limit_s > 0 for limit_s in limits_s):
        raise ValueError(
            f"service-level limits must be {LOWEST_PRIORITY + 1} positive numbers of seconds, "
            f"for the priorities 0 to {LOWEST_PRIORITY}; got {', '.join(f'{limit_s:g}' for limit_s in limits_s)}"
        )
    return limits_s


def decided_waits(waits: Waits, limits_s: tuple[float, ...]) -> tuple[Flags, Flags]:
    """Which waits can be judged, and which of those are violations.

    A wait that ended without a start (cancelled, or the run was over) is judged only if it already was too long.
    Raises ValueError for limits that are none.
    """
    limits = np.array(check_limits(limits_s))[np.clip(waits.priority, 0, len(limits_s) - 1)]
    violated = waits.seconds > limits
    return waits.ran | violated, violated
