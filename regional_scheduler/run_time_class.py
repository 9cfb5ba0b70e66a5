"""How long workloads say that they run, in a few classes: what is remembered of one holds for all of its class.

Classes are powers of two of a quarter of an hour, rounded up, so a workload is taken to run for less than twice as long as it
says, and never for less.
"""

from __future__ import annotations

import math

from domain.time_limit import longest_attempt_s
from domain.workload import WorkloadSpecification, emulated_work_s

SHORTEST_S = 900.0
"""What the first class lasts at most."""
NOT_KNOWN = 16
"""The class of workloads that do not say, and of those that run for longer than twenty weeks."""


def run_time_class(specification: WorkloadSpecification) -> int:
    """From 1, the shortest, to `NOT_KNOWN`; by what the workload declares of its work, and by its time limit."""
    declared_s = emulated_work_s(specification)
    work_s = min(math.inf if declared_s is None else declared_s, longest_attempt_s(specification))
    return next((one for one in range(1, NOT_KNOWN) if work_s <= most_s(one)), NOT_KNOWN)


def most_s(run_time: int) -> float:
    """What a workload of this class works for at most, in seconds."""
    return math.inf if run_time >= NOT_KNOWN else SHORTEST_S * 2.0 ** (run_time - 1)
