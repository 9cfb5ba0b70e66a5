"""Runs attempts as processes on Ray. What runs survives this executor, and is adopted by the next one."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import structlog

from domain.identifiers import AttemptNumber, ClusterId, MachineId, WorkloadId
from domain.placement import AttemptKey, TaskPlacement
from services.clock import ServiceClock
from services.execution.attempt_register import AttemptRegister
from services.execution.attempt_sessions import AttemptSessions, chosen_task
from services.execution.background_tasks import BackgroundTasks
from services.execution.change_feed import ChangeFeed, ChangeReader
from services.execution.executor import (
    AttemptOrder,
    AttemptPhase,
    AttemptStatus,
    Change,
    ImpossibleOrder,
    LogRequest,
    MachineStatus,
    SessionImpossible,
    SessionTarget,
    StaleOrder,
    StopAdvice,
    TaskLogChunk,
    TaskReference,
    TaskReport,
    UnknownAttempt,
    slot_of_change,
    sorted_by_key,
)
from services.execution.folder_removal import remove_folder
from services.execution.gang import processes_of
from services.execution.order_checks import check_order
from services.execution.ray_attempt import AttemptSurroundings, RayAttempt, RayExecutorConfiguration
from services.execution.runner_messages import RunnerDescription
from services.execution.runner_pool import RunnerHandle, RunnerLost, RunnerPool
from services.execution.saved_progress import saved_progress
from services.execution.session_frames import SessionPurpose
from services.execution.session_link import SessionLink
from services.execution.settling import NOT_FOUND, past_outcome
from services.execution.task_logs import TaskLogs
from services.execution.task_paths import TaskPaths
from services.execution.working_directory import remove_unused
from services.storage.storage_folder import StoreFailed

_log = structlog.get_logger(__name__)

_DESCRIBE_TIMEOUT_S = 20.0
"""A runner that does not say within this time (real seconds) what it runs is taken for lost."""

_NO_OFFER = "no living Ray node offers it"


class RayExecutor:
    """Graces and timeouts are real seconds here, however fast the clock runs: a process takes the time it takes.

    Ray must be initialised in this process before `start`.
    """

    def __init__(
        self,
        cluster: ClusterId,
        machines: Sequence[MachineId],
        clock: ServiceClock,
        configuration: RayExecutorConfiguration,
        allowed_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """`allowed_s`: how long tasks may run on from now if nothing more is heard of the cluster's lease."""
        self.feed: ChangeFeed[Change] = ChangeFeed(slot_of_change)
        self._clock = clock
        self._configuration = configuration
        self._allowed_s = allowed_s
        self._paths = TaskPaths(configuration.home)
        self._logs = TaskLogs(self._paths, configuration.stores.logs)
        self._pool = RunnerPool(cluster, configuration.home)
        self._register = AttemptRegister()
        self._attempts: dict[AttemptKey, RayAttempt] = {}
        self._tombstones: dict[AttemptKey, AttemptStatus] = {}
        self._live: dict[WorkloadId, AttemptKey] = {}
        self._machines: dict[MachineId, MachineStatus | None] = dict.fromkeys(sorted(machines))
        """None: Ray has not answered yet since the machine is known."""
        self._sessions = AttemptSessions()
        self._session_address = ""
        self._background = BackgroundTasks()
        self._clearing = BackgroundTasks()

    async def start(self, session_address: str) -> None:
        """Adopts every attempt whose runners are found; of each workload only the newest may go on."""
        self._session_address = session_address
        # 1. Ask every runner what it runs.
        described = await asyncio.gather(*(_describe(handle) for handle in await self._pool.find()))
        found: dict[AttemptKey, list[tuple[RunnerHandle, RunnerDescription]]] = {}
        for handle, description in described:
            if description is not None:
                found.setdefault(description.order.key, []).append((handle, description))
        # 2. Adopt, oldest first; the fence stops all but the newest.
        for key in sorted(found, key=lambda key: (key.workload, key.attempt)):
            attempt = RayAttempt.adopted(found[key], self._surroundings())
            if attempt is not None:
                self._fence(key)
                self._enter(attempt)
                await attempt.resume()
        # 3. Whatever else carries this cluster's name is an orphan, and so is what runs without a runner.
        await self._pool.remove_all_but(self._attempts)
        await self._pool.end_left_behind(self._attempts)
        # 4. Tell the tasks, from now on, how long they may run on.
        self._background.spawn(self._allow_tasks())
        # 5. Keep an eye on the machines. One who waits for an answer of Ray can take orders and reports meanwhile.
        first_look = asyncio.ensure_future(self._look_at_machines())
        self._background.spawn(self._watch_machines(first_look))
        await asyncio.wait({first_look}, timeout=self._configuration.first_look_s)

    async def execute(self, order: AttemptOrder) -> None:
        key = order.key
        if key in self._tombstones:
            return
        self._register.admit(key)
        known = self._attempts.get(key)
        if known is not None:
            if not order.hold:
                known.release_hold(order.rendezvous)
            return
        older = self._fence(key)
        try:
            check_order(order)
        except ImpossibleOrder as impossible:
            self._bury(key, AttemptPhase.FAILED, str(impossible), order.progress)
            return
        if processes_of(order) and (order.started_s > 0 or self._was_begun(order)):
            # It ran here before, also where nobody could record that it was started.
            await self._bury_past(order)
            return
        attempt = RayAttempt(order, self._surroundings())
        self._enter(attempt)
        if order.started_s > 0:
            attempt.resume_emulated(order.started_s)
        else:
            attempt.begin(older)

    async def stop(self, key: AttemptKey, grace_s: float) -> None:
        attempt = self._attempts.get(key)
        if attempt is not None:
            attempt.stop(grace_s)
            return
        if key in self._tombstones:
            return
        try:
            self._register.admit(key)
        except StaleOrder:
            # Its end is published already, or it could not start any more in any case.
            return
        self._fence(key)
        self._bury(key, AttemptPhase.STOPPED, "it was not running here", 0.0)

    async def resize(
        self, key: AttemptKey, placements: tuple[TaskPlacement, ...], revision: int, work_rate: float = 1.0
    ) -> None:
        attempt = self._attempts.get(key)
        if attempt is None:
            raise UnknownAttempt(key, f"attempt {key.attempt} of {key.workload} is not known here")
        order = attempt.check_resize(placements, revision, work_rate)
        if order is not None and not attempt.status.ended:
            attempt.resize(order)

    async def forget(self, keys: Sequence[AttemptKey]) -> None:
        forgotten: list[AttemptKey] = []
        buried: list[AttemptKey] = []
        for key in keys:
            attempt = self._attempts.get(key)
            if attempt is not None and attempt.status.ended:
                del self._attempts[key]
                forgotten.append(key)
            elif self._tombstones.pop(key, None) is None:
                continue
            else:
                buried.append(key)
            self._register.forget(key)
            if self._live.get(key.workload) == key:
                del self._live[key.workload]
        if forgotten or buried:
            self._clearing.spawn(self._clear_away(forgotten, buried))

    async def set_machines(self, machines: Sequence[MachineId]) -> None:
        known = self._machines
        self._machines = {machine: known.get(machine) for machine in sorted(machines)}
        await self._look_at_machines()

    async def lose_all(self, reason: str) -> None:
        """Tasks see to that by themselves: here it is done for those that a manager who is still there can stop sooner."""
        for attempt in self._attempts.values():
            attempt.stop(0.0, reason)

    def statuses(self) -> tuple[AttemptStatus, ...]:
        published = [attempt.status for attempt in self._attempts.values() if attempt.published]
        return sorted_by_key([*published, *self._tombstones.values()])

    def machines(self) -> tuple[MachineStatus, ...]:
        return tuple(status for status in self._machines.values() if status is not None)

    def knows(self, key: AttemptKey) -> bool:
        return key in self._attempts or key in self._tombstones

    def share_register(self, register: AttemptRegister) -> None:
        """Two executors of one cluster have one fence; to be called before `start`."""
        self._register = register

    def subscribe(self) -> ChangeReader[Change]:
        return ChangeReader(self.feed)

    async def heartbeat(self, task: TaskReference, report: TaskReport) -> StopAdvice:
        return self._attempt_of(task).heartbeat(task, report)

    async def checkpoint_saved(self, task: TaskReference, progress: float, path: str) -> None:
        _log.debug(
            "checkpoint saved", workload=task.key.workload, attempt=task.key.attempt, progress=progress, path=path
        )
        attempt = self._attempt_of(task)
        if not self._configuration.stores.checkpoints:
            attempt.checkpoint_saved(progress)

    def read_logs(self, request: LogRequest) -> AsyncIterator[TaskLogChunk]:
        known = [key.attempt for key in self._attempts if key.workload == request.workload]

        def ended(key: AttemptKey) -> bool:
            attempt = self._attempts.get(key)
            return attempt is None or attempt.status.ended

        return self._logs.read(request, known, ended)

    @asynccontextmanager
    async def session(self, target: SessionTarget, purpose: SessionPurpose) -> AsyncIterator[SessionLink]:
        known = [key.attempt for key in (*self._attempts, *self._tombstones) if key.workload == target.workload]
        key = AttemptKey(target.workload, target.attempt or max(known, default=AttemptNumber(0)))
        attempt = self._attempts.get(key)
        if attempt is None and key not in self._tombstones:
            raise UnknownAttempt(key, f"no attempt of {key.workload} is known here")
        if attempt is None or attempt.status.phase not in (AttemptPhase.RUNNING, AttemptPhase.STOPPING):
            status = self._tombstones[key] if attempt is None else attempt.status
            reason = f" ({status.reason})" if status.reason else ""
            raise SessionImpossible(key, f"attempt {key.attempt} does not run, it is {status.phase}{reason}")
        task, machine = chosen_task(attempt.order, target)
        async with self._sessions.session(task, machine, attempt.runner_of(task), purpose) as link:
            yield link

    async def drain(self) -> None:
        """Waits until what was forgotten is cleared away."""
        await self._clearing.drain()

    async def close(self) -> None:
        self._background.close()
        self._clearing.close()
        for attempt in self._attempts.values():
            attempt.close()
        self._pool.close()

    def _surroundings(self) -> AttemptSurroundings:
        return AttemptSurroundings(
            self._pool,
            self._clock,
            self._configuration,
            self._session_address,
            self.feed.publish,
            running=lambda: len(self._live),
            allowed_s=self._allowed_s,
        )

    def _enter(self, attempt: RayAttempt) -> None:
        self._register.admit(attempt.key)
        self._attempts[attempt.key] = attempt
        self._live[attempt.key.workload] = attempt.key

    def _fence(self, newer: AttemptKey) -> RayAttempt | None:
        """Kills the older attempt of the workload, if there is one that has not ended; the newer one waits for it."""
        key = self._live.get(newer.workload)
        older = self._attempts.get(key) if key is not None else None
        if older is None or older.status.ended:
            return None
        older.stop(0.0, f"attempt {newer.attempt} of the workload took its place")
        return older

    def _bury(
        self,
        key: AttemptKey,
        phase: AttemptPhase,
        reason: str,
        progress: float,
        *,
        started_s: float = 0.0,
        exit_code: int | None = None,
    ) -> None:
        """An attempt of which there is nothing but the end."""
        if key in self._tombstones:
            return
        status = AttemptStatus(
            key,
            phase,
            self._clock.now(),
            progress=progress,
            checkpoint_progress=progress,
            reason=reason,
            started_s=started_s,
            exit_code=exit_code,
        )
        self._tombstones[key] = status
        self.feed.publish(status)

    def _was_begun(self, order: AttemptOrder) -> bool:
        """Whether a task of it was ever started here; two attempts never have the same number."""
        tasks = processes_of(order) if self._paths.attempt_directory(order.key).is_dir() else []
        return any(self._paths.journal(order.key, one.job, one.task).exists() for one in tasks)

    async def _bury_past(self, order: AttemptOrder) -> None:
        """Its runners are gone. What its tasks did may have been done all the same."""
        key, placements = order.key, processes_of(order)
        journaled = await self._pool.journaled(order, placements)
        stores = self._configuration.stores
        all_here = not stores.checkpoints and not stores.logs
        outcome = past_outcome(order, placements, journaled, self._clock.now(), all_here=all_here)
        progress = max(order.progress, await self._saved_progress(key))
        started_s = max((task.started_s for task in journaled.values()), default=order.started_s)
        if outcome is None:
            self._bury(key, AttemptPhase.LOST, NOT_FOUND, progress, started_s=started_s)
            return
        reason = outcome.reason
        if outcome.culprit is not None:
            line = await self._last_line(key, outcome.culprit)
            reason = f"{reason}: {line}" if line else reason
        self._bury(key, outcome.phase, reason, progress, started_s=started_s, exit_code=outcome.exit_code)

    async def _last_line(self, key: AttemptKey, task: TaskPlacement) -> str:
        try:
            return await asyncio.to_thread(self._logs.last_line, key, task.job, task.task)
        except StoreFailed as error:
            _log.warning("a log cannot be read", workload=key.workload, error=str(error))
            return ""

    async def _saved_progress(self, key: AttemptKey) -> float:
        try:
            return await saved_progress(self._configuration.home, self._configuration.stores, key)
        except (OSError, StoreFailed) as error:
            _log.warning("checkpoints cannot be looked at", workload=key.workload, error=str(error))
            return 0.0

    def _attempt_of(self, task: TaskReference) -> RayAttempt:
        attempt = self._attempts.get(task.key)
        if task.token or attempt is None or not attempt.began_without_token:
            self._configuration.tokens.check(task.key, task.token)
        if attempt is not None and not attempt.status.ended:
            return attempt
        key = task.key
        if attempt is not None or self._register.newest(key.workload) >= key.attempt:
            raise StaleOrder(key, f"attempt {key.attempt} of {key.workload} is over")
        raise UnknownAttempt(key, f"attempt {key.attempt} of {key.workload} is not known here")

    async def _clear_away(self, keys: Sequence[AttemptKey], buried: Sequence[AttemptKey]) -> None:
        """Of what was buried there were no runners."""
        await self._pool.remove_attempts(keys)
        for key in (*keys, *buried):
            await asyncio.to_thread(remove_folder, self._paths.attempt_directory(key))
        # Where this process is on the same machine: what was killed could not do it itself.
        await asyncio.to_thread(remove_unused, self._paths.working_directories)

    async def _allow_tasks(self) -> None:
        while True:
            for attempt in list(self._attempts.values()):
                self._background.spawn(attempt.allow())
            await asyncio.sleep(self._configuration.allow_interval_s)

    async def _watch_machines(self, first_look: asyncio.Future[None]) -> None:
        await first_look
        while True:
            await asyncio.sleep(self._configuration.machine_interval_s)
            await self._look_at_machines()

    async def _look_at_machines(self) -> None:
        offered = await self._pool.offered_machines()
        if offered is None:
            # No answer says nothing about any machine: one that is said to be down loses all that runs there.
            return
        for machine, status in self._machines.items():
            up = machine in offered
            if status is None or status.up != up:
                changed = MachineStatus(machine, up, "" if up else _NO_OFFER)
                self._machines[machine] = changed
                self.feed.publish(changed)


async def _describe(handle: RunnerHandle) -> tuple[RunnerHandle, RunnerDescription | None]:
    try:
        async with asyncio.timeout(_DESCRIBE_TIMEOUT_S):
            return handle, await handle.describe()
    except (RunnerLost, TimeoutError) as error:
        _log.warning("a runner does not answer", runner=handle.name, error=str(error))
        return handle, None
