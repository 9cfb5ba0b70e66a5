"""Workload specifications, placements and states, both ways.

From a message to the domain nothing is judged: a workload without a name, with 0 tasks or a NaN comes through
as it is, so that the checks of a submission can name every bad field at once. Only what the types cannot hold
raises MalformedMessage. Fields that are not set get the defaults that workload.proto documents.

Submissions pass here one by one, more than 10,000 in a second: the code prefers plain loops and positional
arguments over what would read a little better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from domain.affinity import NO_JOB_AFFINITY, CellAffinity, JobAffinity, TaskGroup, tasks_of
from domain.dependencies import Dependency, dependency_of
from domain.identifiers import ANY_GPU_MODEL, ClusterId, GpuModel, JobName, MachineId, RegionId, TableId, TenantId
from domain.life_cycle import State
from domain.model_profile import ModelProfile
from domain.notification import Notification
from domain.placement import TaskPlacement
from domain.resources import TaskResources
from domain.runtime_environment import RuntimeEnvironment
from domain.scaling import ScalingPoint
from domain.workload import (
    DEFAULT_STOP_GRACE_S,
    Command,
    Emulated,
    EntryPoint,
    JobSpecification,
    PythonCallable,
    RetryPolicy,
    TableInput,
    WorkloadSpecification,
)
from formats.problems import FieldProblem
from services.wire.malformed_message import MalformedMessage
from topmast.v1 import workload_pb2

_DEFAULT_RETRY = RetryPolicy()

_STATE_TO_PROTO = {state: workload_pb2.WorkloadState.Value(f"WORKLOAD_STATE_{state.value}") for state in State}
_STATE_FROM_PROTO = {int(value): state for state, value in _STATE_TO_PROTO.items()}


def specification_from_proto(message: workload_pb2.WorkloadSpecification) -> WorkloadSpecification:
    """What the user said. Raises MalformedMessage when jobs have no entry point, naming each of them."""
    jobs = tuple([_job_from_proto(job) for job in message.jobs])
    if None in jobs:
        raise MalformedMessage(
            [
                FieldProblem(f"jobs[{index}].entry_point", "is missing: set command, python or emulated")
                for index, job in enumerate(jobs)
                if job is None
            ]
        )
    labels = message.labels
    return WorkloadSpecification(
        message.name,
        TenantId(message.tenant),
        jobs,  # type: ignore[arg-type]  # None is excluded above, in a way that costs nothing
        tuple([_table_input(table) for table in message.tables]),
        tuple([RegionId(region) for region in message.regions]),
        _sorted_pairs(labels) if labels else (),
        _retry_from_proto(message.retry) if message.HasField("retry") else _DEFAULT_RETRY,
        message.stop_grace_s if message.HasField("stop_grace_s") else DEFAULT_STOP_GRACE_S,
        message.priority if message.HasField("priority") else None,
        message.package,
        message.max_time_s if message.HasField("max_time_s") else None,
        message.hold,
        message.priority_class,
        tuple([dependency_of(text) for text in message.after]),
        message.array,
        Notification(message.notify.url, tuple(message.notify.events)) if message.HasField("notify") else None,
    )


def _job_from_proto(message: workload_pb2.JobSpecification) -> JobSpecification | None:
    """None when it has no entry point."""
    which = message.WhichOneof("entry_point")
    entry_point: EntryPoint
    if which == "command":
        entry_point = Command(tuple(message.command.arguments))
    elif which == "emulated":
        emulated = message.emulated
        entry_point = Emulated(emulated.duration_s, emulated.checkpoint_interval_s)
    elif which == "python":
        entry_point = PythonCallable(message.python.target)
    else:
        return None
    resources = message.resources
    environment = message.environment
    return JobSpecification(
        JobName(message.name),
        message.tasks,
        TaskResources(
            resources.gpus,
            GpuModel(resources.gpu_model) or ANY_GPU_MODEL,
            resources.cpus if resources.HasField("cpus") else None,
            resources.memory_gib if resources.HasField("memory_gib") else None,
        ),
        entry_point,
        message.max_tasks,
        _sorted_pairs(environment) if environment else (),
        message.consolidate,
        _profile_from_proto(message.profile) if message.HasField("profile") else None,
        _affinity_from_proto(message),
        scaling=tuple([ScalingPoint(point.tasks, point.throughput) for point in message.scaling]),
        across_clusters=message.across_clusters,
        runtime=_runtime_from_proto(message.runtime) if message.HasField("runtime") else None,
    )


def _runtime_from_proto(message: workload_pb2.RuntimeEnvironment) -> RuntimeEnvironment:
    return RuntimeEnvironment(
        python=message.python,
        requirements=message.requirements,
        conda=message.conda,
        conda_file=message.conda_file,
        image=message.image,
    )


def _profile_from_proto(message: workload_pb2.ModelProfile) -> ModelProfile:
    return ModelProfile(
        message.skew if message.HasField("skew") else None,
        message.largest_tensor_mib if message.HasField("largest_tensor_mib") else None,
        message.model_mib if message.HasField("model_mib") else None,
    )


def _affinity_from_proto(message: workload_pb2.JobSpecification) -> JobAffinity:
    pinned_cell, yields = message.pinned_cell, message.yields_to_downgrade
    if not message.HasField("affinity"):
        return JobAffinity(None, (), pinned_cell, yields) if pinned_cell or yields else NO_JOB_AFFINITY
    affinity = message.affinity
    return JobAffinity(_within_from_proto(affinity), _groups_from_proto(affinity.groups), pinned_cell, yields)


def _within_from_proto(message: workload_pb2.Affinity | workload_pb2.TaskGroup) -> CellAffinity | None:
    """A preference for no level comes through as one, for the checks to find."""
    level, preferred = message.within, message.preferred
    return CellAffinity(level, not preferred) if level or preferred else None


def _groups_from_proto(messages: Iterable[workload_pb2.TaskGroup]) -> tuple[TaskGroup, ...]:
    groups: list[TaskGroup] = []
    for message in messages:
        inner = _groups_from_proto(message.groups)
        tasks = message.tasks or tasks_of(inner)
        groups.append(TaskGroup(tasks, _within_from_proto(message), inner, message.count or 1))
    return tuple(groups)


def _sorted_pairs(entries: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """A map has no order of its own."""
    return tuple(sorted(entries.items()))


def _retry_from_proto(message: workload_pb2.RetryPolicy) -> RetryPolicy:
    return RetryPolicy(
        message.max_retries,
        message.backoff_s or _DEFAULT_RETRY.backoff_s,
        message.backoff_cap_s or _DEFAULT_RETRY.backoff_cap_s,
        tuple(message.on_exit_codes),
        tuple(message.never_on),
    )


def _table_input(message: workload_pb2.TableInput) -> TableInput:
    max_age_s = message.max_age_s if message.HasField("max_age_s") else None
    newest = message.newest_partitions if message.HasField("newest_partitions") else None
    return TableInput(TableId(message.table), message.fresh, max_age_s, newest)


def specification_to_proto(specification: WorkloadSpecification) -> workload_pb2.WorkloadSpecification:
    """The message that `specification_from_proto` turns into the same specification again."""
    retry = specification.retry
    message = workload_pb2.WorkloadSpecification(
        name=specification.name,
        tenant=specification.tenant,
        jobs=[_job_to_proto(job) for job in specification.jobs],
        tables=[
            workload_pb2.TableInput(
                table=table.table,
                fresh=table.fresh,
                max_age_s=table.max_age_s,
                newest_partitions=table.newest_partitions,
            )
            for table in specification.tables
        ],
        regions=specification.regions,
        labels=dict(specification.labels),
        stop_grace_s=specification.stop_grace_s,
        priority=specification.priority,
        package=specification.package,
        max_time_s=specification.max_time_s,
        hold=specification.hold,
        priority_class=specification.priority_class,
        after=map(str, specification.after),
        array=specification.array,
    )
    if retry != _DEFAULT_RETRY:
        message.retry.max_retries = retry.max_retries
        message.retry.backoff_s = retry.backoff_s
        message.retry.backoff_cap_s = retry.backoff_cap_s
        message.retry.on_exit_codes.extend(retry.on_exit_codes)
        message.retry.never_on.extend(retry.never_on)
    if specification.notify is not None:
        message.notify.url = specification.notify.url
        message.notify.events.extend(specification.notify.events)
    return message


def with_dependencies(serialized: bytes, after: Sequence[Dependency]) -> bytes:
    """The same serialised specification, waiting for these."""
    message = workload_pb2.WorkloadSpecification.FromString(serialized)
    message.after[:] = map(str, after)
    return message.SerializeToString(deterministic=True)


def _job_to_proto(job: JobSpecification) -> workload_pb2.JobSpecification:
    resources = job.resources
    message = workload_pb2.JobSpecification(
        name=job.name,
        tasks=job.tasks,
        max_tasks=job.max_tasks,
        resources=workload_pb2.TaskResources(
            gpus=resources.gpus,
            gpu_model=resources.gpu_model,
            cpus=resources.cpus,
            memory_gib=resources.memory_gib,
        ),
        environment=dict(job.environment),
        consolidate=job.consolidate,
        scaling=[workload_pb2.ScalingPoint(tasks=tasks, throughput=speed) for tasks, speed in job.scaling],
        across_clusters=job.across_clusters,
        runtime=None if job.runtime is None else _runtime_to_proto(job.runtime),
    )
    if job.profile is not None:
        message.profile.SetInParent()
        message.profile.MergeFrom(
            workload_pb2.ModelProfile(
                skew=job.profile.stated_skew,
                largest_tensor_mib=job.profile.largest_tensor_mib,
                model_mib=job.profile.model_mib,
            )
        )
    if job.affinity is not NO_JOB_AFFINITY:
        _write_affinity(job.affinity, message)
    match job.entry_point:
        case Command(arguments):
            message.command.SetInParent()
            message.command.arguments.extend(arguments)
        case PythonCallable(target):
            message.python.SetInParent()
            message.python.target = target
        case Emulated(duration_s, checkpoint_interval_s):
            message.emulated.SetInParent()
            message.emulated.duration_s = duration_s
            message.emulated.checkpoint_interval_s = checkpoint_interval_s
    return message


def _runtime_to_proto(runtime: RuntimeEnvironment) -> workload_pb2.RuntimeEnvironment:
    return workload_pb2.RuntimeEnvironment(
        python=runtime.python,
        requirements=runtime.requirements,
        conda=runtime.conda,
        conda_file=runtime.conda_file,
        image=runtime.image,
    )


def _write_affinity(affinity: JobAffinity, message: workload_pb2.JobSpecification) -> None:
    message.pinned_cell, message.yields_to_downgrade = affinity.pinned_cell, affinity.yields_to_downgrade
    if affinity.within is not None or affinity.groups:
        within = affinity.within
        message.affinity.CopyFrom(
            workload_pb2.Affinity(
                within=within.level if within is not None else "",
                preferred=within is not None and not within.hard,
                groups=[_group_to_proto(group) for group in affinity.groups],
            )
        )


def _group_to_proto(group: TaskGroup) -> workload_pb2.TaskGroup:
    return workload_pb2.TaskGroup(
        count=group.count,
        tasks=group.tasks,
        within=group.within.level if group.within is not None else "",
        preferred=group.within is not None and not group.within.hard,
        groups=[_group_to_proto(inner) for inner in group.groups],
    )


def placement_from_proto(message: workload_pb2.TaskPlacement) -> TaskPlacement:
    """One placed task. Raises MalformedMessage when CPUs or memory are not finite numbers."""
    for field, amount in (("cpus", message.cpus), ("memory_gib", message.memory_gib)):
        if not math.isfinite(amount):
            raise MalformedMessage.of(field, f"is {amount}; it must be a finite number")
    return TaskPlacement(
        JobName(message.job),
        message.task,
        ClusterId(message.cluster),
        MachineId(message.machine),
        tuple(message.gpu_indices),
        # Amounts were multiples of a thousandth and of a MiB when they were sent: round, do not cut.
        round(message.cpus * 1000),
        round(message.memory_gib * 1024),
    )


def placement_to_proto(placement: TaskPlacement) -> workload_pb2.TaskPlacement:
    """The message that `placement_from_proto` turns into the same placement again."""
    return workload_pb2.TaskPlacement(
        job=placement.job,
        task=placement.task,
        cluster=placement.cluster,
        machine=placement.machine,
        gpu_indices=placement.gpu_indices,
        cpus=placement.cpus,
        memory_gib=placement.memory_gib,
    )


def state_to_proto(state: State) -> workload_pb2.WorkloadState.ValueType:
    return _STATE_TO_PROTO[state]


def state_from_proto(value: int) -> State:
    """Raises MalformedMessage for 0 (unspecified) and numbers that this version does not know."""
    state = _STATE_FROM_PROTO.get(value)
    if state is None:
        known = ", ".join(_STATE_FROM_PROTO.values())
        raise MalformedMessage.of("state", f"{value} is no state of a workload; there are {known}")
    return state
