"""What a user submits: a workload is a gang of jobs, a job is a set of identical tasks.

Words and defaults are those of protos/topmast/v1/workload.proto; resources and entry point of a job are flattened into it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Required, TypedDict, Unpack

from topmast.keywords import refuse_unknown_keywords
from topmast.messages import elements, mapping, message_list, message_of, part, refused, strings
from topmast.notifications import Notification, notification_from_proto, notification_to_proto
from topmast.runtime_environment import RuntimeEnvironment, runtime_from_proto, runtime_to_proto
from topmast.v1 import workload_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """No process: work of a given length, on the clock. For traces and load tests.

    With `checkpoint_interval_s` 0 only a stop with grace saves the work.
    """

    duration_s: float
    checkpoint_interval_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """The model that a job trains: its `skew` (largest tensor over the whole model, 0 to 1), or the two sizes.

    Jobs of high skew are placed on as few machines as possible. `topmast.training` can report it instead.
    """

    skew: float | None = None
    largest_tensor_mib: float | None = None
    model_mib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGroup:
    """Tasks that belong closer together than all tasks of their job.

    `tasks` are those of one of the `count` such groups; 0: as many as the groups in it have. `within` names the level
    of the cell that they are to be within ("machine", "rack", or what a hierarchy of cells calls its levels); with
    `hard` false only as far as possible.
    """

    tasks: int = 0
    count: int = 1
    within: str = ""
    hard: bool = True
    groups: Sequence[TaskGroup] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(elements("groups", self.groups)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """How close together the base tasks of a job are to be, as in TaskGroup; `groups` are what they consist of."""

    within: str = ""
    hard: bool = True
    groups: Sequence[TaskGroup] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(elements("groups", self.groups)))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpecification:
    """A set of identical tasks, one process each (with up to all GPUs of one machine).

    Give exactly one of `command` (a program and its arguments), `python` ("module:function") and `emulated`.
    `gpus` are per task; `gpu_model` "" means any. Without `cpus` or `memory_gib` a task gets its GPUs' proportional
    share of the machine; a task without GPUs must say both. `max_tasks` greater than `tasks` makes the job elastic.
    `pinned_cell` names one of the tenant's virtual cluster; with `yields_to_downgrade` it may lose its cells and go on
    opportunistically instead of being evicted by its own virtual cluster. `scaling` is the measured speed of an elastic job by the
    number of its tasks, `{1: 1.0, 2: 1.9, 4: 3.4}`; empty: in proportion. With `across_clusters` its tasks may be in several
    clusters of the region where no single one has room; it cannot be elastic then. `runtime` is what its tasks run in.
    """

    name: str = "main"
    tasks: int = 1
    max_tasks: int = 0
    gpus: int = 0
    gpu_model: str = ""
    cpus: float | None = None
    memory_gib: float | None = None
    command: Sequence[str] = ()
    python: str = ""
    emulated: Emulated | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    consolidate: bool = False
    profile: ModelProfile | None = None
    affinity: Affinity | None = None
    pinned_cell: str = ""
    yields_to_downgrade: bool = False
    scaling: Mapping[int, float] = field(default_factory=dict)
    across_clusters: bool = False
    runtime: RuntimeEnvironment | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "command", strings("command", self.command))


@dataclass(frozen=True, slots=True)
class TableInput:
    """A table that the workload reads; with `fresh` only the table's home region will do, with `max_age_s` only copies that
    are behind the home by no more. With `newest_partitions` it reads no more than so many of the newest partitions.
    """

    table: str
    fresh: bool = False
    max_age_s: float | None = None
    newest_partitions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a failed attempt is tried again; the wait doubles each time up to the cap. 0: the server's default.

    With `on_exit_codes` only where a task ended with one of these; never where one ended with one of `never_on`. A task that a
    signal has killed counts as 128 and the signal: 137 for SIGKILL.
    """

    max_retries: int = 0
    backoff_s: float = 0.0
    backoff_cap_s: float = 0.0
    on_exit_codes: Sequence[int] = ()
    never_on: Sequence[int] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "on_exit_codes", tuple(elements("on_exit_codes", self.on_exit_codes)))
        object.__setattr__(self, "never_on", tuple(elements("never_on", self.never_on)))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpecification:
    """Jobs that start together or not at all, in one region. `regions` empty means anywhere."""

    tenant: str
    jobs: Sequence[JobSpecification]
    name: str = ""
    tables: Sequence[TableInput] = ()
    regions: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    retry: RetryPolicy | None = None
    stop_grace_s: float | None = None
    priority: int | None = None
    """One at which its tenant has a quota; None: the tenant's."""
    package: str = ""
    """The files with which its working directories begin, as `upload_working_directory` calls them; "": empty folders."""
    max_time_s: float | None = None
    """Each attempt may run for so long, then the workload fails; None: as long as it takes."""
    hold: bool = False
    """It waits, and is not ranked, until it is released."""
    priority_class: str = ""
    """Among the workloads of its tenant at the same priority and level: "low", "normal" or "high"; "": normal."""
    after: Sequence[str] = ()
    """It waits for "ok:ID" (completed), "failed:ID", "any:ID" (ended); in a list of workloads also for others of it, by name."""
    array: str = ""
    """It is submitted once for each of these indices: "0-9999%50", "0-15:4", "1,3,7"; "": it is no array."""
    notify: Notification | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "jobs", tuple(elements("jobs", self.jobs)))
        object.__setattr__(self, "tables", tuple(elements("tables", self.tables)))
        object.__setattr__(self, "regions", strings("regions", self.regions))
        object.__setattr__(self, "after", strings("after", self.after))


