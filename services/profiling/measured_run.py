"""Runs a job's own program for a few iterations on a few CPUs, and says how long they took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from domain.identifiers import AttemptNumber, ClusterId, MachineId, TenantId, WorkloadId
from domain.placement import AttemptKey, TaskPlacement
from domain.resources import request_mebibytes, request_millicpus
from domain.workload import JobSpecification, WorkloadSpecification
from services.execution import task_reaper
from services.execution.entry_points import arguments_of
from services.execution.executor import AttemptOrder
from services.execution.task_environment import Rendezvous, task_environment, task_file
from services.execution.task_paths import TASK_FILE_NAME, TaskPaths, last_line, write_whole
from services.profiling.iteration_counter import IterationCounter, Reported, serving
from services.tiers.free_port import free_port

_LOOK_S = 0.2
_KEY = AttemptKey(WorkloadId("profile"), AttemptNumber(1))


class NotMeasured(Exception):
    """The program did not come so far; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    iterations: int = 50
    """After the first, with which everything begins that is not repeated."""
    least_s: float = 5.0
    """Iterations for so long at least: reports come once a second."""
    timeout_s: float = 300.0
    """For one number of CPUs, with all that comes before the first iteration."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a job did on some CPUs."""

    iterations_per_s: float
    process_gib: float
    """The most memory that its processes had, all together."""


def measured(job: JobSpecification, cpus: Sequence[int], memory_gib: float, effort: Effort) -> Measurement:
    """One task of the job, alone, on these CPUs of this machine, from its beginning; its checkpoints are thrown away.

    Whatever it starts is confined to them, and gone when this returns. Raises NotMeasured.
    """
    counter = IterationCounter()
    with TemporaryDirectory(prefix="topmast-profile-") as folder, serving(counter) as address:
        paths = TaskPaths(Path(folder))
        log = Path(folder) / "log"
        launch = _launch(job, paths, len(cpus), memory_gib, address, log)
        reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(task_reaper.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        # What it starts inherits that, and what that starts in turn.
        os.sched_setaffinity(reaper.pid, cpus)
        try:
            return _watched(reaper, launch, counter, effort, log)
        finally:
            # The end of its input has the reaper kill all that is left, and end.
            reaper.communicate()


def _launch(
    job: JobSpecification, paths: TaskPaths, cpus: int, memory_gib: float, address: str, log: Path
) -> task_reaper.Launch:
    """As an attempt of one task would be started."""
    placement = TaskPlacement(
        job.name,
        0,
        ClusterId("profile"),
        MachineId("here"),
        tuple(range(job.resources.gpus)),
        request_millicpus(cpus),
        request_mebibytes(memory_gib),
    )
    specification = WorkloadSpecification("profile", TenantId("profile"), (job,))
    order = AttemptOrder(_KEY, specification, (placement,))
    paths.checkpoint_directory(_KEY.workload).mkdir(parents=True)
    file = paths.task_directory(_KEY, job.name, 0) / TASK_FILE_NAME
    write_whole(file, json.dumps(task_file(order, placement, address)))
    environment = task_environment(
        order,
        placement,
        paths=paths,
        session_address=address,
        rendezvous=Rendezvous("127.0.0.1", free_port("127.0.0.1")),
        inherited=os.environ,
        program_directory=Path(sys.executable).parent,
    )
    return {
        "arguments": arguments_of(job.entry_point),
        "environment": environment,
        "directory": str(Path.cwd()),
        "log": str(log),
    }


def _watched(
    reaper: subprocess.Popen[bytes],
    launch: task_reaper.Launch,
    counter: IterationCounter,
    effort: Effort,
    log: Path,
) -> Measurement:
    if reaper.stdin is None or reaper.stdout is None:
        raise ValueError("a reaper is spoken to by pipes")
    reaper.stdin.write(json.dumps(launch).encode() + b"\n")
    reaper.stdin.flush()
    answer = json.loads(reaper.stdout.readline() or b"{}")
    if "process_id" not in answer:
        raise NotMeasured(f"{launch['arguments'][0]} could not start: {answer.get('failure', 'its reaper was killed')}")
    until = time.monotonic() + effort.timeout_s
    process_gib, reported = 0.0, Reported()
    while reaper.poll() is None and time.monotonic() < until:
        reported = counter.wait(_LOOK_S)
        process_gib = max(process_gib, _memory_gib(answer["process_id"]))
        if _suffices(reported, effort):
            break
    reported = counter.wait(0.0)
    if reported.iteration_s <= 0:
        raise NotMeasured(_why_not(reaper, reported, effort, log))
    return Measurement(1.0 / reported.iteration_s, process_gib)


def _suffices(reported: Reported, effort: Effort) -> bool:
    """Whether there have been enough iterations, for long enough, since the first."""
    return (
        reported.iteration_s > 0
        and reported.progress > effort.iterations
        and reported.progress * reported.iteration_s >= effort.least_s
    )


def _why_not(reaper: subprocess.Popen[bytes], reported: Reported, effort: Effort, log: Path) -> str:
    said = last_line(log)
    quoted = f"; it said last: {said}" if said else ""
    if reaper.poll() is not None:
        return f"the program ended before its second iteration{quoted}; let it train for longer, or mend it"
    if reported.progress > 0:
        return f"no second iteration within {effort.timeout_s:g} s{quoted}; give it longer with --timeout-s"
    return (
        f"no iteration within {effort.timeout_s:g} s{quoted}; the program must use topmast.training and call"
        " session.step() after each, or give it longer with --timeout-s"
    )


def _memory_gib(process_id: int) -> float:
    """What the process and all that it has started have in memory now; 0 when it has ended."""
    try:
        process = psutil.Process(process_id)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    found = 0
    for member in family:
        try:
            found += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return float(found) / 2**30
