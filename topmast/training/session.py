"""The session of one task: where it restores, reports its steps, saves, and learns that it should stop."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from topmast.training.checkpoints import CheckpointStore, StaleAttempt, last_attempt
from topmast.training.model_profile import model_sizes
from topmast.training.reporter import Reporter
from topmast.training.state_format import State
from topmast.training.task_environment import TaskEnvironment

_log = logging.getLogger(__name__)

_WAIT_FOR_WRITER_S = 60.0
_LOOK_AGAIN_S = 0.05
_FAREWELL_S = 2.0


def init(
    checkpoint_directory: str | Path | None = None, *, keep: int = 3, heartbeat_interval_s: float = 1.0
) -> Session:
    """Opens the session of this process.

    Under Topmast everything comes from the environment. Run by hand, the session works all the same: checkpoints go to
    `checkpoint_directory` (default: `.topmast/checkpoints/<name of the script>`), nothing is reported, and Ctrl-C works
    as always. `keep` is how many checkpoints stay on disk.

    Raises StaleAttempt when a newer attempt of the workload has begun.
    """
    task = TaskEnvironment.of(os.environ)
    if task is None:
        directory = Path(checkpoint_directory or Path(".topmast", "checkpoints", quote(_script_name(), safe="")))
        return Session(None, CheckpointStore(directory, last_attempt(directory), keep), None)
    store = CheckpointStore(task.checkpoint_directory, task.attempt, keep)
    reporter = Reporter(task, heartbeat_interval_s) if task.current().session_address else None
    return Session(task, store, reporter)


class Membership(NamedTuple):
    """The tasks of a job at one time. `revision` grows with each change of the attempt."""

    revision: int
    rank: int
    world_size: int


class Session:
    """Use one per process, from one thread. A context manager: leaving it sends what is still to be reported."""

    def __init__(self, task: TaskEnvironment | None, store: CheckpointStore, reporter: Reporter | None) -> None:
        self._task = task
        self._store = store
        self._reporter = reporter
        self._progress = 0.0
        self._terminated = False
        self._stop_seen = False
        self._previous_handler: Callable[[int, FrameType | None], Any] | int | None = None
        store.begin()
        if self.rank == 0:
            store.clear_leftovers()
        if threading.current_thread() is threading.main_thread():
            self._previous_handler = signal.signal(signal.SIGTERM, self._on_terminate)
        if task is not None:
            task.mark_session_opened()
        if reporter is not None:
            reporter.start()
        atexit.register(self.close)
        _let_go_in_forks(self)

    @property
    def local(self) -> bool:
        """True when the program was run by hand, outside Topmast."""
        return self._task is None

    @property
    def rank(self) -> int:
        """This task's place among the tasks of its job now; rank 0, the job's first task, writes the checkpoints."""
        if self._reporter is not None:
            return self._reporter.rank
        return self._task.rank if self._task is not None else 0

    @property
    def local_rank(self) -> int:
        """Its place among those of them on the same machine."""
        return self._task.local_rank if self._task is not None else 0

    @property
    def world_size(self) -> int:
        """How many tasks the job has now; it changes when an elastic job is resized."""
        if self._reporter is not None:
            return self._reporter.world_size
        return self._task.world_size if self._task is not None else 1

    @property
    def membership(self) -> Membership:
        """Rank and world size as of one revision: what a job of many tasks forms its group by, and compares with later."""
        if self._task is None:
            return Membership(0, 0, 1)
        now = self._task.current()
        return Membership(now.revision, now.rank, now.world_size)

    def await_resize(self, joined: Membership, timeout_s: float = 60.0) -> Membership | None:
        """The job's tasks after the next change; waits until all that stay know of it.

        For those that have left a group because one of it is leaving or gone. None when this task is to stop itself
        instead, or nothing has changed within the timeout.
        """
        deadline_s = time.monotonic() + timeout_s
        while not self.should_stop and time.monotonic() < deadline_s:
            now = self.membership
            if now.revision > joined.revision:
                return now
            time.sleep(_LOOK_AGAIN_S)
        return None

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1; 0 when run by hand."""
        return self._task.attempt if self._task is not None else 0

    @property
    def progress(self) -> float:
        """Steps done so far: restored, given or counted."""
        return self._progress

    @property
    def should_stop(self) -> bool:
        """True from when the program should save and end: it is being preempted, moved or cancelled."""
        stop = self._terminated or (self._reporter is not None and self._reporter.should_stop)
        if stop and not self._stop_seen:
            self._stop_seen = True
            if self._task is not None:
                self._task.mark_stop_seen()
        return stop

    @property
    def grace_left_s(self) -> float | None:
        """Seconds left for a checkpoint when it should stop; None when it need not, or the deadline is not known."""
        if self._reporter is None or self._reporter.stop_deadline_s is None:
            return None
        return max(0.0, self._reporter.stop_deadline_s - time.monotonic())

    def restore(self) -> State | None:
        """The state that was last saved, by this attempt or the one before; None on a first start.

        `progress` is from now on what it was when that state was saved.
        """
        found = self._store.restore()
        if found is None:
            return None
        checkpoint, state = found
        self._progress = checkpoint.progress
        if self._reporter is not None:
            self._reporter.rebase(checkpoint.progress)
        _log.info("restored %s at progress %g", checkpoint.path, checkpoint.progress)
        return state

    def step(self, progress: float | None = None) -> bool:
        """Notes that a step is done (without a number: one more), and says whether to save and stop. Costs nothing."""
        self._progress = self._progress + 1 if progress is None else progress
        if self._reporter is not None:
            self._reporter.step_done(self._progress)
        return self.should_stop

    def report_model(self, model: Any) -> None:
        """Tells what the model is made of: a PyTorch module, or its arrays and tensors in a dict, without the optimizer's.

        Topmast then knows its skew (largest tensor over the whole model) and places the next attempts, and later workloads
        of the same name, on few machines where that pays (Tiresias §3.3). Call it once, before the first step. Raises
        TypeError for what is neither, ValueError for a model without tensors.
        """
        sizes = model_sizes(model)
        if self._reporter is not None:
            self._reporter.model = sizes

    def save(self, state: State, progress: float | None = None) -> Path | None:
        """Saves a checkpoint of the state as of `progress` (default: the steps done so far).

        Rank 0 writes; the other ranks wait until it has (at most a minute, and no longer than their grace), so that
        none goes on, or ends, as if the work were saved when it is not. Returns the checkpoint; None when there was
        nothing to wait for. Raises StaleAttempt when a newer attempt has begun, TypeError for what cannot be kept.
        """
        if progress is not None:
            self._progress = progress
        if self.rank != 0:
            left_s = self.grace_left_s
            seen = self._store.wait_for(self._progress, _WAIT_FOR_WRITER_S if left_s is None else left_s)
            return seen.path if seen is not None else None
        if self._reporter is not None and self._reporter.stale:
            raise StaleAttempt(f"attempt {self.attempt} is over: its work is not saved any more")
        checkpoint = self._store.save(state, self._progress)
        if self._reporter is not None:
            self._reporter.checkpoint_saved(checkpoint.progress, str(checkpoint.path))
        return checkpoint.path

    def close(self) -> None:
        """Ends the session; done at exit if not before."""
        atexit.unregister(self.close)
        if self._reporter is not None:
            self._reporter.close(_FAREWELL_S)
            self._reporter = None
        if self._previous_handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._previous_handler)
            self._previous_handler = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def leave_to_parent(self) -> None:
        """In a process forked from this one, such as a data loader's: SIGTERM ends it, and it reports nothing."""
        self._reporter = None
        atexit.unregister(self.close)
        if self._previous_handler is not None:
            signal.signal(signal.SIGTERM, self._previous_handler)
            self._previous_handler = None

    def _on_terminate(self, number: int, frame: FrameType | None) -> None:
        """Not passed on to an earlier handler: that one would likely end the program before it has saved."""
        del number, frame
        self._terminated = True


def _let_go_in_forks(session: Session) -> None:
    """Has forked processes leave the session to this one. SIGTERM waits meanwhile: it must not meet the wrong handler."""
    known = weakref.ref(session)
    before = threading.local()

    def block() -> None:
        before.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before.mask)

    def leave() -> None:
        session = known()
        if session is not None:
            session.leave_to_parent()
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=leave)


def _script_name() -> str:
    return Path(sys.argv[0]).stem or "interactive"
