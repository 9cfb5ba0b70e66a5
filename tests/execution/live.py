"""A Ray executor with real processes, as the live tests use it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from domain.identifiers import ClusterId
from domain.placement import AttemptKey
from services.clock import SystemClock
from services.execution.environment_preparation import BUILD_TIMEOUT_S
from services.execution.executor import AttemptPhase, AttemptStatus, LogRequest
from services.execution.memory_watch import MemorySettings
from services.execution.ray_attempt import RayExecutorConfiguration
from services.execution.ray_executor import RayExecutor
from services.execution.task_user import TaskSettings
from services.security.secret_sessions import SessionTokens
from services.storage.store_urls import StoreUrls
from tests.execution.conftest import MACHINES, cluster_of
from tests.house.session_guards import SESSION_VARIABLE

PATIENCE_S = 240.0
REPOSITORY = Path(__file__).resolve().parents[2]


def make_executor(
    home: Path,
    *,
    reservation_timeout_s: float = 60.0,
    failure_grace_s: float = 2.0,
    allowed_s: Callable[[], float] = lambda: math.inf,
    packages: str = "",
    memory: MemorySettings | None = None,
    checkpoints: str = "",
    logs: str = "",
    build_timeout_s: float = BUILD_TIMEOUT_S,
    tasks: TaskSettings | None = None,
    cluster: ClusterId | None = None,
) -> RayExecutor:
    """The executor of a cluster of its own for each home, unless the cluster is named."""
    configuration = RayExecutorConfiguration(
        home=home,
        stores=StoreUrls(packages or f"file://{home / 'packages'}", checkpoints, logs),
        reservation_timeout_s=reservation_timeout_s,
        failure_grace_s=failure_grace_s,
        allow_interval_s=0.2,
        memory=memory or MemorySettings(),
        build_timeout_s=build_timeout_s,
        tasks=tasks or TaskSettings(variables=(SESSION_VARIABLE,)),
        tokens=SessionTokens(str(home)),  # the next manager of the same home has the same
    )
    return RayExecutor(cluster or cluster_of(home), MACHINES, SystemClock(), configuration, allowed_s)


class Watched:
    """An executor and everything it has told so far."""

    def __init__(self, executor: RayExecutor) -> None:
        self.executor = executor
        self.published: list[AttemptStatus] = []
        self._subscription = executor.subscribe()

    async def until(self, condition: Callable[[AttemptStatus], bool]) -> AttemptStatus:
        """The first status, told before or from now on, of which this is true."""
        seen = 0
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for status in self.published[seen:]:
                    if condition(status):
                        return status
                seen = len(self.published)
                changes = await self._subscription.next()
                self.published += [change for change in changes if isinstance(change, AttemptStatus)]

    async def phase(self, key: AttemptKey, phase: AttemptPhase) -> AttemptStatus:
        """The status with which the attempt came into this phase; an end in another phase is an error."""
        status = await self.until(lambda status: status.key == key and (status.phase is phase or status.ended))
        assert status.phase is phase, status
        return status

    async def end(self, key: AttemptKey) -> AttemptStatus:
        return await self.until(lambda status: status.key == key and status.ended)

    async def log(self, key: AttemptKey, task: int | None = None) -> str:
        request = LogRequest(key.workload, key.attempt, task=task)
        chunks = [chunk.chunk async for chunk in self.executor.read_logs(request)]
        return b"".join(chunks).decode()


@asynccontextmanager
async def running(executor: RayExecutor, session_address: str = "127.0.0.1:9") -> AsyncIterator[Watched]:
    """The executor started; at the end everything that it knows is killed and forgotten."""
    watched = Watched(executor)
    await executor.start(session_address)
    try:
        yield watched
    finally:
        known = [status.key for status in executor.statuses()]
        for key in known:
            await executor.stop(key, 0.0)
        for key in known:
            if any(status.key == key and not status.ended for status in executor.statuses()):
                await watched.end(key)
        await executor.forget(known)
        await executor.drain()
        await executor.close()


async def become_true(condition: Callable[[], bool]) -> None:
    """Waits for something that happens outside this process."""
    await asyncio.to_thread(wait_until, condition)


def wait_until(condition: Callable[[], bool]) -> None:
    """The same outside of an event loop."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not become true"
        time.sleep(0.02)


async def until_processes(mark: str, count: int) -> None:
    """Waits until so many processes have the mark in their command line."""
    await become_true(lambda: len(processes_with(mark)) == count)


async def until_text(path: Path, text: str) -> None:
    """Waits until a file has the text in it."""
    await become_true(lambda: path.exists() and text in path.read_text())


def watchers_of(process: psutil.Process) -> tuple[psutil.Process, psutil.Process, psutil.Process]:
    """The reaper, the guard and the runner of the main process of a task."""
    reaper, guard, runner, *_ = process.parents()
    return reaper, guard, runner


def processes_with(mark: str) -> list[psutil.Process]:
    """The processes that have this text in their command line."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if mark in " ".join(process.cmdline()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def own_runners() -> list[psutil.Process]:
    """The runners of tasks on the Ray of this process; others on this machine are none of our business."""
    found: list[psutil.Process] = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "ray::TaskRunner" in " ".join(process.cmdline()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def wait_until_gone(mark: str) -> None:
    """Returns when no process has this text in its command line any more."""
    _, alive = psutil.wait_procs(processes_with(mark), timeout=PATIENCE_S)
    assert not alive, alive
