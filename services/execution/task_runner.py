"""What runs beside each task: an actor that starts the user's process through a reaper and knows how it ended.

It lives on when the cluster manager dies, so that the process does too, and answers the next one; it keeps the exit
code until the attempt is forgotten. When it dies itself, the reaper ends the process.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

import ray
import structlog

from domain.placement import TaskPlacement
from services.execution import task_reaper
from services.execution.control_group import ControlGroup, control_group
from services.execution.cpu_affinity import limit_cpus
from services.execution.entry_points import arguments_of
from services.execution.executor import AttemptOrder
from services.execution.task_environment import Rendezvous, task_environment, task_file
from services.execution.task_paths import (
    SESSION_OPENED_MARK,
    STOP_SEEN_MARK,
    TASK_FILE_NAME,
    TaskPaths,
    write_whole,
)

COULD_NOT_START = 127
"""The exit code of a task whose program could not be started, as shells have it."""

_log = structlog.get_logger(__name__)


class RunnerState(StrEnum):
    READY = "ready"
    """Its place is taken; nothing was started yet."""
    RUNNING = "running"
    ENDED = "ended"


class StopCause(StrEnum):
    """Why a task was asked to stop."""

    ASKED = "asked"
    GANG = "gang"
    """Another task of the attempt failed or was lost."""
    RELEASED = "released"
    """The attempt goes on without this flexible task."""
    NO_LEASE = "no_lease"
    """Nobody who holds the lease of its cluster has allowed it to run on: it may run elsewhere soon."""


@dataclass(frozen=True, slots=True)
class RunnerReport:
    """How a task stands. `version` grows with each change; `ended_real_s` orders the ends of an attempt's tasks."""

    version: int
    state: RunnerState
    started_s: float = 0.0
    exit_code: int | None = None
    """Negative: killed by that signal. None when it was never started."""
    failure: str = ""
    stop_cause: StopCause | None = None
    stopped_early: bool = False
    """It ended because it was asked to: not by itself, in the moment in which it was asked."""
    ended_real_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RunnerDescription:
    """All that a new cluster manager has to know. Of several orders of an attempt that of the last revision counts."""

    order: AttemptOrder
    placement: TaskPlacement
    placement_group: str
    report: RunnerReport
    clock_s: float = 0.0
    """The runner's own clock (see `TaskRunner.allow`)."""


@dataclass(frozen=True, slots=True)
class TaskStart:
    """What a runner needs to know in order to start its task."""

    rendezvous: Rendezvous
    session_address: str
    started_s: float
    home: Path
    working_directory: Path
    allowed_until_s: float = math.inf
    """On the runner's own clock: what is started later than that is not started at all."""


