"""What a user submits: a workload is a gang of jobs, a job is a set of identical tasks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from domain.affinity import NO_JOB_AFFINITY, JobAffinity
from domain.dependencies import Dependency
from domain.identifiers import JobName, RegionId, TableId, TenantId, WorkloadId
from domain.model_profile import ModelProfile
from domain.notification import Notification
from domain.resources import ResourceVector, TaskResources
from domain.runtime_environment import RuntimeEnvironment
from domain.scaling import Scaling, ScalingPoint, measured

BaseTasksOfJobs: TypeAlias = tuple[tuple[JobName, int], ...]
"""By job, how many of its tasks are base tasks: those numbered from there on are flexible."""


@dataclass(frozen=True, slots=True)
class Command:
    """An entry point: a program and its arguments, one process per task."""

    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PythonCallable:
    """An entry point: `module:function`, called without arguments in each task's own process."""

    target: str


@dataclass(frozen=True, slots=True)
class Emulated:
    """An entry point without any process: the job is work of `duration_s` seconds, on the clock.

    `duration_s` is the run time with the proportional share on the GPUs asked for. With `checkpoint_interval_s`
    0 only a stop with grace saves the work; otherwise it is also saved each time that much work is done.
    """

    duration_s: float
    checkpoint_interval_s: float = 0.0


def least_often(intervals_s: Sequence[float]) -> float:
    """After how many seconds all have saved again that save at these intervals; 0, if one of them never does."""
    return max(intervals_s) if intervals_s and min(intervals_s) > 0.0 else 0.0


EntryPoint = Command | PythonCallable | Emulated


@dataclass(frozen=True, slots=True)
class JobSpecification:
    """A set of identical tasks. `tasks` are the base tasks (the gang); `max_tasks` > `tasks` makes it elastic."""

    name: JobName
    tasks: int
    resources: TaskResources
    entry_point: EntryPoint
    max_tasks: int = 0
    environment: tuple[tuple[str, str], ...] = ()
    consolidate: bool = False
    """True: fewest racks and machines come before least fragmentation (a job of high skew, Tiresias §3.3)."""
    profile: ModelProfile | None = None
    """What it says of its model; None: nothing."""
    affinity: JobAffinity = NO_JOB_AFFINITY
    """What is asked of the place beyond that. To be consolidated is to be preferably within one machine: either says it."""
    fills_fragments: bool = False
    """Never said by users, but decided, of a job that is known to be as fast wherever its tasks are: machines that are
    partly taken come before idle ones (Tiresias §3.3.2)."""
    scaling: tuple[ScalingPoint, ...] = ()
    """What it says of its speed by the number of its tasks (Lyra §8); empty: nothing."""
    across_clusters: bool = False
    """Whether its tasks may be in several clusters of the region where no single one has room (beyond MAST §4.6)."""
    runtime: RuntimeEnvironment | None = None
    """None: tasks run with what the machines have, as the service itself does."""

    def scaling_or(self, otherwise: Scaling) -> Scaling:
        """How its speed grows with its tasks: as it says itself, else like that."""
        return measured(self.scaling) if self.scaling else otherwise

    @property
    def greatest_tasks(self) -> int:
        """The most tasks it may ever have."""
        return max(self.tasks, self.max_tasks)


@dataclass(frozen=True, slots=True)
class TableInput:
    """A table that the workload reads. With `fresh` only the table's home region will do (MAST §3.1).

    Otherwise copies that are behind the home by more than `max_age_s` will not do; None: all others do. What reads no more
    than the newest partitions can do with a copy of those (MAST §3.5).
    """

    table: TableId
    fresh: bool = False
    max_age_s: float | None = None
    newest_partitions: int | None = None
    """It reads so many of the newest partitions at most; None: the whole table."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a failed attempt is tried again, and how long to wait before: doubled each time, up to the cap."""

    max_retries: int = 0
    backoff_s: float = 10.0
    backoff_cap_s: float = 600.0
    on_exit_codes: tuple[int, ...] = ()
    """Only failures in which a task ended with one of these are tried again; empty: all are."""
    never_on: tuple[int, ...] = ()
    """A failure in which a task ended with one of these is not, whatever retries are left."""

    def tries_again(self, failures: int, exit_codes: Collection[int]) -> bool:
        """Whether it is tried again after so many failures (1 or more), in the last of which tasks ended with these exit codes."""
        if failures > self.max_retries or any(code in self.never_on for code in exit_codes):
            return False
        return not self.on_exit_codes or any(code in self.on_exit_codes for code in exit_codes)

    def wait_s(self, failures: int) -> float:
        """Seconds to wait after the given number of failures (1 or more)."""
        return float(min(self.backoff_cap_s, self.backoff_s * 2.0 ** min(failures - 1, 30)))


