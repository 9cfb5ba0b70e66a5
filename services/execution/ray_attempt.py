"""One attempt on Ray, from its order to its end: reserves its gang, waits for the go, starts, watches, reports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import structlog

from cluster_manager.attempt_run.emulated_work import EmulatedJob, emulated_work
from domain.identifiers import JobName
from domain.placement import AttemptKey, TaskPlacement
from domain.workload import Emulated
from services.clock import ServiceClock
from services.execution.background_tasks import BackgroundTasks
from services.execution.environment_preparation import BUILD_TIMEOUT_S
from services.execution.executor import (
    AttemptOrder,
    AttemptPhase,
    AttemptStatus,
    ImpossibleOrder,
    JobRendezvous,
    StopAdvice,
    TaskReference,
    TaskReport,
)
from services.execution.gang import Gang, GangLimits, GangStart
from services.execution.gang_outcome import ASKED_TO_STOP, GangOutcome, outcome_of, without_files
from services.execution.measurements import measurements_of
from services.execution.memory_watch import MemorySettings
from services.execution.order_checks import check_order
from services.execution.runner_messages import RunnerDescription, StopCause
from services.execution.runner_pool import RunnerHandle, RunnerLost, RunnerPool
from services.execution.saved_progress import saved_progress
from services.execution.task_logs import TaskLogs
from services.execution.task_paths import TaskPaths
from services.execution.task_user import TaskSettings
from services.progress_pace import TOLD
from services.security.secret_sessions import SessionTokens
from services.storage.storage_folder import StoreFailed
from services.storage.store_urls import StoreUrls

_log = structlog.get_logger(__name__)

ResultT = TypeVar("ResultT")

_BUILDS_END_S = 10.0
"""What is being built is waited for so long when the attempt is asked to stop."""


@dataclass(frozen=True, slots=True)
class RayExecutorConfiguration:
    """`home` is the same path on every machine of the cluster, and the same folder where checkpoints and logs have no store. Times are
    real seconds."""

    home: Path
    stores: StoreUrls
    reservation_timeout_s: float = 180.0
    failure_grace_s: float = 5.0
    machine_interval_s: float = 2.0
    allow_interval_s: float = 30.0
    """So often tasks are told how long they may run on."""
    first_look_s: float = 5.0
    """So long Ray is waited for to say which machines there are, before anything else is answered."""
    memory: MemorySettings = MemorySettings()
    build_timeout_s: float = BUILD_TIMEOUT_S
    """So long the environment of a task may be built."""
    tasks: TaskSettings = TaskSettings()
    tokens: SessionTokens = field(default_factory=SessionTokens)
    """Of those with which tasks report; managers that come later must have the same."""
    session_authority: Callable[[], str] = lambda: ""
    """PEM, by which tasks that start now know their cluster manager; empty: they call it in plain text."""


@dataclass(frozen=True, slots=True)
class AttemptSurroundings:
    """What all attempts of an executor share."""

    pool: RunnerPool
    clock: ServiceClock
    configuration: RayExecutorConfiguration
    session_address: str
    publish: Callable[[AttemptStatus], None]
    running: Callable[[], int]
    """How many attempts the executor knows: the more, the less often each tells of mere progress."""
    allowed_s: Callable[[], float]

    @property
    def limits(self) -> GangLimits:
        configuration = self.configuration
        return GangLimits(
            configuration.reservation_timeout_s,
            configuration.failure_grace_s,
            self.allowed_s,
            configuration.build_timeout_s,
        )


class _Over(Exception):
    """The attempt ends before its tasks were started."""

    def __init__(self, outcome: GangOutcome) -> None:
        self.outcome = outcome
        super().__init__(outcome.reason)


class RayAttempt:
    """Supervises one attempt. It is quiet (`published` is False) until its tasks have their places, then held or running."""

    def __init__(self, order: AttemptOrder, surroundings: AttemptSurroundings) -> None:
        self.key: AttemptKey = order.key
        self.published = False
        self.began_without_token = False
        """It was started by the version before: its tasks have nothing to show."""
        self.ended = asyncio.Event()
        self.status = AttemptStatus(
            order.key,
            AttemptPhase.HELD,
            surroundings.clock.now(),
            progress=order.progress,
            checkpoint_progress=order.progress,
        )
        self._order = order
        self._surroundings = surroundings
        self._paths = TaskPaths(surroundings.configuration.home)
        self._gang = Gang(
            order, surroundings.pool, surroundings.limits, self._gang_broke, self._publish, self._note_stored
        )
        self._go = asyncio.Event()
        if not order.hold:
            self._go.set()
        self._stop_asked = asyncio.Event()
        self._stop_reason = ""
        self._stop_deadline_s = 0.0
        self._started = False
        self._allowing = False
        self._reported: dict[tuple[JobName, int], TaskReport] = {}
        self._progress_told_s = 0.0
        self._supervisor: asyncio.Task[None] | None = None
        self._resizes = BackgroundTasks()
        self._resizing_to = 0
        """The newest revision that it is being changed to, or was, since it is supervised here."""

    @staticmethod
    def adopted(
        found: Iterable[tuple[RunnerHandle, RunnerDescription]], surroundings: AttemptSurroundings
    ) -> RayAttempt | None:
        """The attempt that these runners belong to; None when its gang was never whole and never started."""
        found = list(found)
        attempt = RayAttempt(found[0][1].order, surroundings)
        pool, limits = surroundings.pool, surroundings.limits
        gang = Gang.adopted(found, pool, limits, attempt._gang_broke, attempt._publish, attempt._note_stored)
        if gang.untouched and not gang.whole:
            return None
        attempt._gang = gang
        attempt._order = gang.order
        attempt.began_without_token = not all(getattr(one, "gives_tokens", False) for _, one in found)
        attempt._started = not gang.untouched
        if gang.asked_to_stop:
            # The runners remember until when; the specification says the most it can be.
            attempt._stop_reason = ASKED_TO_STOP
            attempt._stop_deadline_s = time.monotonic() + gang.order.specification.stop_grace_s
            attempt._stop_asked.set()
        return attempt

    def begin(self, older: RayAttempt | None) -> None:
        """Sets out to run it, once the older attempt of its workload has ended."""
        self._supervisor = asyncio.create_task(self._supervise(self._run(older)))

    async def resume(self) -> None:
        """Goes on with an adopted attempt; when this returns its status is right, also when it has ended."""
        started_s = self._gang.started_s
        if self._surroundings.configuration.stores.checkpoints:
            # Its runners know. Many attempts are adopted one after the other: a store that is slow to answer must not hold them up.
            self._note(self._gang.saved_progress)
        else:
            await self._note_checkpoint()
        if self._started:
            self._change(AttemptPhase.RUNNING, started_s=started_s)
            if self._stop_asked.is_set():
                self._change(AttemptPhase.STOPPING, reason=self._stop_reason)
        over = self._gang.idle
        self._gang.watch_adopted(self._gang_start(started_s))
        rest = self._watch_until_over(started_s) if self._started else self._start_when_released()
        self._supervisor = asyncio.create_task(self._supervise(rest))
        if over and self._emulated_done_s(started_s) <= started_s:
            await self.ended.wait()

    def resume_emulated(self, started_s: float) -> None:
        """Goes on with an attempt of which nothing but emulated jobs are here."""
        self._started = True
        self._supervisor = asyncio.create_task(self._supervise(self._run_emulated(started_s)))

    def release_hold(self, rendezvous: tuple[JobRendezvous, ...]) -> None:
        """The rest of the gang is ready too, and it is known where those jobs meet whose first task is not here."""
        if not self._go.is_set():
            self._gang.learn_rendezvous(rendezvous)
        self._go.set()

    def stop(self, grace_s: float, reason: str = ASKED_TO_STOP) -> None:
        """Asks all tasks to save and end; repeating can only shorten the grace."""
        if self.status.ended:
            return
        deadline_s = time.monotonic() + max(0.0, grace_s)
        if not self._stop_asked.is_set():
            self._stop_reason, self._stop_deadline_s = reason, deadline_s
            self._stop_asked.set()
        self._stop_deadline_s = min(self._stop_deadline_s, deadline_s)
        if self._started:
            self._stop_gang()

    def check_resize(
        self, placements: tuple[TaskPlacement, ...], revision: int, work_rate: float
    ) -> AttemptOrder | None:
        """The order with these placements instead; None when it is carried out, or about to be, already.

        Raises ImpossibleOrder when a running gang cannot become that.
        """
        if revision < self._order.revision or revision <= max(self.status.revision, self._resizing_to):
            return None
        order = replace(self._order, placements=placements, revision=revision, work_rate=work_rate)
        check_order(order, may_leave=True)
        old = {(placement.job, placement.task): placement for placement in self._order.placements}
        new = {(placement.job, placement.task): placement for placement in placements}
        base = {job.name: job.tasks for job in order.specification.jobs}
        for (job, task), placement in old.items():
            kept = new.get((job, task))
            if kept is None and task < base[job]:
                raise ImpossibleOrder(self.key, f"task {task} of job {job} is a base task: it cannot be taken away")
            if kept is not None and (kept.machine, kept.gpu_indices) != (placement.machine, placement.gpu_indices):
                raise ImpossibleOrder(self.key, f"task {task} of job {job} runs: it cannot move, nor change its GPUs")
        return order

    def resize(self, order: AttemptOrder) -> None:
        """Changes the gang in the background; the status is published when it is done."""
        self._order = order
        self._resizing_to = order.revision
        placed = {(placement.job, placement.task) for placement in order.placements}
        self._reported = {task: report for task, report in self._reported.items() if task in placed}
        self._resizes.spawn(self._resize(order))

    def heartbeat(self, task: TaskReference, report: TaskReport) -> StopAdvice:
        """Notes how far a task is; says whether it should stop, and the real seconds left for that."""
        self._reported[task.job, task.task] = report
        farthest, speed, *_ = max(self._reported.values())
        self.status = replace(self.status, progress=farthest, throughput=speed)
        if time.monotonic() - self._progress_told_s >= TOLD.interval_s(self._surroundings.running()):
            self._publish()
        if not self._stop_asked.is_set():
            return StopAdvice(False, 0.0)
        return StopAdvice(True, max(0.0, self._stop_deadline_s - time.monotonic()))

    def _note_stored(self) -> None:
        self.checkpoint_saved(self._gang.saved_progress)

    def checkpoint_saved(self, progress: float) -> None:
        """Notes a checkpoint from which the next attempt can go on: it is published at once."""
        if progress > self.status.checkpoint_progress:
            self.status = replace(self.status, checkpoint_progress=progress)
            self._publish()

    async def allow(self) -> None:
        """Tells its tasks how long they may run on; returns at once when they are just being told."""
        if self._started and not self.status.ended and not self._allowing:
            self._allowing = True
            try:
                await self._gang.allow()
            finally:
                self._allowing = False

    @property
    def order(self) -> AttemptOrder:
        return self._order

    def runner_of(self, task: TaskReference) -> RunnerHandle | None:
        """None where the task is not there any more, or not yet."""
        return self._gang.runner_of(task.job, task.task)

    def close(self) -> None:
        """Lets go of it; its tasks go on."""
        self._gang.close()
        self._resizes.close()
        if self._supervisor is not None:
            self._supervisor.cancel()

    async def _supervise(self, work: Awaitable[GangOutcome]) -> None:
        try:
            outcome = await work
        except _Over as over:
            await self._surroundings.pool.remove_attempts([self.key])
            outcome = over.outcome
        except Exception as error:  # noqa: BLE001  # whatever it is, the attempt must end and its processes must not go on
            _log.exception("supervising an attempt failed", workload=self.key.workload, attempt=self.key.attempt)
            await self._surroundings.pool.remove_attempts([self.key])
            outcome = GangOutcome(AttemptPhase.LOST, f"it cannot be supervised: {str(error).partition(chr(10))[0]}")
        # 7. Tell: its end, and the checkpoint that is really there.
        await self._note_checkpoint()
        self._gang.close()
        self.status = replace(self.status, exit_code=outcome.exit_code)
        self._change(outcome.phase, reason=outcome.reason)
        self.ended.set()

    async def _run(self, older: RayAttempt | None) -> GangOutcome:
        # 1. The fence: whatever the older attempt holds or writes must be over.
        if older is not None:
            await self._unless_stopped(older.ended.wait())
        # 2. Places for all tasks, together.
        try:
            await self._unless_stopped(self._gang.reserve())
        except RunnerLost as lost:
            raise _Over(GangOutcome(AttemptPhase.LOST, str(lost))) from lost
        return await self._start_when_released()

    async def _start_when_released(self) -> GangOutcome:
        # 3. What its tasks begin with on every machine: their files, and what they run in, which may have to be built first.
        await self._fetch_files()
        if self._gang.prepares and not await self._prepare():
            return await self._watch_until_over(0.0)
        # 4. The go: of an attempt with jobs in other clusters those must have their places too.
        if not self._go.is_set():
            try:
                rendezvous = await self._unless_stopped(self._gang.rendezvous())
            except RunnerLost as lost:
                raise _Over(GangOutcome(AttemptPhase.LOST, str(lost))) from lost
            self.status = replace(self.status, rendezvous=rendezvous)
            self._change(AttemptPhase.HELD)
            await self._unless_stopped(self._first_of(self._go.wait(), self._gang.broken.wait()))
        # 5. All tasks start.
        started_s = self._surroundings.clock.now()
        whole = await self._gang.start(self._gang_start(started_s))
        self._started = True
        if self._stop_asked.is_set():
            self._stop_gang()
        elif whole:
            self._change(AttemptPhase.RUNNING, started_s=started_s)
        return await self._watch_until_over(started_s)

    async def _prepare(self) -> bool:
        """Gets ready what the tasks run in; False when that is not possible."""
        try:
            return await self._unless_stopped(self._gang.prepare(self._surroundings.configuration.home))
        except _Over:
            # Its runners end what they build. Killed, they would leave programs behind.
            self._gang.stop(0.0, StopCause.ASKED)
            await self._first_of(self._gang.all_over.wait(), asyncio.sleep(_BUILDS_END_S))
            raise

    def _gang_start(self, started_s: float) -> GangStart:
        configuration = self._surroundings.configuration
        address = self._surroundings.session_address
        return GangStart(
            address,
            started_s,
            configuration.home,
            configuration.stores,
            configuration.memory,
            configuration.tasks,
            configuration.tokens.token_of(self.key),
            configuration.session_authority(),
        )

    async def _fetch_files(self) -> None:
        configuration = self._surroundings.configuration
        try:
            found = await self._unless_stopped(self._gang.fetch_files(configuration.home, configuration.stores))
        except RunnerLost as lost:
            raise _Over(GangOutcome(AttemptPhase.LOST, str(lost))) from lost
        if found is not None:
            placement, why = found
            phase = AttemptPhase.LOST if why.machine_lost else AttemptPhase.FAILED
            raise _Over(GangOutcome(phase, without_files(placement, why.sentence)))

    async def _run_emulated(self, started_s: float) -> GangOutcome:
        await self._gang.reserve()
        self._change(AttemptPhase.RUNNING, started_s=started_s)
        return await self._watch_until_over(started_s)

    async def _watch_until_over(self, started_s: float) -> GangOutcome:
        # 6. Watch until no task is left.
        await self._gang.all_over.wait()
        all_work_done = True
        outcome = outcome_of(self._gang.ends(), all_work_done=True, stop_reason=self._stop_reason)
        if outcome.phase is AttemptPhase.COMPLETED:
            all_work_done = await self._emulated_jobs_end(started_s)
            outcome = outcome_of(self._gang.ends(), all_work_done=all_work_done, stop_reason=self._stop_reason)
        if outcome.culprit is not None:
            line = await self._last_line(outcome.culprit)
            outcome = replace(outcome, reason=f"{outcome.reason}: {line}" if line else outcome.reason)
        return outcome

    async def _last_line(self, task: TaskPlacement) -> str:
        logs = TaskLogs(self._paths, self._surroundings.configuration.stores.logs)
        try:
            return await asyncio.to_thread(logs.last_line, self.key, task.job, task.task)
        except StoreFailed as error:
            _log.warning("a log cannot be read", workload=self.key.workload, error=str(error))
            return ""

    async def _emulated_jobs_end(self, started_s: float) -> bool:
        """Waits for the jobs of a mixed workload that have no processes; False when it was stopped before."""
        clock, done_s = self._surroundings.clock, self._emulated_done_s(started_s)
        while (left_s := done_s - clock.now()) > 0 and not self._stop_asked.is_set():
            await self._first_of(asyncio.sleep(clock.real_seconds(left_s)), self._stop_asked.wait())
        return left_s <= 0

    def _emulated_done_s(self, started_s: float) -> float:
        """When the emulated jobs of a mixed workload are done; at its start when there are none here.

        They begin anew in each attempt: the progress of such a workload is what its processes report.
        """
        works = [job.entry_point for job in self._order.jobs_here()]
        jobs = tuple(
            EmulatedJob(work.duration_s, work.checkpoint_interval_s) for work in works if isinstance(work, Emulated)
        )
        return emulated_work(jobs, 0.0, started_s, speed=1.0).done_s if jobs else started_s

    async def _unless_stopped(self, work: Awaitable[ResultT]) -> ResultT:
        """The result of the work; raises _Over when the attempt is asked to stop before there is one."""
        working = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stop_asked.wait())
        try:
            await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if self._stop_asked.is_set():
                raise _Over(GangOutcome(AttemptPhase.STOPPED, self._stop_reason))
            return working.result()
        finally:
            working.cancel()
            stopped.cancel()

    @staticmethod
    async def _first_of(*waits: Awaitable[object]) -> None:
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def _stop_gang(self) -> None:
        grace_s = max(0.0, self._stop_deadline_s - time.monotonic())
        self._gang.stop(grace_s, StopCause.ASKED)
        if self.status.phase is not AttemptPhase.STOPPING:
            self._change(AttemptPhase.STOPPING, reason=self._stop_reason)

    def _gang_broke(self) -> None:
        """A task failed or was lost; the gang is stopping the others."""
        if self._started:
            self._change(AttemptPhase.STOPPING, reason="one of its tasks failed or was lost")

    async def _resize(self, order: AttemptOrder) -> None:
        if await self._gang.resize(order) and not self.status.ended:
            now, progress = self._surroundings.clock.now(), self.status.progress
            self.status = replace(self.status, revision=order.revision, changed_s=now, changed_progress=progress)
            self._publish()

    async def _note_checkpoint(self) -> None:
        """What a task saved while no cluster manager could take its report."""
        configuration = self._surroundings.configuration
        try:
            progress = await saved_progress(configuration.home, configuration.stores, self.key)
        except (OSError, StoreFailed) as error:
            _log.warning("checkpoints cannot be looked at", workload=self.key.workload, error=str(error))
            progress = 0.0
        self._note(max(progress, self._gang.saved_progress))

    def _note(self, checkpoint_progress: float) -> None:
        if checkpoint_progress > self.status.checkpoint_progress:
            self.status = replace(self.status, checkpoint_progress=checkpoint_progress)

    def _change(self, phase: AttemptPhase, *, reason: str = "", started_s: float | None = None) -> None:
        ended_or_running = phase is AttemptPhase.RUNNING or phase is AttemptPhase.STOPPING
        self.status = replace(
            self.status,
            phase=phase,
            since_s=self._surroundings.clock.now() if started_s is None else started_s,
            reason=reason,
            started_s=self.status.started_s if started_s is None else started_s,
            throughput=self.status.throughput if ended_or_running else 0.0,
            # A session reports its progress now and then; what it saved, it had reached.
            progress=max(self.status.progress, self.status.checkpoint_progress),
        )
        self.published = True
        self._publish()

    def _publish(self) -> None:
        self._progress_told_s = time.monotonic()
        if self._reported:
            self.status = replace(self.status, measured=measurements_of(self._reported))
        if self.status.lost_tasks != self._gang.missing:
            self.status = replace(self.status, lost_tasks=self._gang.missing)
        if self.published:
            self._surroundings.publish(self.status)
