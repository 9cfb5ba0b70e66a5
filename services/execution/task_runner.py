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
import threading
import time
from asyncio.subprocess import Process
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import ray
import structlog

from domain.placement import TaskPlacement
from domain.workload import JobSpecification
from services.execution import task_reaper
from services.execution.control_group import ControlGroup, control_group
from services.execution.cpu_affinity import limit_cpus
from services.execution.environment_preparation import BUILD_TIMEOUT_S, EnvironmentNotBuilt, EnvironmentPreparation
from services.execution.executor import AttemptOrder
from services.execution.left_behind import StillThere, adopt_orphans, children, end_orphans
from services.execution.memory_watch import MemoryEnd, MemoryWatch
from services.execution.reaper_process import answer_of_reaper, start_reaper
from services.execution.runner_messages import (
    COULD_NOT_START,
    RunnerDescription,
    RunnerReport,
    RunnerState,
    StopCause,
    TaskStart,
)
from services.execution.session_endpoint import CommandPlace
from services.execution.session_frames import SessionDoor, SessionPurpose, SessionRefused
from services.execution.settling import make_way
from services.execution.task_copies import LONGEST_LAST_UPLOAD_S, CopiedTask, TaskCopies
from services.execution.task_environment import Rendezvous, task_file
from services.execution.task_journal import TaskJournal
from services.execution.task_launch import TaskPlace
from services.execution.task_mark import TaskMark
from services.execution.task_paths import (
    COMMANDS_FILE_NAME,
    SESSION_OPENED_MARK,
    STOP_SEEN_MARK,
    TASK_FILE_NAME,
    TaskPaths,
    write_whole,
)
from services.execution.task_sessions import TaskSessions
from services.execution.task_user import UserImpossible
from services.execution.working_directory import (
    FOLDER_VARIABLE,
    NotPrepared,
    Unprepared,
    WorkingDirectory,
)
from services.oom_score import RUNNER_SCORE, lower_own_score
from services.storage.store_urls import StoreUrls
from services.storage.stored_files import GivenUp

_NOT_WAITED_FOR = Unprepared("it was asked to stop before its files were there", machine_lost=False)

_log = structlog.get_logger(__name__)


