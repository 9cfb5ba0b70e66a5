"""The time limit of a workload: how long each of its attempts may run (decision 088).

Rule: an attempt that has run for `max_time_s` since its gang started is asked to leave, saves its work within its grace, and
the workload fails for it, whatever retries are left. Each attempt has the whole time, as a requeued job has in Slurm: what an
attempt that was evicted ran for is not the user's fault, and counts for nothing.
"""

from __future__ import annotations

import math

from domain.workload import WorkloadSpecification

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def limit_reached_s(started_s: float | None, max_time_s: float | None) -> float:
    """When an attempt that has run since `started_s` reaches that limit; infinity: never, or it does not run yet."""
    return math.inf if started_s is None or max_time_s is None else started_s + max_time_s


def longest_attempt_s(specification: WorkloadSpecification) -> float:
    """How long an attempt of it can last at most, with the time to save its work; infinity: nobody knows."""
    return math.inf if specification.max_time_s is None else specification.max_time_s + specification.stop_grace_s


def time_limit_sentence(max_time_s: float) -> str:
    """Why the workload failed: `time limit of 1h 30m reached`."""
    return f"time limit of {exact_duration(max_time_s)} reached"


def exact_duration(seconds: float) -> str:
    """Nothing rounded, no unit that is not needed: 2h, 1h 30m, 1d 20s, 0.5s."""
    whole, parts = int(seconds), []
    rest = seconds - whole
    for unit_s, name in _UNITS:
        count, whole = divmod(whole, unit_s)
        if count:
            parts.append(f"{count}{name}")
    if whole or rest or not parts:
        parts.append(f"{whole + rest:.12g}s")
    return " ".join(parts)