DEFAULT_STOP_GRACE_S = 30.0


@dataclass(frozen=True, slots=True)
class WorkloadSpecification:
    """Everything the user said. `regions` empty means anywhere; `stop_grace_s` is the time to save a checkpoint.

    `priority` None: that of its tenant. It counts while the workload is within its tenant's quota at that priority.
    """

    name: str
    tenant: TenantId
    jobs: tuple[JobSpecification, ...]
    tables: tuple[TableInput, ...] = ()
    regions: tuple[RegionId, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    retry: RetryPolicy = RetryPolicy()
    stop_grace_s: float = DEFAULT_STOP_GRACE_S
    priority: int | None = None
    package: str = ""
    """The files with which its working directories begin: the SHA-256 of a stored package. Empty: empty folders."""
    max_time_s: float | None = None
    """How long each attempt of it may run (`domain.time_limit`); None: as long as it takes."""
    hold: bool = False
    """It waits outside the queue until it is released."""
    priority_class: str = ""
    """Among the workloads of its tenant (`domain.priority_class`); empty: the normal one."""
    after: tuple[Dependency, ...] = ()
    """It waits outside the queue until all of these are so."""
    array: str = ""
    """As it was written (`domain.workload_array`): it is submitted once for each of these indices. Empty: once."""
    notify: Notification | None = None
    """Whom to tell of what happens to it; None: nobody."""

    @property
    def demand(self) -> ResourceVector:
        """What all base tasks ask for, by the GPU model asked for.

        A proportional share counts as 0 CPUs here: what it comes to is known only on the machine.
        """
        return ResourceVector.total(
            ResourceVector.of(
                {job.resources.gpu_model: job.resources.gpus * job.tasks},
                cpus=(job.resources.cpus or 0.0) * job.tasks,
                memory_gib=(job.resources.memory_gib or 0.0) * job.tasks,
            )
            for job in self.jobs
        )

    @property
    def base_gpus(self) -> int:
        """GPUs of all base tasks together."""
        return sum([job.tasks * job.resources.gpus for job in self.jobs])

    @property
    def base_tasks(self) -> BaseTasksOfJobs:
        """Of the elastic jobs."""
        return tuple([(job.name, job.tasks) for job in self.jobs if job.max_tasks > job.tasks])

    @property
    def checkpoint_interval_s(self) -> float:
        """After so many seconds of work an emulated attempt of it has saved all its jobs again, without anybody being told:
        as often as the job that saves least often. 0: not before it stops, or it is not emulated."""
        return least_often(
            [
                job.entry_point.checkpoint_interval_s if isinstance(job.entry_point, Emulated) else 0.0
                for job in self.jobs
            ]
        )

    @property
    def emulated(self) -> bool:
        """True when no job starts a process."""
        return all(isinstance(job.entry_point, Emulated) for job in self.jobs)


@dataclass(frozen=True, slots=True)
class Workload:
    """An accepted workload: what was said, by which name it is known, and since when it is in the queue."""

    workload: WorkloadId
    specification: WorkloadSpecification
    submitted_s: float


def emulated_work_s(specification: WorkloadSpecification) -> float | None:
    """Seconds of work in all: jobs work side by side, so that the longest counts. None unless all are emulated."""
    durations = [job.entry_point.duration_s for job in specification.jobs if isinstance(job.entry_point, Emulated)]
    return max(durations) if len(durations) == len(specification.jobs) else None
