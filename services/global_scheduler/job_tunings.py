"""What the jobs of an attempt hold of CPUs and memory, and what of that is tuning: for people and programs that look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from domain.fleet import Machine
from domain.identifiers import MachineId
from domain.placement import TaskPlacement
from domain.proportional_shares import ProportionalShares
from domain.sensitivity import AmountsPerGpu, held_per_gpu
from domain.tuned_speed import tuned_speed
from domain.workload import WorkloadSpecification
from formats.scheduler_file import NO_TUNING
from regional_scheduler.tuning import is_tunable
from services.database.sensitivity_store import StoredProfile
from services.database.workload_reader import AttemptRecord
from services.tuned_work import ProfileBook
from topmast.v1 import workload_pb2


def machines_of(attempt: AttemptRecord) -> list[MachineId]:
    """Those on which it holds GPUs, by name."""
    return sorted({placement.machine for placement in attempt.placements if placement.gpu_indices})


def job_tunings(
    specification: WorkloadSpecification,
    attempt: AttemptRecord,
    machines: Sequence[Machine],
    known: Iterable[StoredProfile],
    tuning: str,
) -> list[workload_pb2.JobTuning]:
    """Of the jobs of a live attempt that have GPUs; nothing where one of its machines is not in the fleet any more.

    `machines`: those of `machines_of` that there are; `known`: the profiles of its jobs by name and revision; `tuning` is that of
    scheduler.yaml.
    """
    placements = [placement for placement in attempt.placements if placement.gpu_indices]
    if not placements or len(machines) < len(machines_of(attempt)):
        return []
    stored_profiles = ProfileBook(known).stored_of_jobs(specification, attempt.profiles_revision)
    profiles = {job: found.profile for job, found in stored_profiles.items()}
    shares = ProportionalShares(machines)
    messages = []
    for job in specification.jobs:
        tasks = [placement for placement in placements if placement.job == job.name]
        if not tasks:
            continue
        held, share = held_per_gpu(tasks), _share(tasks, shares)
        profile = stored_profiles.get(job.name)
        tuned = tuning != NO_TUNING and is_tunable(job, profiles)
        messages.append(
            workload_pb2.JobTuning(
                job=job.name,
                cpus_per_gpu=held.cpus,
                memory_gib_per_gpu=held.memory_gib,
                share_cpus_per_gpu=share.cpus,
                share_memory_gib_per_gpu=share.memory_gib,
                tuning=tuning if tuned else "",
                profile="" if profile is None else profile.name,
                speed=tuned_speed(profiles, tasks, shares),
            )
        )
    return messages


def _share(tasks: list[TaskPlacement], shares: ProportionalShares) -> AmountsPerGpu:
    """The least that a GPU of these tasks comes with."""
    each = [shares.of_placement(task) for task in tasks]
    return AmountsPerGpu(min(share.cpus for share in each), min(share.memory_gib for share in each))
