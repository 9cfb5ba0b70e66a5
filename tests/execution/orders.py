"""Small orders for tests: one job unless said otherwise, all tasks on machine m0 unless said otherwise."""

from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, TenantId, WorkloadId
from domain.placement import AttemptKey, TaskPlacement
from domain.resources import TaskResources
from domain.workload import Command, Emulated, EntryPoint, JobSpecification, PythonCallable, WorkloadSpecification
from services.execution.executor import AttemptOrder

CLUSTER = ClusterId("north-a")


def key(workload: str = "w", attempt: int = 1) -> AttemptKey:
    return AttemptKey(WorkloadId(workload), AttemptNumber(attempt))


def job(
    entry_point: EntryPoint,
    name: str = "train",
    *,
    tasks: int = 1,
    max_tasks: int = 0,
    environment: tuple[tuple[str, str], ...] = (),
) -> JobSpecification:
    resources = TaskResources(cpus=1.0, memory_gib=1.0)
    return JobSpecification(JobName(name), tasks, resources, entry_point, max_tasks, environment)


def placement(
    job_name: str = "train", task: int = 0, machine: str = "m0", gpus: tuple[int, ...] = (), cpus: float = 1.0
) -> TaskPlacement:
    return TaskPlacement(JobName(job_name), task, CLUSTER, MachineId(machine), gpus, round(cpus * 1000), 1024)


def order(
    *jobs: JobSpecification,
    workload: str = "w",
    attempt: int = 1,
    placements: tuple[TaskPlacement, ...] | None = None,
    hold: bool = False,
    progress: float = 0.0,
    started_s: float = 0.0,
    stop_grace_s: float = 30.0,
) -> AttemptOrder:
    """Without placements: the base tasks of every job, on machine m0."""
    specification = WorkloadSpecification("test", TenantId("tenant"), jobs, stop_grace_s=stop_grace_s)
    placed = tuple(placement(job.name, task) for job in jobs for task in range(job.tasks))
    return AttemptOrder(
        key(workload, attempt), specification, placed if placements is None else placements, hold, progress, started_s
    )


def emulated(
    duration_s: float,
    checkpoint_interval_s: float = 0.0,
    *,
    workload: str = "w",
    attempt: int = 1,
    hold: bool = False,
    progress: float = 0.0,
    started_s: float = 0.0,
) -> AttemptOrder:
    return order(
        job(Emulated(duration_s, checkpoint_interval_s)),
        workload=workload,
        attempt=attempt,
        hold=hold,
        progress=progress,
        started_s=started_s,
    )


def shell(script: str, name: str = "train", *, tasks: int = 1, max_tasks: int = 0) -> JobSpecification:
    """A job that runs a shell script."""
    return job(Command(("sh", "-c", script)), name, tasks=tasks, max_tasks=max_tasks)


def python(target: str, *, environment: tuple[tuple[str, str], ...] = (), tasks: int = 1) -> JobSpecification:
    return job(PythonCallable(target), environment=environment, tasks=tasks)
