"""The ways in which a workload may run where machines of inference clusters are on loan (Lyra §2.1, §5.3, §6).

A fungible workload runs on either GPU model: on the loaned one with more tasks, of the same global batch, so that it is as
fast there. One that may be heterogeneous runs on both at once too, at a part of its speed, and only where nothing else is
possible: half of its base tasks on either. All others have one way: as they were submitted. Which way is preferred is
`regional_scheduler.loan_preferences`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

from domain.gpu_equivalents import fungible_job, heterogeneous_rate
from domain.identifiers import ANY_GPU_MODEL, GpuModel, JobName
from domain.workload import JobSpecification, Workload
from formats.trace import TraceRow
from regional_scheduler.loan_preferences import LoanTraits, offers
from simulator.engine.settings import LoanedSettings

LOANED_PART = JobName("loaned")
"""The job of a heterogeneous workload that is on loaned GPUs."""
_TRAINING, _ON_LOAN = 0, 1
"""The kinds of machines, in place of the positions of clusters."""
_PARTS = 1_000_000


@dataclass(frozen=True, slots=True)
class WayToRun:
    """One of them."""

    workload: Workload
    """Cut into tasks for it."""
    speed: float = 1.0
    """Seconds of work per second with the base tasks."""


@dataclass(frozen=True, slots=True)
class LoanedGpus:
    """What is on loan at times."""

    model: GpuModel
    settings: LoanedSettings


def ways_to_run(row: TraceRow, submitted: Workload, loaned: LoanedGpus | None) -> tuple[WayToRun, ...]:
    """All ways of the row's workload, the preferred one first; empty when there is only the one that was submitted."""
    (job,) = submitted.specification.jobs
    if loaned is None or not row.gpus or row.gpu_model in (ANY_GPU_MODEL, loaned.model):
        return ()
    both = job.tasks > 1 and _may_be_heterogeneous(row, loaned.settings)
    traits = LoanTraits(job.max_tasks > job.tasks, row.fungible is True, both)
    ways = [_way(submitted, job, offer.base, loaned) for offer in offers(traits, (_TRAINING,), (_ON_LOAN,))]
    return tuple(ways) if len(ways) > 1 else ()


def _way(submitted: Workload, job: JobSpecification, kinds: tuple[int, ...], loaned: LoanedGpus) -> WayToRun:
    """The one that uses machines of these kinds."""
    if kinds == (_TRAINING,):
        return WayToRun(submitted)
    speed = 1.0 / loaned.settings.gpus_per_gpu
    if kinds == (_ON_LOAN,):
        return WayToRun(_with_jobs(submitted, fungible_job(job, loaned.model, speed)))
    here = replace(job, tasks=job.tasks - job.tasks // 2, max_tasks=0)
    there = replace(job, name=LOANED_PART, tasks=job.tasks // 2, max_tasks=0)
    on_loan = fungible_job(there, loaned.model, speed)
    rate = heterogeneous_rate(job.tasks, here.tasks, on_loan.tasks, speed, loaned.settings.heterogeneous_speed)
    return WayToRun(_with_jobs(submitted, here, on_loan), rate)


def _with_jobs(workload: Workload, *jobs: JobSpecification) -> Workload:
    return replace(workload, specification=replace(workload.specification, jobs=jobs))


def _may_be_heterogeneous(row: TraceRow, settings: LoanedSettings) -> bool:
    """Traces do not say which: a share is chosen by the checksum of their names, the same in every run."""
    return zlib.crc32(row.workload_id.encode("utf-8")) % _PARTS < settings.heterogeneous_share * _PARTS
