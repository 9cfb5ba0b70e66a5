"""The environment of a task's process: which task it is, which others it works with, what it may use. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from domain.identifiers import JobName
from domain.placement import TaskPlacement
from domain.workload_array import array_environment
from services.execution.executor import AttemptOrder
from services.execution.task_mark import TaskMark
from services.execution.task_paths import TaskPaths

SERVICE_HOME_VARIABLE = "TOPMAST_SERVICE_HOME"
"""In the environment of all that a local service starts: by it, what is left of the service is found."""

_INHERITED = frozenset(
    {
        SERVICE_HOME_VARIABLE,
        "COLUMNS",
        "CONDA_PREFIX",
        "CUDA_HOME",
        "CUDA_PATH",
        "CURL_CA_BUNDLE",
        "HOME",
        "HOSTNAME",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LINES",
        "LOGNAME",
        "NO_PROXY",
        "PATH",
        "PYTHONPATH",
        "REQUESTS_CA_BUNDLE",
        "SHELL",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TEMP",
        "TERM",
        "TMP",
        "TMPDIR",
        "TZ",
        "USER",
        "VIRTUAL_ENV",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    }
)
"""What says how the machine is set up. Whatever else the service has may be a secret of it."""
_INHERITED_PREFIXES = ("FI_", "GLOO_", "LC_", "NCCL_", "NVIDIA_", "UCX_")
_OF_RAY = frozenset({"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PYTHONBREAKPOINT"})
"""What Ray has set for its own worker."""


def is_inherited(name: str) -> bool:
    """Whether users' processes get this variable of the service."""
    return name in _INHERITED or name.startswith(_INHERITED_PREFIXES)


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the tasks of a job meet: rank 0's machine, and a port that was free there."""

    address: str
    port: int


def task_environment(
    order: AttemptOrder,
    placement: TaskPlacement,
    *,
    paths: TaskPaths,
    session_address: str,
    session_token: str = "",
    session_authority: str = "",
    rendezvous: Rendezvous,
    inherited: Mapping[str, str],
    program_directory: Path,
    variables: Collection[str] = (),
    own: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Every variable of the task's process.

    Ranks count the tasks of the same job in this attempt; the local rank those on the same machine. Of what the service has
    (`inherited`) they get what says how the machine is set up, and the `variables` that the operator names; `own` are those of the user
    as whom they run. What the user set for the job wins over these, and what identifies the task wins over all.
    `program_directory` comes first in PATH, so that `python` is the one that has topmast installed.
    """
    on_machine = [other.task for other in tasks_of_job(order, placement.job) if other.machine == placement.machine]
    ranks = tasks_everywhere(order, placement.job)
    key = order.key
    environment = {name: value for name, value in inherited.items() if is_inherited(name)}
    environment |= {name: inherited[name] for name in variables if name in inherited and name not in _OF_RAY}
    environment |= own
    environment["PATH"] = f"{program_directory}:{environment.get('PATH', '/usr/local/bin:/usr/bin:/bin')}"
    environment["PYTHONUNBUFFERED"] = "1"
    environment["OMP_NUM_THREADS"] = str(max(1, placement.millicpus // 1000))
    environment.update(next(dict(job.environment) for job in order.specification.jobs if job.name == placement.job))
    environment |= array_environment(key.workload, order.specification.array)
    environment |= TaskMark.of(key, placement).variables(paths)
    return environment | {
        "TOPMAST_CHECKPOINT_DIRECTORY": str(paths.checkpoint_directory(key.workload)),
        "TOPMAST_SESSION_ADDRESS": session_address,
        "TOPMAST_SESSION_TOKEN": session_token,
        "TOPMAST_SESSION_AUTHORITY": session_authority,
        "RANK": str(ranks.index(placement.task)),
        "WORLD_SIZE": str(len(ranks)),
        "LOCAL_RANK": str(on_machine.index(placement.task)),
        "LOCAL_WORLD_SIZE": str(len(on_machine)),
        "MASTER_ADDR": rendezvous.address,
        "MASTER_PORT": str(rendezvous.port),
        "CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in placement.gpu_indices),
    }


def task_file(order: AttemptOrder, placement: TaskPlacement, session_address: str) -> dict[str, str | int | float]:
    """What may change while the task runs; the training library reads it again and again."""
    ranks = tasks_everywhere(order, placement.job)
    return {
        "session_address": session_address,
        "rank": ranks.index(placement.task) if placement.task in ranks else len(ranks),
        "world_size": len(ranks),
        "revision": order.revision,
        "cpus": placement.cpus,
        "memory_gib": placement.memory_gib,
    }


def tasks_everywhere(order: AttemptOrder, job: JobName) -> list[int]:
    """The numbers of the tasks of one job in all clusters, ascending: the first is rank 0.

    A job that may be in several clusters never has more or fewer than its base tasks, so that all know of all.
    """
    split = next((one for one in order.specification.jobs if one.name == job and one.across_clusters), None)
    return [one.task for one in tasks_of_job(order, job)] if split is None else list(range(split.tasks))


def tasks_of_job(order: AttemptOrder, job: JobName) -> list[TaskPlacement]:
    """The placements of one job in this cluster, by task number."""
    return sorted((other for other in order.placements if other.job == job), key=lambda other: other.task)
