"""Several runs at once, each in a worker process; progress comes back while they run.

Workers are spawned, not forked: each begins with a clean interpreter and finds compiled kernels on disk. They do not
hear Ctrl-C, which a terminal sends to all processes of a command: the process that started them ends them.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeAlias

from formats.problems import FieldProblem, FormatError
from services.simulation.cache import SimulationCache
from services.simulation.inputs import SimulationInputs
from services.simulation.run import FinishedRun, run_once
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import RunProgress
from simulator.policies.registry import policy_called

LOOK_S = 0.2
"""So often it is asked whether to go on, and hears of the progress of each run."""
ENDING_S = 10.0
"""So long a worker that was asked to end may take before it is killed."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run."""

    policy: str
    seed: int


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What all runs of a command have in common."""

    inputs: SimulationInputs
    settings: SimulationSettings
    cache_folder: Path | None
    """None: nothing is looked up or kept."""


@dataclass(frozen=True, slots=True)
class _WorkerFailure:
    """What went wrong in a worker, as text: exceptions do not all travel."""

    source: str
    problems: tuple[FieldProblem, ...]
    traceback: str


class WorkerDied(Exception):
    """A worker ended without an answer, or with an unforeseen one."""


_Answer: TypeAlias = RunProgress | FinishedRun | _WorkerFailure
OnProgress: TypeAlias = Callable[[int, RunProgress], None]
OnFinished: TypeAlias = Callable[[int, FinishedRun], None]


def run_all(
    setup: WorkerSetup,
    requests: Sequence[RunRequest],
    jobs: int,
    *,
    on_progress: OnProgress,
    on_finished: OnFinished,
    go_on: Callable[[], bool],
) -> None:
    """Has every request run, at most `jobs` at once, in their order; the callbacks get the request's position.

    Returns when all are finished, or soon after `go_on` says no: then workers are ended, whatever they do. Raises
    FormatError for what a run refuses, and WorkerDied.
    """
    waiting = list(enumerate(requests))[::-1]
    busy: dict[Connection, tuple[int, BaseProcess]] = {}
    idle: list[tuple[Connection, BaseProcess]] = []
    try:
        idle += [_started(setup) for _ in range(min(jobs, len(requests)))]
        while (waiting or busy) and go_on():
            while waiting and idle:
                position, request = waiting.pop()
                connection, process = idle.pop()
                connection.send(request)
                busy[connection] = position, process
            ready = wait(list(busy), timeout=LOOK_S)
            for connection in [one for one in busy if one in ready]:
                position, process = busy[connection]
                answer = _answer_of(connection, process, requests[position])
                if isinstance(answer, RunProgress):
                    on_progress(position, answer)
                else:
                    del busy[connection]
                    idle.append((connection, process))
                    on_finished(position, answer)
    finally:
        _end([*idle, *((connection, process) for connection, (_, process) in busy.items())])


def _started(setup: WorkerSetup) -> tuple[Connection, BaseProcess]:
    """A worker that waits for requests. It inherits that SIGINT is blocked: it must not hear it even while it starts."""
    context = multiprocessing.get_context("spawn")
    # It lets SIGINT through when it starts, so it must not be the first worker that starts it.
    resource_tracker.ensure_running()
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(setup, theirs), daemon=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    theirs.close()
    return ours, process


def _answer_of(connection: Connection, process: BaseProcess, request: RunRequest) -> RunProgress | FinishedRun:
    what = f"{request.policy} with seed {request.seed}"
    try:
        answer: _Answer = connection.recv()
    except (EOFError, ConnectionError) as error:
        process.join(ENDING_S)
        code = process.exitcode
        why = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        hint = "; it may have run out of memory: try fewer --jobs" if code == -signal.SIGKILL else ""
        raise WorkerDied(f"the process that ran {what} ended ({why}){hint}") from error
    if isinstance(answer, _WorkerFailure):
        if answer.problems:
            raise FormatError(answer.source, answer.problems)
        raise WorkerDied(f"{what} failed:\n{answer.traceback}")
    return answer


def _end(workers: Sequence[tuple[Connection, BaseProcess]]) -> None:
    for connection, process in workers:
        connection.close()
        process.terminate()
    for _, process in workers:
        process.join(ENDING_S)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()


def work(setup: WorkerSetup, connection: Connection) -> None:
    """A worker: takes requests and answers each, until the other end is closed."""
    from services.runtime.kernels import compile_kernels

    compile_kernels()
    cache = SimulationCache(setup.cache_folder) if setup.cache_folder is not None else None
    while True:
        try:
            request: RunRequest = connection.recv()
        except (EOFError, ConnectionError):
            return
        try:
            answer: _Answer = _run(setup, request, cache, connection)
        except FormatError as error:
            answer = _WorkerFailure(error.source, error.problems, str(error))
        except ConnectionError:
            return
        except Exception:  # noqa: BLE001 -- sent to the caller, which raises it
            answer = _WorkerFailure("", (), traceback.format_exc())
        try:
            connection.send(answer)
        except ConnectionError:
            return


def _run(setup: WorkerSetup, request: RunRequest, cache: SimulationCache | None, connection: Connection) -> FinishedRun:
    told_s = 0.0

    def say(progress: RunProgress) -> bool:
        nonlocal told_s
        now_s = time.monotonic()
        if now_s - told_s >= LOOK_S:
            told_s = now_s
            connection.send(progress)
        return True

    policy = policy_called(request.policy)
    return run_once(setup.inputs, policy, setup.settings, request.seed, cache=cache, watcher=say)