class SingleJob(TypedDict, total=False):
    """The keywords of a workload with one job; see JobSpecification and WorkloadSpecification."""

    tenant: Required[str]
    name: str
    command: Sequence[str]
    python: str
    emulated: Emulated | None
    tasks: int
    max_tasks: int
    gpus: int
    gpu_model: str
    cpus: float | None
    memory_gib: float | None
    environment: Mapping[str, str]
    consolidate: bool
    profile: ModelProfile | None
    affinity: Affinity | None
    pinned_cell: str
    yields_to_downgrade: bool
    scaling: Mapping[int, float]
    across_clusters: bool
    runtime: RuntimeEnvironment | None
    tables: Sequence[TableInput | str]
    regions: Sequence[str]
    labels: Mapping[str, str]
    retry: RetryPolicy | None
    stop_grace_s: float | None
    priority: int | None
    package: str
    max_time_s: float | None
    hold: bool
    priority_class: str
    after: Sequence[str]
    array: str
    notify: Notification | str | None


def single_job(**said: Unpack[SingleJob]) -> WorkloadSpecification:
    """A workload with one job. Without a name it is called after its program: `python train.py` is `train`.

    Raises TypeError for a keyword that is not one of these, or no tenant, and InvalidArgumentError for a value that is none.
    """
    refuse_unknown_keywords("single_job", said, SingleJob.__annotations__)
    if "tenant" not in said:
        raise TypeError("single_job() needs the keyword 'tenant'")
    job = JobSpecification(
        tasks=said.get("tasks", 1),
        max_tasks=said.get("max_tasks", 0),
        gpus=said.get("gpus", 0),
        gpu_model=said.get("gpu_model", ""),
        cpus=said.get("cpus"),
        memory_gib=said.get("memory_gib"),
        command=said.get("command", ()),
        python=said.get("python", ""),
        emulated=said.get("emulated"),
        environment=said.get("environment", {}),
        consolidate=said.get("consolidate", False),
        profile=said.get("profile"),
        affinity=said.get("affinity"),
        pinned_cell=said.get("pinned_cell", ""),
        yields_to_downgrade=said.get("yields_to_downgrade", False),
        scaling=said.get("scaling", {}),
        across_clusters=said.get("across_clusters", False),
        runtime=said.get("runtime"),
    )
    notify = said.get("notify")
    return WorkloadSpecification(
        tenant=said["tenant"],
        name=said.get("name") or _name_of(job),
        jobs=(job,),
        tables=tuple(
            TableInput(table) if isinstance(table, str) else table
            for table in elements("tables", said.get("tables", ()))
        ),
        regions=said.get("regions", ()),
        labels=said.get("labels", {}),
        retry=said.get("retry"),
        stop_grace_s=said.get("stop_grace_s"),
        priority=said.get("priority"),
        package=said.get("package", ""),
        max_time_s=said.get("max_time_s"),
        hold=said.get("hold", False),
        priority_class=said.get("priority_class", ""),
        after=said.get("after", ()),
        array=said.get("array", ""),
        notify=Notification(notify) if isinstance(notify, str) else notify,
    )


