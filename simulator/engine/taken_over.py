"""What a snapshot says of an attempt, in the terms of a simulation that goes on with it."""

from __future__ import annotations

import math
from dataclasses import replace

from cluster_manager.attempt_run.events import Eviction
from cluster_manager.attempt_run.run import run_from_record
from domain.events import EvictionCause
from domain.placement import TaskPlacement, amounts_of, machines_of
from domain.snapshot import AttemptSoFar, RunningAttempt
from domain.work_rate import work_rate
from domain.workload import emulated_work_s
from simulator.engine.workloads import SimulatedWorkload


def eviction_of(attempt: RunningAttempt) -> Eviction | None:
    """Why it leaves, if it does."""
    leaving = attempt.leaving
    if leaving is None:
        return None
    by_limit = leaving.cause is EvictionCause.TIME_LIMIT
    return Eviction(
        leaving.cause,
        leaving.by,
        leaving.by_standing,
        to=machines_of(goes_on_at(attempt)),
        limit_s=attempt.workload.specification.max_time_s if by_limit else None,
    )


def goes_on_at(attempt: RunningAttempt) -> tuple[TaskPlacement, ...]:
    """The place of its next attempt; empty for one that does not migrate."""
    if attempt.next_place is None:
        return ()
    migrates = attempt.leaving is None or attempt.leaving.cause is EvictionCause.MIGRATED
    return attempt.next_place.placements if migrates else ()


def speed_of(attempt: RunningAttempt) -> float:
    """Seconds of work per second, with the placements that it has; of an estimate each second is worth one."""
    jobs = attempt.workload.specification.jobs
    return 1.0 if emulated_work_s(attempt.workload.specification) is None else work_rate(jobs, attempt.placements)


def changed_so_far(work: SimulatedWorkload, attempt: RunningAttempt, now: float) -> AttemptSoFar | None:
    """What it had come to at its last change. `work` is its workload, at work as if there had been none.

    Of one that leaves and does not say when it was asked to, its progress says how long it ran.
    """
    emulated = work.emulated
    if emulated is None:
        return None
    changed = attempt.changed
    is_estimate = emulated_work_s(attempt.workload.specification) is None
    if changed is not None:
        return changed if not is_estimate else replace(changed, progress=emulated.progress_at(changed.to_s))
    if attempt.leaving is None:
        return None
    reached = emulated.progress_at(now)
    if not is_estimate:
        reached = max(work.progress, min(attempt.progress, reached))
    ran_s = reached - work.progress
    return AttemptSoFar(work.started_s + ran_s, reached, ran_s * work.gpus)


def stand_as_taken_over(work: SimulatedWorkload, attempt: RunningAttempt, now: float) -> Eviction | None:
    """The workload stands where its attempt does; returns why that has to leave, if it has to."""
    work.dispatched_s = attempt.dispatched_s
    if attempt.started_s is not None:
        work.first_started_s = min(work.first_started_s, attempt.started_s)
    work.started_s = math.nan if attempt.started_s is None else attempt.started_s
    work.gpus, work.cpus = amounts_of(attempt.placements)
    eviction = eviction_of(attempt)
    if attempt.started_s is not None:
        work.emulated = work.work_from(attempt.started_s)
        changed = changed_so_far(work, attempt, now)
        if changed is not None:
            work.goes_on_from(changed, 0.0 if eviction is not None else speed_of(attempt))
            if eviction is not None:
                work.count_service(changed.to_s)
    work.run = run_from_record(
        work.facts(),
        work.state,
        progress=work.progress,
        checkpoint_progress=work.progress,
        checkpoint_s=0.0,
        started_s=attempt.started_s,
        eviction=eviction,
    )
    return eviction
