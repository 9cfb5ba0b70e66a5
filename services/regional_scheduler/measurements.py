"""What attempts have reported of their models and iterations, as it is kept: profiles, and times by where they ran."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cluster_manager.skew.consolidation import declared_skew
from cluster_manager.skew.measured import ran_on
from cluster_manager.skew.spread import most_gpus_of_machines
from domain.fleet import Region
from domain.identifiers import GpuModel, JobName, MachineId
from domain.workload import JobSpecification
from services.database.connection import AnyConnection
from services.database.packlimit_store import IterationTime, add_iteration_times
from services.database.profile_store import ReportedProfile, record_profiles
from services.execution.executor import JobMeasurement
from services.regional_scheduler.live_attempts import LiveAttempt


async def record_measurements(
    connection: AnyConnection,
    region: Region,
    reported: Iterable[LiveAttempt],
    ended: Sequence[LiveAttempt],
    now: float,
) -> tuple[ReportedProfile, ...]:
    """Writes profiles that are new, and the iteration times of attempts that have ended.

    Returns the profiles; the caller notes in memory that they are kept.
    """
    profiles = tuple([profile for attempt in reported for profile in new_profiles(attempt)])
    await record_profiles(connection, profiles, now)
    await add_iteration_times(connection, iteration_times(region, ended))
    return profiles


def new_profiles(attempt: LiveAttempt) -> Iterator[ReportedProfile]:
    """What its clusters say of its models, where that is not kept yet."""
    kept = {profile.job: profile for profile in attempt.profiles}
    for measured in _measured(attempt).values():
        if measured.model_mib > 0 and measured.largest_tensor_mib > 0:
            profile = ReportedProfile(
                attempt.key.workload,
                attempt.tenant,
                attempt.specification.name,
                measured.job,
                measured.largest_tensor_mib,
                measured.model_mib,
            )
            if kept.get(measured.job) != profile:
                yield profile


def iteration_times(region: Region, ended: Sequence[LiveAttempt]) -> list[IterationTime]:
    """What iterations took in attempts that are over, of jobs of several tasks with GPUs whose skew is known.

    Left out: attempts that were resized, whose times belong to no one size, and jobs on machines of different kinds.
    """
    measured = [
        (attempt, job, found)
        for attempt in ended
        if attempt.revision == 0 and (by_job := _measured(attempt))
        for job in attempt.specification.jobs
        if (found := by_job.get(job.name)) is not None and found.iteration_s > 0 and _counts(job)
    ]
    if not measured:
        return []
    used = {cluster for attempt, _, _ in measured for cluster in attempt.clusters}
    clusters = [cluster for cluster in region.clusters if cluster.cluster in used]
    models = {machine.machine: machine.gpu_model for cluster in clusters for machine in cluster.machines()}
    most_gpus = most_gpus_of_machines(clusters)
    times = []
    for attempt, job, found in measured:
        time = _iteration_time(attempt, job, found, models, most_gpus)
        if time is not None:
            times.append(time)
    return times


def _counts(job: JobSpecification) -> bool:
    return job.tasks > 1 and job.resources.gpus > 0


def _measured(attempt: LiveAttempt) -> Mapping[JobName, JobMeasurement]:
    """By job, from the first cluster that says anything of its model; a job is in one cluster."""
    found: dict[JobName, JobMeasurement] = {}
    for _, report in sorted(attempt.reports.items()):
        for measured in report.measured:
            found.setdefault(measured.job, measured)
    return found


def _iteration_time(
    attempt: LiveAttempt,
    job: JobSpecification,
    measured: JobMeasurement,
    models: Mapping[MachineId, GpuModel],
    most_gpus: Mapping[MachineId, int],
) -> IterationTime | None:
    """None where it cannot be said what it was measured on: another size, machines that are gone, or of several kinds."""
    placed = [placement.machine for placement in attempt.placements if placement.job == job.name]
    ran = ran_on(attempt.tenant, attempt.specification.name, job, placed, models, most_gpus)
    declared = declared_skew(job)
    if ran is None or (declared is None and not measured.model_mib):
        return None
    skew = measured.largest_tensor_mib / measured.model_mib if declared is None else declared.skew
    return IterationTime(*ran, min(1.0, skew), measured.iteration_s)
