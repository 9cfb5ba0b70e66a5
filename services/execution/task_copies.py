"""What one task leaves in the stores while it runs, and finds there before: its workload's checkpoints, and what it prints."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import structlog

from domain.placement import TaskPlacement
from domain.workload import Emulated
from services.execution.checkpoint_copies import CheckpointCopies, CheckpointMissing, NewerAttempt
from services.execution.executor import AttemptOrder
from services.execution.stored_logs import LogUpload
from services.execution.task_environment import tasks_of_job
from services.execution.task_paths import TaskPaths
from services.execution.working_directory import NotPrepared, Unprepared
from services.storage.storage_folder import StoreFailed
from services.storage.store_urls import StoreUrls
from services.storage.stored_files import GivenUp

LONGEST_LAST_UPLOAD_S = 600.0
"""A task that was not asked to stop has ended when this is over, whatever the stores have by then."""

_LOOK_INTERVAL_S = 1.0
_QUIET_S = 10.0
_PIECE_BYTES = 1 << 20
_FIRST_PIECES_S, _PIECE_INTERVAL_S, _LATER_PIECE_INTERVAL_S = 600.0, 5.0, 30.0
"""What a task prints is stored so often in its first minutes, and so often later: the store has a file for each piece."""
_AGAIN_S = 2.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CopiedTask:
    """Whose files they are, and where they are."""

    order: AttemptOrder
    placement: TaskPlacement
    paths: TaskPaths
    stores: StoreUrls

    @property
    def told_progress(self) -> float:
        """At which something of its processes must have been saved; 0 where that may have been emulated work."""
        emulated = any(isinstance(job.entry_point, Emulated) for job in self.order.specification.jobs)
        return 0.0 if emulated else self.order.progress

    @property
    def has_others_elsewhere(self) -> bool:
        """Whether other tasks of its job are on other machines, or may be."""
        job = next(job for job in self.order.specification.jobs if job.name == self.placement.job)
        machines = {other.machine for other in tasks_of_job(self.order, self.placement.job)}
        return len(machines) > 1 or job.across_clusters or job.max_tasks > job.tasks


class TaskCopies:
    """From `prepare`, before the task starts, to `finish`, when it has ended. Does nothing where no store is configured."""

    def __init__(self, task: CopiedTask, saved: Callable[[float], Awaitable[None]]) -> None:
        """`saved` hears the progress of what is in the store, again and again."""
        self._task = task
        self._tell_saved = saved
        self._checkpoints: CheckpointCopies | None = None
        self._log_upload: LogUpload | None = None
        self._running: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._given_up = threading.Event()
        self._give_up_at_s: float | None = None
        self._deadline_moved = asyncio.Event()
        self._failure = ""
        """What was said last of why a store does not do what it is asked."""

    def prepare(self, given_up: threading.Event) -> None:
        """The newest checkpoint is on this machine. Waits for the store. Raises NotPrepared, GivenUp."""
        key, stores, paths = self._task.order.key, self._task.stores, self._task.paths
        if not stores.checkpoints:
            return
        try:
            self._checkpoints = CheckpointCopies(
                paths.checkpoint_directory(key.workload),
                stores.checkpoints,
                key,
                elsewhere=self._task.has_others_elsewhere,
                quiet_s=_QUIET_S,
            )
            self._checkpoints.prepare(self._task.told_progress, given_up)
        except (StoreFailed, CheckpointMissing) as error:
            raise NotPrepared(Unprepared(f"its checkpoint cannot be fetched: {error}", machine_lost=True)) from error
        except NewerAttempt as error:
            raise NotPrepared(Unprepared("a newer attempt of the workload has begun", machine_lost=True)) from error
        except OSError as error:
            sentence = f"its checkpoint cannot be written to {paths.checkpoint_directory(key.workload)}: {error.strerror or error}"
            raise NotPrepared(Unprepared(sentence, machine_lost=True)) from error

    def begin(self) -> None:
        """The task runs from now on."""
        if self._task.stores.checkpoints or self._task.stores.logs:
            self._running = asyncio.create_task(self._run())

    @property
    def finishing(self) -> bool:
        """The task has ended, and what it has left is being stored."""
        return self._ended.is_set()

    async def finish(self, *, in_order: bool, within_s: float) -> None:
        """Stores what is left; returns when that is done, or when the time is over. `in_order`: the task was not killed, and what it has
        written it has written to the end."""
        self._ended.set()
        if self._running is None:
            return
        self.finish_within(within_s)
        last = asyncio.create_task(self._store_the_rest(self._running, in_order=in_order))
        while not last.done() and (left_s := (self._give_up_at_s or 0.0) - time.monotonic()) > 0:
            self._deadline_moved.clear()
            moved = asyncio.create_task(self._deadline_moved.wait())
            await asyncio.wait({last, moved}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            moved.cancel()
        self._given_up.set()
        if last.done():
            last.result()
        else:
            # A thread that waits for the store cannot be ended; it stops at its next step.
            _log.warning("what a task has left is not in the store", task=self._name, error=self._failure)
            last.cancel()

    def finish_within(self, grace_s: float) -> None:
        """Repeating can only shorten it."""
        at_s = time.monotonic() + max(0.0, grace_s)
        self._give_up_at_s = at_s if self._give_up_at_s is None else min(self._give_up_at_s, at_s)
        self._deadline_moved.set()

    @property
    def _name(self) -> str:
        key = self._task.order.key
        return f"{key.workload}/{key.attempt}/{self._task.placement.job}/{self._task.placement.task}"

    async def _run(self) -> None:
        begun_s = piece_s = time.monotonic()
        while not self._ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_INTERVAL_S):
                    await self._ended.wait()
            if self._ended.is_set():
                return
            await self._try(self._store_checkpoints, settled=False)
            now_s = time.monotonic()
            interval_s = _PIECE_INTERVAL_S if now_s - begun_s < _FIRST_PIECES_S else _LATER_PIECE_INTERVAL_S
            upload = self._log_upload
            printed_much = upload is not None and await asyncio.to_thread(upload.pending_bytes) >= _PIECE_BYTES
            if printed_much or now_s - piece_s >= interval_s:
                piece_s = now_s
                await self._try(self._store_log)

    async def _store_the_rest(self, running: asyncio.Task[None], *, in_order: bool) -> None:
        await running
        await asyncio.gather(
            self._until_done(partial(self._store_checkpoints, settled=in_order)), self._until_done(self._store_log)
        )

    async def _until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        done = await self._try(work)
        while not (done or self._given_up.is_set()):
            await asyncio.sleep(_AGAIN_S)
            done = await self._try(work)

    async def _store_checkpoints(self, *, settled: bool) -> None:
        if self._checkpoints is not None:
            saved = await asyncio.to_thread(self._checkpoints.look, self._given_up, settled=settled)
            if saved > 0:
                await self._tell_saved(saved)

    async def _store_log(self) -> None:
        upload = await asyncio.to_thread(self._opened_log)
        if upload is not None:
            await asyncio.to_thread(upload.upload)

    def _opened_log(self) -> LogUpload | None:
        stores, order, placement = self._task.stores, self._task.order, self._task.placement
        if self._log_upload is None and stores.logs:
            log = self._task.paths.log(order.key, placement.job, placement.task)
            self._log_upload = LogUpload(log, stores.logs, order.key, placement.job, placement.task)
        return self._log_upload

    async def _try(self, work: Callable[..., Awaitable[None]], **options: bool) -> bool:
        """Whether there is nothing left to try: a store that fails now may do it later."""
        try:
            await work(**options)
        except NewerAttempt:
            _log.warning("a newer attempt has begun: nothing more of this one is stored", task=self._name)
            self._checkpoints = None
        except GivenUp:
            return True
        except (StoreFailed, OSError) as error:
            if str(error) != self._failure:
                _log.warning("a store does not take what a task has left", task=self._name, error=str(error))
            self._failure = str(error)
            return False
        return True