class TaskRunner:
    """One task, which ends by itself when it is not allowed to run on in time. Every method may be repeated. Wrapped into a Ray actor by RunnerPool."""

    def __init__(self, order: AttemptOrder, placement: TaskPlacement, placement_group: str) -> None:
        self._order = order
        self._placement = placement
        self._placement_group = placement_group
        self._report = RunnerReport(version=0, state=RunnerState.READY)
        self._changed = asyncio.Condition()
        self._one_at_a_time = asyncio.Lock()
        self._rendezvous: Rendezvous | None = None
        self._paths: TaskPaths | None = None
        self._session_address = ""
        self._reaper: Process | None = None
        self._process_id = 0
        self._watching: asyncio.Task[None] | None = None
        self._kill: asyncio.TimerHandle | None = None
        self._allowed_until_s = -math.inf
        self._not_allowed: asyncio.TimerHandle | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._group: ControlGroup | None = None
        """Its control group, where there can be one."""

    async def describe(self) -> RunnerDescription:
        return RunnerDescription(self._order, self._placement, self._placement_group, self._report, time.monotonic())

    async def report_after(self, version: int) -> RunnerReport:
        """Waits until the report is newer than that version."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._report.version > version)
        return self._report

    async def rendezvous(self) -> Rendezvous:
        """Where tasks of this job can meet when this one is rank 0."""
        if self._rendezvous is None:
            with socket.socket() as probe:
                probe.bind(("", 0))
                port = int(probe.getsockname()[1])
            self._rendezvous = Rendezvous(await asyncio.to_thread(_address_of_this_machine), port)
        return self._rendezvous

    async def start(self, start: TaskStart) -> RunnerReport:
        """Starts the task's process, unless it was started or stopped before. Answers how it went."""
        async with self._one_at_a_time:
            if self._report.state is RunnerState.READY:
                self._paths = TaskPaths(start.home)
                self._session_address = start.session_address
                try:
                    if start.allowed_until_s <= time.monotonic():
                        # Who asks was away for longer than its lease.
                        await self._tell(replace(self._report, stop_cause=StopCause.NO_LEASE))
                        await self._ended(None, "")
                        return self._report
                    self._allow_until(start.allowed_until_s)
                    await self._launch(start)
                except OSError as error:
                    await self._ended(COULD_NOT_START, f"could not start: {error}")
        return self._report

    async def stop(self, grace_s: float, cause: StopCause) -> None:
        """SIGTERM now and SIGKILL after the grace (in real seconds); repeating can only shorten the grace."""
        async with self._one_at_a_time:
            if self._report.state is RunnerState.ENDED:
                return
            if self._report.stop_cause is None:
                await self._tell(replace(self._report, stop_cause=cause))
                if self._report.state is RunnerState.RUNNING and grace_s > 0:
                    self._command(b"terminate\n")
            if self._report.state is RunnerState.READY:
                await self._ended(None, "")
                return
            loop = asyncio.get_running_loop()
            at = loop.time() + max(0.0, grace_s)
            if self._kill is not None:
                if self._kill.when() <= at:
                    return
                self._kill.cancel()
            self._kill = loop.call_at(at, self._command, b"kill\n")

    async def allow(self, clock_s: float, for_s: float) -> float:
        """The task may run until so long after the time that this runner's clock showed then; returns what it shows now.

        Whoever calls has read `for_s` off a lease after it was told `clock_s`: however late the call arrives, it allows
        nothing beyond that lease.
        """
        if self._report.state is not RunnerState.ENDED:
            self._allow_until(clock_s + for_s)
        return time.monotonic()

    def _allow_until(self, until_s: float) -> None:
        if until_s <= self._allowed_until_s:
            return
        self._allowed_until_s = until_s
        if self._not_allowed is not None:
            self._not_allowed.cancel()
            self._not_allowed = None
        if math.isfinite(until_s):
            left_s = until_s - time.monotonic()
            # Time to save its work comes off the end: when its time is over nothing of it runs any more.
            grace_s = max(0.0, min(self._order.specification.stop_grace_s, left_s / 4))
            self._not_allowed = asyncio.get_running_loop().call_later(left_s - grace_s, self._stop_itself, grace_s)

    def _stop_itself(self, grace_s: float) -> None:
        _log.warning("no lease allows the task to run on", task=self._name)
        # One that is just being started is stopped as soon as it is.
        self._stopping = asyncio.create_task(self.stop(grace_s, StopCause.NO_LEASE))

    async def reorder(self, order: AttemptOrder) -> None:
        """The attempt has other placements now: the task gets them, and is kept to the CPUs that it has."""
        if order.revision <= self._order.revision:
            return
        before = self._placement
        self._order = order
        key = before.job, before.task
        self._placement = next((p for p in order.placements if (p.job, p.task) == key), before)
        self._write_task_file()
        self._limit()

    async def move_session(self, session_address: str) -> None:
        """The cluster manager answers at another address now: the task gets it."""
        self._session_address = session_address
        self._write_task_file()

    async def _launch(self, start: TaskStart) -> None:
        paths = TaskPaths(start.home)
        key, placement = self._order.key, self._placement
        log = paths.log(key, placement.job, placement.task)
        log.parent.mkdir(parents=True, exist_ok=True)
        paths.checkpoint_directory(key.workload).mkdir(parents=True, exist_ok=True)
        self._write_task_file()
        entry_point = next(job.entry_point for job in self._order.specification.jobs if job.name == placement.job)
        launch: task_reaper.Launch = {
            "arguments": arguments_of(entry_point),
            "environment": task_environment(
                self._order,
                placement,
                paths=paths,
                session_address=start.session_address,
                rendezvous=start.rendezvous,
                inherited=os.environ,
                program_directory=Path(sys.executable).parent,
            ),
            "directory": str(start.working_directory),
            "log": str(log),
        }
        self._reaper = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(Path(task_reaper.__file__))),
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,
        )
        # Whatever it starts is limited with it.
        self._group = control_group(quote(self._name, safe=""))
        self._limit()
        self._command(json.dumps(launch).encode() + b"\n")
        answer = await self._answer()
        if "process_id" not in answer:
            await self._ended(COULD_NOT_START, f"could not start: {answer.get('failure', 'its reaper was killed')}")
            return
        self._process_id = int(answer["process_id"])
        await self._tell(replace(self._report, state=RunnerState.RUNNING, started_s=start.started_s))
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        answer = await self._answer()
        if "exit_code" in answer:
            await self._ended(int(answer["exit_code"]), "")
            return
        # The reaper was killed; the kernel has killed the main process, this ends what it had started.
        with suppress(ProcessLookupError):
            os.killpg(self._process_id, signal.SIGKILL)
        await self._ended(-signal.SIGKILL, "the process that watched over it was killed")

    async def _ended(self, exit_code: int | None, failure: str) -> None:
        for timer in (self._kill, self._not_allowed):
            if timer is not None:
                timer.cancel()
        asked_to_stop = self._report.stop_cause is not None
        ended = replace(
            self._report,
            state=RunnerState.ENDED,
            exit_code=exit_code,
            failure=failure,
            stopped_early=asked_to_stop and not (exit_code == 0 and self._overlooked_the_stop()),
            ended_real_s=time.time(),
        )
        if self._group is not None:
            # What still runs of the task is being killed, and the folder stays until it is asked for again.
            with suppress(OSError):
                self._group.remove()
        await self._tell(ended)

    def _overlooked_the_stop(self) -> bool:
        """True when the program uses the training library and came to its end before it was asked to stop."""
        if self._paths is None:
            return False
        directory = self._paths.task_directory(self._order.key, self._placement.job, self._placement.task)
        return (directory / SESSION_OPENED_MARK).exists() and not (directory / STOP_SEEN_MARK).exists()

    async def _tell(self, report: RunnerReport) -> None:
        async with self._changed:
            self._report = replace(report, version=self._report.version + 1)
            self._changed.notify_all()

    async def _answer(self) -> dict[str, str | int]:
        """The next line from the reaper; empty when it is gone."""
        if self._reaper is None or self._reaper.stdout is None:
            return {}
        line = await self._reaper.stdout.readline()
        answer: dict[str, str | int] = json.loads(line) if line else {}
        return answer

    def _command(self, line: bytes) -> None:
        if self._reaper is not None and self._reaper.stdin is not None and not self._reaper.stdin.is_closing():
            self._reaper.stdin.write(line)

    @property
    def _name(self) -> str:
        return f"{self._order.key.workload}/{self._order.key.attempt}/{self._placement.job}/{self._placement.task}"

    def _limit(self) -> None:
        """Everything that the task has started, or will start, is kept to the CPUs and, where that is possible, the memory that
        it has now."""
        if self._reaper is None or self._report.state is RunnerState.ENDED:
            return
        limit_cpus(self._reaper.pid, self._placement.millicpus, self._name)
        if self._group is not None:
            try:
                self._group.limit(self._placement.millicpus, self._placement.mebibytes)
                self._group.add(self._reaper.pid)
            except OSError as error:
                _log.warning("a task has no control group", task=self._name, error=str(error))
                self._group = None

    def _write_task_file(self) -> None:
        if self._paths is None:
            return
        placement = self._placement
        directory = self._paths.task_directory(self._order.key, placement.job, placement.task)
        content = task_file(self._order, placement, self._session_address)
        write_whole(directory / TASK_FILE_NAME, json.dumps(content))


def _address_of_this_machine() -> str:
    """Under which the other Ray nodes know this one."""
    own = ray.get_runtime_context().get_node_id()
    nodes = ray.nodes()  # type: ignore[no-untyped-call]  # Ray's own
    return str(next(node["NodeManagerAddress"] for node in nodes if node["NodeID"] == own))