def _name_of(job: JobSpecification) -> str:
    if job.command:
        script = next((argument for argument in job.command if argument.endswith(".py")), job.command[0])
        name = PurePath(script).stem
    elif isinstance(job.python, str):
        name = job.python.rpartition(":")[2] or "emulated"
    else:
        raise refused("python", "must be text: module:function")
    # Names have no other characters, and begin with a letter or digit.
    return re.sub(r"[^A-Za-z0-9._:/-]+", "-", name).strip("._:/-")[:128] or "workload"


def specification_to_proto(specification: WorkloadSpecification) -> workload_pb2.WorkloadSpecification:
    """The message to send; raises InvalidArgumentError for values of wrong types, and a job without exactly one entry point."""
    return message_of(
        workload_pb2.WorkloadSpecification,
        name=specification.name,
        tenant=specification.tenant,
        jobs=message_list("jobs", JobSpecification, specification.jobs, _job_to_proto),
        tables=message_list("tables", TableInput, specification.tables, _table_to_proto),
        regions=specification.regions,
        labels=mapping("labels", specification.labels),
        retry=part("retry", RetryPolicy, specification.retry, _retry_to_proto),
        stop_grace_s=specification.stop_grace_s,
        priority=specification.priority,
        package=specification.package,
        max_time_s=specification.max_time_s,
        hold=specification.hold,
        priority_class=specification.priority_class,
        after=specification.after,
        array=specification.array,
        notify=part("notify", Notification, specification.notify, notification_to_proto),
    )


def _table_to_proto(table: TableInput) -> workload_pb2.TableInput:
    return message_of(
        workload_pb2.TableInput,
        table=table.table,
        fresh=table.fresh,
        max_age_s=table.max_age_s,
        newest_partitions=table.newest_partitions,
    )


def _retry_to_proto(retry: RetryPolicy) -> workload_pb2.RetryPolicy:
    return message_of(
        workload_pb2.RetryPolicy,
        max_retries=retry.max_retries,
        backoff_s=retry.backoff_s,
        backoff_cap_s=retry.backoff_cap_s,
        on_exit_codes=retry.on_exit_codes,
        never_on=retry.never_on,
    )


def _job_to_proto(job: JobSpecification) -> workload_pb2.JobSpecification:
    given = [name for name in ("command", "python", "emulated") if getattr(job, name)]
    if len(given) != 1:
        named = "none" if not given else " and ".join(given)
        raise refused("entry_point", f"job '{job.name}': give exactly one of command, python and emulated, not {named}")
    return message_of(
        workload_pb2.JobSpecification,
        name=job.name,
        tasks=job.tasks,
        max_tasks=job.max_tasks,
        resources=part("resources", JobSpecification, job, _resources_to_proto),
        environment=mapping("environment", job.environment),
        consolidate=job.consolidate,
        across_clusters=job.across_clusters,
        runtime=part("runtime", RuntimeEnvironment, job.runtime, runtime_to_proto),
        affinity=part("affinity", Affinity, job.affinity, _affinity_to_proto),
        pinned_cell=job.pinned_cell,
        yields_to_downgrade=job.yields_to_downgrade,
        scaling=_scaling_to_proto(job.scaling),
        profile=part("profile", ModelProfile, job.profile, _profile_to_proto),
        command=part("command", tuple, job.command or None, _command_to_proto),
        python=part("python", str, job.python or None, _python_to_proto),
        emulated=part("emulated", Emulated, job.emulated, _emulated_to_proto),
    )


def _resources_to_proto(job: JobSpecification) -> workload_pb2.TaskResources:
    return message_of(
        workload_pb2.TaskResources, gpus=job.gpus, gpu_model=job.gpu_model, cpus=job.cpus, memory_gib=job.memory_gib
    )


def _scaling_to_proto(scaling: Mapping[int, float]) -> list[workload_pb2.ScalingPoint]:
    """By the number of tasks."""
    points = [
        message_of(workload_pb2.ScalingPoint, tasks=tasks, throughput=speed)
        for tasks, speed in mapping("scaling", scaling).items()
    ]
    return sorted(points, key=lambda point: point.tasks)


def _profile_to_proto(profile: ModelProfile) -> workload_pb2.ModelProfile:
    return message_of(
        workload_pb2.ModelProfile,
        skew=profile.skew,
        largest_tensor_mib=profile.largest_tensor_mib,
        model_mib=profile.model_mib,
    )


def _command_to_proto(arguments: Sequence[str]) -> workload_pb2.Command:
    return message_of(workload_pb2.Command, arguments=arguments)


def _python_to_proto(target: str) -> workload_pb2.PythonCallable:
    return message_of(workload_pb2.PythonCallable, target=target)