class TaskRunner:
    """One task, which ends by itself when it is not allowed to run on in time. Every method may be repeated."""

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
        self._memory: MemoryWatch | None = None
        runtime = self._job.runtime
        self._preparation = (
            EnvironmentPreparation(runtime, f"{order.key.workload}/{order.key.attempt}") if runtime else None
        )
        self._journal: TaskJournal | None = None
        self._children_before: frozenset[int] = frozenset()
        """Of this process, without those of the task."""
        self._place: CommandPlace | None = None
        self._sessions: TaskSessions | None = None
        self._working_directory: WorkingDirectory | None = None
        self._fetching: asyncio.Future[Unprepared | None] | None = None
        self._copies: TaskCopies | None = None
        self._given_up = asyncio.Event()
        """Nobody waits for its files any more: it was asked to stop."""
        self._abandoned = threading.Event()
        """The same, for the thread that fetches them."""

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

    async def fetch_files(self, home: Path, stores: StoreUrls) -> Unprepared | None:
        """Fetches the files that the task begins with, and the newest checkpoint, or waits until that is done; why it cannot be. Stopping
        the task ends the wait."""
        if self._fetching is None:
            folder = Path(os.environ.get(FOLDER_VARIABLE) or TaskPaths(home).working_directories)
            self._working_directory = WorkingDirectory(folder, self._order.key, self._placement.machine)
            task = CopiedTask(self._order, self._placement, TaskPaths(home), stores)
            self._copies = TaskCopies(task, self._saved)
            fetching = asyncio.to_thread(_fetched, self._working_directory, self._copies, task, self._abandoned)
            self._fetching = asyncio.ensure_future(fetching)
        stopped = asyncio.ensure_future(self._given_up.wait())
        either: set[asyncio.Future[Unprepared | None] | asyncio.Future[Literal[True]]] = {self._fetching, stopped}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return self._fetching.result() if self._fetching.done() else _NOT_WAITED_FOR
        finally:
            stopped.cancel()

    async def prepare(self, home: Path, within_s: float = BUILD_TIMEOUT_S) -> RunnerReport:
        """Gets ready what the task runs in. The task has failed if that is not possible, or not in that time (real seconds)."""
        if self._preparation is not None and self._report.state is RunnerState.READY:
            try:
                await self._preparation.ready(home, self._log(TaskPaths(home)), within_s)
            except EnvironmentNotBuilt as error:
                async with self._one_at_a_time:
                    if self._report.state is RunnerState.READY:
                        await self._ended(COULD_NOT_START, str(error))
        return self._report

    async def start(self, start: TaskStart) -> RunnerReport:
        """Starts the task's process, unless it was started or stopped before. Answers how it went."""
        await self.prepare(start.home)
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
                    unprepared = await self.fetch_files(start.home, start.stores)
                    if self._given_up.is_set():
                        # Whoever stops it waits to do so.
                        return self._report
                    if unprepared is not None and unprepared.machine_lost:
                        await self._tell(replace(self._report, unprepared=unprepared.sentence))
                        await self._ended(None, "")
                    elif unprepared is not None:
                        await self._ended(COULD_NOT_START, f"could not start: {unprepared.sentence}")
                    else:
                        await self._launch(start)
                except StillThere as there:
                    await self._tell(replace(self._report, unprepared=str(there)))
                    await self._ended(None, "")
                except (OSError, UserImpossible) as error:
                    await self._ended(COULD_NOT_START, f"could not start: {error}")
        return self._report

    async def stop(self, grace_s: float, cause: StopCause) -> None:
        """SIGTERM now and SIGKILL after the grace (in real seconds); repeating can only shorten the grace."""
        self._given_up.set()
        self._abandoned.set()
        async with self._one_at_a_time:
            if self._report.state is RunnerState.ENDED:
                return
            if self._copies is not None and self._copies.finishing:
                # It has ended by itself.
                self._copies.finish_within(grace_s)
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

    async def open_session(self, purpose: SessionPurpose) -> SessionDoor | SessionRefused:
        """Where a command beside the task, or a connection to a port of its machine, waits for whoever asked."""
        host = await asyncio.to_thread(_address_of_this_machine)
        if self._place is None or self._report.state is not RunnerState.RUNNING:
            return SessionRefused("its process does not run")
        if self._sessions is None:
            self._sessions = TaskSessions(host, self._place, self._note_commands)
        return await self._sessions.open(purpose)

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
        directory = self._working_directory.path if self._working_directory is not None else start.home
        paths = TaskPaths(start.home)
        log = self._log(paths)
        self._write_task_file()
        place = TaskPlace(self._order, self._job, self._placement, self._name, directory, log)
        launched = await place.launch(start, self._preparation)
        launch = launched.launch
        user = None if launched.user is None else launched.user.launched()
        beside, environment = tuple(launched.program.beside), launched.program.environment
        self._place = CommandPlace(directory, environment, beside, self._limit_beside, None if beside else user)
        mark = TaskMark.of(self._order.key, self._placement)
        # What an older attempt has left here, however it came to that, ends before this one begins.
        await asyncio.to_thread(make_way, start.home, mark)
        self._journal = TaskJournal.of(paths, self._order, self._placement)
        await asyncio.to_thread(self._journal.begin, start.started_s, launched.program.afterwards)
        self._children_before = children()
        self._reaper = await start_reaper()
        # Whatever it starts is limited with it.
        self._memory = MemoryWatch(start.home, start.memory, self._name, self._job.resources, log)
        self._group = control_group(mark.group_name(start.home))
        self._limit()
        self._command(json.dumps(launch).encode() + b"\n")
        answer = await answer_of_reaper(self._reaper)
        if "process_id" not in answer:
            await self._ended(COULD_NOT_START, f"could not start: {answer.get('failure', 'its reaper was killed')}")
            return
        self._process_id = int(answer["process_id"])
        self._memory.begin(self._reaper.pid, self._process_id, self._placement, self._group)
        await self._tell(replace(self._report, state=RunnerState.RUNNING, started_s=start.started_s))
        if self._copies is not None:
            self._copies.begin()
        self._watching = asyncio.create_task(self._watch(self._reaper, launch))

    async def _watch(self, reaper: Process, launch: task_reaper.Launch) -> None:
        answer = await answer_of_reaper(reaper)
        if "exit_code" in answer:
            await self._store_the_rest(in_order=int(answer["exit_code"]) >= 0)
            await self._ended(int(answer["exit_code"]), "")
            return
        # The reaper was killed, or its guard: the other one has ended what the task had started. This ends what is left of it when
        # both were.
        if self._sessions is not None:
            await self._sessions.end_all("the task has ended")
        if self._group is not None:
            with suppress(OSError):
                self._group.kill()
        await asyncio.to_thread(end_orphans, self._children_before)
        # The next attempt must not meet what its guard is just about to end.
        await asyncio.to_thread(task_reaper.run_afterwards, launch)
        await self._store_the_rest(in_order=False)
        await self._ended(-signal.SIGKILL, "the process that watched over it was killed")

    async def _store_the_rest(self, *, in_order: bool) -> None:
        """What the task has left goes to the stores, within the grace if it was asked to stop."""
        if self._copies is not None:
            until_s = None if self._kill is None else self._kill.when() - asyncio.get_running_loop().time()
            within_s = LONGEST_LAST_UPLOAD_S if until_s is None else until_s
            await self._copies.finish(in_order=in_order, within_s=within_s)

    async def _saved(self, progress: float) -> None:
        if progress > self._report.saved_progress:
            await self._tell(replace(self._report, saved_progress=progress))

    async def _ended(self, exit_code: int | None, failure: str) -> None:
        for timer in (self._kill, self._not_allowed):
            if timer is not None:
                timer.cancel()
        if self._preparation is not None:
            await self._preparation.close()
        if self._sessions is not None:
            await self._sessions.end_all("the task has ended")
        asked_to_stop = self._report.stop_cause is not None
        memory_end = MemoryEnd()
        if self._memory is not None:
            memory_end = await self._memory.end(exit_code, self._group)
        ended = replace(
            self._report,
            state=RunnerState.ENDED,
            exit_code=exit_code,
            failure=failure or ("" if asked_to_stop else memory_end.maybe),
            out_of_memory=memory_end.out_of_memory,
            stopped_early=asked_to_stop and not (exit_code == 0 and self._overlooked_the_stop()),
            ended_real_s=time.time(),
        )
        if self._group is not None:
            # What commands beside it have left ends with it. A folder that cannot be removed is, when the workload runs here again.
            with suppress(OSError):
                await asyncio.to_thread(self._group.end)
        await self._release_working_directory()
        await self._keep(ended)
        await self._tell(ended)

    async def _keep(self, ended: RunnerReport) -> None:
        """On the disk, before anybody is told: what they know may be lost with them."""
        if self._journal is None:
            return
        try:
            await asyncio.to_thread(self._journal.end, replace(ended, version=self._report.version + 1))
        except OSError as error:
            _log.error("how a task ended cannot be kept", task=self._name, error=str(error))

    async def _release_working_directory(self) -> None:
        """It goes with the last task of the attempt on this machine, before anybody hears that the task has ended: then nobody
        waits for this process any more."""
        directory, fetching = self._working_directory, self._fetching
        if directory is None or fetching is None:
            return
        if fetching.done():
            await asyncio.to_thread(directory.release)
        else:
            # The store does not answer. Once it does, what has come of it goes.
            fetching.add_done_callback(lambda _: directory.release())

    def _overlooked_the_stop(self) -> bool:
        """True when the program uses the training library and came to its end before it was asked to stop."""
        if self._paths is None:
            return False
        directory = self._task_directory(self._paths)
        return (directory / SESSION_OPENED_MARK).exists() and not (directory / STOP_SEEN_MARK).exists()

    async def _tell(self, report: RunnerReport) -> None:
        async with self._changed:
            # It may have been told while this one waited.
            saved_progress = max(report.saved_progress, self._report.saved_progress)
            self._report = replace(report, version=self._report.version + 1, saved_progress=saved_progress)
            self._changed.notify_all()

    def _command(self, line: bytes) -> None:
        if self._reaper is not None and self._reaper.stdin is not None and not self._reaper.stdin.is_closing():
            self._reaper.stdin.write(line)

    @property
    def _job(self) -> JobSpecification:
        return next(job for job in self._order.specification.jobs if job.name == self._placement.job)

    def _log(self, paths: TaskPaths) -> Path:
        return paths.log(self._order.key, self._placement.job, self._placement.task)

    @property
    def _name(self) -> str:
        return f"{self._order.key.workload}/{self._order.key.attempt}/{self._placement.job}/{self._placement.task}"

    def _limit(self) -> None:
        """Everything that the task has started, or will start, is kept to the CPUs and, where that is possible, the memory that
        it has now."""
        if self._reaper is None or self._report.state is RunnerState.ENDED:
            return
        beside = self._sessions.process_ids if self._sessions is not None else []
        for process_id in (self._reaper.pid, *beside):
            self._limit_process(process_id)

    def _limit_beside(self, process_id: int) -> None:
        """The reaper of a command beside the task: what it starts uses what the task has."""
        if self._memory is not None:
            self._memory.count_beside(process_id)
        self._limit_process(process_id)

    def _limit_process(self, process_id: int) -> None:
        limit_cpus(process_id, self._placement.millicpus, self._name)
        if self._group is not None:
            try:
                self._group.add(process_id)
            except OSError as error:
                _log.warning("a task has no control group", task=self._name, error=str(error))
                self._group = None
        if self._group is not None:
            try:
                limit_bytes = None if self._memory is None else self._memory.limit_bytes(self._placement)
                self._group.limit(self._placement.millicpus, limit_bytes)
            except OSError as error:
                _log.warning("the control group of a task has no limits", task=self._name, error=str(error))
                self._group = replace(self._group, limited=False)
        if self._memory is not None:
            self._memory.limit(self._placement, self._group)

    def _note_commands(self, count: int) -> None:
        if self._paths is not None:
            write_whole(self._task_directory(self._paths) / COMMANDS_FILE_NAME, f"{count}\n")

    def _write_task_file(self) -> None:
        if self._paths is None:
            return
        content = task_file(self._order, self._placement, self._session_address)
        write_whole(self._task_directory(self._paths) / TASK_FILE_NAME, json.dumps(content))

    def _task_directory(self, paths: TaskPaths) -> Path:
        return paths.task_directory(self._order.key, self._placement.job, self._placement.task)


class TaskRunnerActor(TaskRunner):
    """A TaskRunner with a process to itself, which RunnerPool makes a Ray actor of."""

    def __init__(self, order: AttemptOrder, placement: TaskPlacement, placement_group: str) -> None:
        lower_own_score(RUNNER_SCORE)
        adopt_orphans()
        super().__init__(order, placement, placement_group)


def _fetched(
    directory: WorkingDirectory, copies: TaskCopies, task: CopiedTask, given_up: threading.Event
) -> Unprepared | None:
    try:
        directory.prepare(task.order.specification.package, task.stores.packages, given_up)
        copies.prepare(given_up)
    except NotPrepared as error:
        return error.why
    except GivenUp:
        return _NOT_WAITED_FOR
    return None


def _address_of_this_machine() -> str:
    """Under which the other Ray nodes know this one."""
    own = ray.get_runtime_context().get_node_id()
    nodes = ray.nodes()  # type: ignore[no-untyped-call]  # Ray's own
    return str(next(node["NodeManagerAddress"] for node in nodes if node["NodeID"] == own))
