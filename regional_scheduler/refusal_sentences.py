"""What people read when a workload is refused: one sentence for each reason, made from the diagnosis.

A diagnosis holds the numbers and the names; a sentence adds only what was asked for, and what there is instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from data_placement.catalog import Catalog
from domain.affinity import JobAffinity, TaskGroup
from domain.clock import utc_time
from domain.diagnosis import Diagnosis, Quantity, Reason
from domain.identifiers import ANY_GPU_MODEL, GpuModel, TableId
from domain.rank import Standing, over_quota_part, policy_level
from domain.reservation import Reservation
from domain.resources import TaskResources
from domain.workload import JobSpecification, TableInput, WorkloadSpecification

_UNITS = MappingProxyType({Quantity.GPUS: "GPUs", Quantity.CPUS: "CPUs", Quantity.MEMORY_GIB: "GiB"})


def sentence_about_capacity(diagnosis: Diagnosis, job: JobSpecification, standing: Standing) -> str:
    """Why the job finds no place with what is running, at this standing. Raises ValueError for other reasons."""
    region, cluster = diagnosis.region, diagnosis.cluster
    most = f"{diagnosis.numbers[0].available:g}" if diagnosis.numbers else ""
    asked = f"job {job.name} asks for {job.tasks} task{'s' if job.tasks > 1 else ''} of {_task(job.resources)}"
    match diagnosis.reason:
        case Reason.NO_MACHINE_FITS:
            task = _task(job.resources)
            return f"job {job.name}: no machine of region {region} could hold one task of {task}"
        case Reason.CLUSTERS_TOO_SMALL if cluster is None:
            return f"{asked}: the clusters of region {region} over which it may be split could hold {most} when empty"
        case Reason.CLUSTERS_TOO_SMALL:
            return f"{asked}: the largest cluster of region {region}, {cluster}, could hold {most} when empty"
        case Reason.NO_ROOM if cluster is None:
            room = "for none" if diagnosis.numbers[0].available == 0 else f"for no more than {most} together"
            return (
                f"{asked}: the clusters of region {region} over which it may be split have room {room}, even with all"
                f" evicted that is worse than {_words_of(standing)}"
            )
        case Reason.NO_ROOM:
            room = "for any of them" if diagnosis.numbers[0].available == 0 else f"for more than {most}"
            return (
                f"{asked}: no cluster of region {region} has room {room} ({cluster}), even with all evicted"
                f" that is worse than {_words_of(standing)}"
            )
        case Reason.NO_ROOM_TOGETHER:
            return (
                f"{asked}: region {region} has room for each job of the workload alone, but none for this one beside"
                " the others"
            )
        case _:
            raise ValueError(f"{diagnosis.reason.value} does not depend on what is running")


def sentence_about_reservations(diagnosis: Diagnosis, job: JobSpecification, binding: Sequence[Reservation]) -> str:
    """Why the job is kept off machines on which it would fit."""
    tasks = f"{job.tasks} task{'s' if job.tasks > 1 else ''} of {_task(job.resources)}"
    room = f"job {job.name} asks for {tasks}, for which there is room in region {diagnosis.region} only on machines"
    if not binding:
        return f"{room} that are kept for gangs that have waited for too long"
    first = min(binding, key=lambda one: (one.expected_start_s, one.workload))
    # Without its name: it may be another tenant's.
    gangs = f"{len(binding)} gangs that have" if len(binding) > 1 else "a gang that has"
    return (
        f"{room} that are kept for {gangs} waited for longer, expected to start at {utc_time(first.expected_start_s)}"
    )


def sentence_about_smaller(job: JobSpecification, smaller: JobSpecification, found: str) -> str:
    """Why the job fails that asks for at least what a smaller one was refused for, of which `found` was said.

    No other job's name is shown.
    """
    why = found.removeprefix(f"job {smaller.name}")
    return f"job {job.name} asks for more than another job for which there is no room; that one{why}"


def sentence_about_hardware(diagnosis: Diagnosis, job: JobSpecification, models: Sequence[GpuModel]) -> str:
    """Why the region could never host the job, whatever runs; `models` are those of its GPUs. Raises ValueError."""
    region, resources = diagnosis.region, job.resources
    match diagnosis.reason:
        case Reason.NO_SUCH_GPU_MODEL:
            has = f"has {', '.join(sorted(models))}" if models else "has no GPUs"
            asked = "any model" if resources.gpu_model == ANY_GPU_MODEL else f"model {resources.gpu_model}"
            return f"GPUs of {asked} are asked for; region {region} {has}"
        case Reason.TASK_TOO_LARGE if diagnosis.numbers:
            (short,) = diagnosis.numbers
            unit = _UNITS[short.quantity] + (" of memory" if short.quantity is Quantity.MEMORY_GIB else "")
            return (
                f"a task asks for {short.asked:g} {unit}{_beside(resources, short.quantity)};"
                f" no such machine of region {region} has more than {short.available:g}"
            )
        case Reason.TASK_TOO_LARGE:
            return f"no machine of region {region} could hold a task of {_task(resources)}"
        case Reason.TOO_MANY_TASKS if diagnosis.cluster is None:
            return (
                f"{job.tasks} tasks of {_task(resources)} are asked for; the clusters of region {region} over which they may"
                f" be split have room for at most {diagnosis.numbers[0].available:g}"
            )
        case Reason.TOO_MANY_TASKS:
            return (
                f"{job.tasks} tasks of {_task(resources)} are asked for in one cluster; region {region} has room for at"
                f" most {diagnosis.numbers[0].available:g}, in cluster {diagnosis.cluster}"
            )
        case _:
            raise ValueError(f"{diagnosis.reason.value} is not about the hardware for one job")


def sentence_about_topology(diagnosis: Diagnosis, job: JobSpecification, there: Sequence[str]) -> str:
    """Why no cluster could ever hold the job as close together as it must be; `there` says what cells each has."""
    tasks = f"{job.tasks} task{'s' if job.tasks > 1 else ''} of {_task(job.resources)}"
    return (
        f"{tasks} are asked for {words_of_affinity(job.affinity)}; no cluster of region {diagnosis.region} could ever hold"
        f" them like that: {'; '.join(there)}"
    )


def words_of_affinity(affinity: JobAffinity) -> str:
    """What must be, in words: "within one rack, in groups of 4 within one machine"."""
    words = [f"within one {affinity.within.level}"] if affinity.within is not None and affinity.within.hard else []
    words += [f"in groups of {_group(group)}" for group in affinity.groups[:3]]
    if len(affinity.groups) > 3:
        words.append(f"and {len(affinity.groups) - 3} more groups")
    if affinity.pinned_cell:
        words.append(f"in pinned cell {affinity.pinned_cell}")
    return ", ".join(words)


def _group(group: TaskGroup) -> str:
    within = f" within one {group.within.level}" if group.within is not None and group.within.hard else ""
    inner = f" ({', '.join(_group(one) for one in group.groups)})" if group.groups else ""
    return f"{group.tasks}{within}{inner}"


def sentence_about_jobs_together(diagnosis: Diagnosis, jobs: int) -> str:
    """Why so many jobs, each of which the region could host, never fit into it at once."""
    asked = _amounts([(number.quantity, number.asked) for number in diagnosis.numbers])
    has = _amounts([(number.quantity, number.available) for number in diagnosis.numbers])
    return (
        f"each of the {jobs} jobs fits into a cluster of region {diagnosis.region}, but not all at once: together they"
        f" ask for {asked}, the region has {has}"
    )


def sentence_about_regions(specification: WorkloadSpecification) -> str:
    """Why a region is out of the question that the workload does not name."""
    return f"the workload allows only {', '.join(sorted(specification.regions))}"


def sentence_about_tables(diagnosis: Diagnosis, specification: WorkloadSpecification, catalog: Catalog) -> str:
    """Each table that the region lacks, and where it can be read."""
    where: dict[TableId, str] = {}
    for table_input in specification.tables:
        if table_input.table not in diagnosis.tables or (table_input.table in where and not _is_bounded(table_input)):
            continue
        held_in = catalog.regions_holding(table_input)
        fresh = "fresh only " if _is_bounded(table_input) else ""
        where[table_input.table] = f"{fresh}in {', '.join(held_in)}" if held_in else "nowhere"
    return "; ".join(f"table {table} is not here but {where[table]}" for table in diagnosis.tables)


def _is_bounded(table_input: TableInput) -> bool:
    """Whether not every copy will do."""
    return table_input.fresh or table_input.max_age_s is not None


def _task(resources: TaskResources) -> str:
    """What one task asks for."""
    parts = [_gpus(resources)] if resources.gpus else []
    parts.append("its share of CPUs" if resources.cpus is None else f"{resources.cpus:g} CPUs")
    parts.append("its share of memory" if resources.memory_gib is None else f"{resources.memory_gib:g} GiB")
    return ", ".join(parts)


def _beside(resources: TaskResources, short: Quantity) -> str:
    """What the task asks for beside that of which there is too little, and what was found for it."""
    found = [_gpus(resources)] if resources.gpus and short is not Quantity.GPUS else []
    if resources.cpus is not None and short is Quantity.MEMORY_GIB:
        found.append(f"{resources.cpus:g} CPUs")
    return f" beside {' and '.join(found)}" if found else ""


def _gpus(resources: TaskResources) -> str:
    model = "" if resources.gpu_model == ANY_GPU_MODEL else f"{resources.gpu_model} "
    return f"{resources.gpus} {model}GPUs"


def _amounts(amounts: Sequence[tuple[Quantity, float]]) -> str:
    *others, last = [f"{amount:g} {_UNITS[quantity]}" for quantity, amount in amounts]
    return f"{', '.join(others)} and {last}"


def _words_of(standing: Standing) -> str:
    words = f"priority {standing.priority}, level {policy_level(standing.level)}"
    return f"{words}, over quota" if over_quota_part(standing.level) else words