def _emulated_to_proto(emulated: Emulated) -> workload_pb2.Emulated:
    return message_of(
        workload_pb2.Emulated,
        duration_s=emulated.duration_s,
        checkpoint_interval_s=emulated.checkpoint_interval_s,
    )


def _affinity_to_proto(affinity: Affinity) -> workload_pb2.Affinity:
    return message_of(
        workload_pb2.Affinity,
        within=affinity.within,
        preferred=not affinity.hard,
        groups=message_list("groups", TaskGroup, affinity.groups, _group_to_proto),
    )


def _group_to_proto(group: TaskGroup) -> workload_pb2.TaskGroup:
    return message_of(
        workload_pb2.TaskGroup,
        count=group.count,
        tasks=group.tasks,
        within=group.within,
        preferred=not group.hard,
        groups=message_list("groups", TaskGroup, group.groups, _group_to_proto),
    )


def specification_from_proto(message: workload_pb2.WorkloadSpecification) -> WorkloadSpecification:
    """What the server says that was submitted."""
    retry = message.retry
    return WorkloadSpecification(
        tenant=message.tenant,
        name=message.name,
        jobs=tuple(_job_from_proto(job) for job in message.jobs),
        tables=tuple(
            TableInput(
                table.table,
                table.fresh,
                table.max_age_s if table.HasField("max_age_s") else None,
                table.newest_partitions if table.HasField("newest_partitions") else None,
            )
            for table in message.tables
        ),
        regions=tuple(message.regions),
        labels=dict(sorted(message.labels.items())),
        retry=RetryPolicy(
            max_retries=retry.max_retries,
            backoff_s=retry.backoff_s,
            backoff_cap_s=retry.backoff_cap_s,
            on_exit_codes=retry.on_exit_codes,
            never_on=retry.never_on,
        )
        if message.HasField("retry")
        else None,
        stop_grace_s=message.stop_grace_s if message.HasField("stop_grace_s") else None,
        priority=message.priority if message.HasField("priority") else None,
        package=message.package,
        max_time_s=message.max_time_s if message.HasField("max_time_s") else None,
        hold=message.hold,
        priority_class=message.priority_class,
        after=tuple(message.after),
        array=message.array,
        notify=notification_from_proto(message.notify) if message.HasField("notify") else None,
    )


def _job_from_proto(message: workload_pb2.JobSpecification) -> JobSpecification:
    resources = message.resources
    emulated = message.emulated
    return JobSpecification(
        name=message.name,
        tasks=message.tasks,
        max_tasks=message.max_tasks,
        gpus=resources.gpus,
        gpu_model=resources.gpu_model,
        cpus=resources.cpus if resources.HasField("cpus") else None,
        memory_gib=resources.memory_gib if resources.HasField("memory_gib") else None,
        command=tuple(message.command.arguments),
        python=message.python.target,
        emulated=Emulated(duration_s=emulated.duration_s, checkpoint_interval_s=emulated.checkpoint_interval_s)
        if message.HasField("emulated")
        else None,
        environment=dict(sorted(message.environment.items())),
        consolidate=message.consolidate,
        profile=_profile_from_proto(message.profile) if message.HasField("profile") else None,
        affinity=_affinity_from_proto(message.affinity) if message.HasField("affinity") else None,
        pinned_cell=message.pinned_cell,
        yields_to_downgrade=message.yields_to_downgrade,
        scaling={point.tasks: point.throughput for point in message.scaling},
        across_clusters=message.across_clusters,
        runtime=runtime_from_proto(message.runtime) if message.HasField("runtime") else None,
    )


def _profile_from_proto(message: workload_pb2.ModelProfile) -> ModelProfile:
    return ModelProfile(
        skew=message.skew if message.HasField("skew") else None,
        largest_tensor_mib=message.largest_tensor_mib if message.HasField("largest_tensor_mib") else None,
        model_mib=message.model_mib if message.HasField("model_mib") else None,
    )


def _affinity_from_proto(message: workload_pb2.Affinity) -> Affinity:
    return Affinity(
        within=message.within,
        hard=not message.preferred,
        groups=tuple(_group_from_proto(group) for group in message.groups),
    )


def _group_from_proto(message: workload_pb2.TaskGroup) -> TaskGroup:
    return TaskGroup(
        tasks=message.tasks,
        count=message.count or 1,
        within=message.within,
        hard=not message.preferred,
        groups=tuple(_group_from_proto(inner) for inner in message.groups),
    )
