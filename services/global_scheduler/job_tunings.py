"""What the jobs of an attempt hold of CPUs and memory, and what of that is tuning: for people and programs that look."""

from __future__ import annotations

from domain.placement import TaskPlacement
from domain.proportional_shares import ProportionalShares
from domain.sensitivity import AmountsPerGpu, held_per_gpu
from domain.tuned_speed import tuned_speed
from formats.scheduler_file import NO_TUNING
from regional_scheduler.tuning import is_tunable
from services.database.connection import AnyConnection
from services.database.fleet_store import machines_named
from services.database.sensitivity_store import load_named
from services.database.workload_reader import AttemptRecord, StoredWorkload
from services.tuned_work import ProfileBook, names_of_profiles
from services.wire.workloads import specification_from_proto
from topmast.v1 import workload_pb2


async def job_tunings(
    connection: AnyConnection, stored: StoredWorkload, attempt: AttemptRecord, tuning: str
) -> list[workload_pb2.JobTuning]:
    """Of the jobs of a live attempt that have GPUs; nothing where one of its machines is not in the fleet any more.

    `tuning` is that of scheduler.yaml.
    """
    placements = [placement for placement in attempt.placements if placement.gpu_indices]
    names = sorted({placement.machine for placement in placements})
    machines = await machines_named(connection, names)
    if len(machines) < len(names) or not names:
        return []
    specification = specification_from_proto(workload_pb2.WorkloadSpecification.FromString(stored.specification))
    wanted = {name for names_of_job in names_of_profiles(specification).values() for name in names_of_job}
    known = await load_named(connection, wanted) if wanted and attempt.profiles_revision else ()
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
