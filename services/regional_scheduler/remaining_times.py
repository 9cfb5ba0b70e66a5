"""How long attempts of a region still have to work, for policies that resize them (Lyra §5.2), and who says so.

Rule: what the workload declares, less what it has done; else the mean run time of its tenant's completed workloads of its
name, then of all of its tenant's, less the time that it has run. A mean that it has outlived says nothing any more. Where
nothing is known the policy has a rule of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from domain.identifiers import WorkloadId
from domain.placement import AttemptKey
from domain.workload import emulated_work_s
from global_scheduler.knowledge import EstimateSource
from services.database.connection import AnyConnection
from services.database.estimate_store import RunTimes, run_times
from services.regional_scheduler.live_attempts import LiveAttempt


class RemainingTime(NamedTuple):
    """Seconds of work with the base tasks; infinity: not known, whatever the policy then takes it to be."""

    remaining_s: float
    source: EstimateSource


NOT_KNOWN = RemainingTime(math.inf, EstimateSource.ASSUMED)


async def remaining_times(
    connection: AnyConnection, attempts: Iterable[LiveAttempt], now: float
) -> Mapping[AttemptKey, RemainingTime]:
    """Of each of these attempts, which run."""
    running = list(attempts)
    undeclared = [one for one in running if emulated_work_s(one.specification) is None]
    past: Mapping[WorkloadId, RunTimes] = {}
    if undeclared:
        past = await run_times(connection, [attempt.key.workload for attempt in undeclared])
    return {attempt.key: remaining_time(attempt, past.get(attempt.key.workload), now) for attempt in running}


def remaining_time(attempt: LiveAttempt, past: RunTimes | None, now: float) -> RemainingTime:
    """Of one of them, of which the past says this."""
    declared_s = emulated_work_s(attempt.specification)
    if declared_s is not None:
        return RemainingTime(max(0.0, declared_s - progress_at(attempt, now)), EstimateSource.DECLARED)
    if past is not None:
        run_s = past.earlier_s + max(0.0, now - _started_s(attempt))
        for mean_s, source in (
            (past.same_name_s, EstimateSource.NAME_HISTORY),
            (past.same_tenant_s, EstimateSource.TENANT_HISTORY),
        ):
            if mean_s is not None and mean_s > run_s:
                return RemainingTime(mean_s - run_s, source)
    return NOT_KNOWN


def progress_at(attempt: LiveAttempt, now: float) -> float:
    """How far emulated work is: it advances between two reports as fast as what the attempt holds makes it."""
    since: Sequence[tuple[float, float]] = list(attempt.changed.values())
    at_s = max((at_s for at_s, _ in since), default=_started_s(attempt))
    reached = min((reached for _, reached in since), default=attempt.run.facts.progress_at_start)
    held = attempt.placements if attempt.change is None else attempt.change.before
    rate = attempt.tuned.rate(attempt.specification, held)
    return max(attempt.run.progress, reached + max(0.0, now - at_s) * rate)


def _started_s(attempt: LiveAttempt) -> float:
    return attempt.dispatched_s if attempt.started_s is None else attempt.started_s
