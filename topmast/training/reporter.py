"""Reports to the cluster manager how far a task is, from a thread of its own; training never waits for it, nor fails for it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import NamedTuple, cast

import grpc

from topmast.training.model_profile import ModelSizes
from topmast.training.task_environment import TaskEnvironment
from topmast.v1 import training_session_pb2, training_session_pb2_grpc

_log = logging.getLogger(__name__)

_CALL_TIMEOUT_S = 5.0
_CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.enable_http_proxy", 0),
)
_REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
)
_SMOOTHING = 0.5
"""How much of the reported throughput is from the last interval; the rest from before."""


class _Saved(NamedTuple):
    progress: float
    path: str


class _Step(NamedTuple):
    at_s: float
    progress: float


class Reporter:
    """Sends a heartbeat each `interval_s` and each checkpoint soon; reads the answers.

    While the cluster manager cannot be reached it goes on trying, at the address that its file names by then.
    """

    def __init__(self, task: TaskEnvironment, interval_s: float) -> None:
        self.progress = 0.0
        self.should_stop = False
        self.stale = False
        self.stop_deadline_s: float | None = None
        self.rank = task.rank
        self.world_size = task.world_size
        self.model: ModelSizes | None = None
        self._task = task
        self._interval_s = interval_s
        self._reference = training_session_pb2.TaskReference(
            workload=task.workload, attempt=task.attempt, job=task.job, task=task.task, token=task.session_token
        )
        self._saved: deque[_Saved] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._address = ""
        self._channel: grpc.Channel | None = None
        self._refused = False
        self._throughput = 0.0
        self._measured = (time.monotonic(), 0.0)
        self._first_step: _Step | None = None
        self._last_step: _Step | None = None
        self._thread = threading.Thread(target=self._run, name="topmast-reporter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def rebase(self, progress: float) -> None:
        """The progress was restored: it was not made just now."""
        self.progress = progress
        self._measured = (time.monotonic(), progress)
        self._first_step = self._last_step = None

    def step_done(self, progress: float) -> None:
        """Notes how far it is, and when it got there."""
        self.progress = progress
        self._last_step = _Step(time.monotonic(), progress)
        if self._first_step is None:
            # What happened before the end of the first step is no iteration: starting, compiling, restoring.
            self._first_step = self._last_step

    def checkpoint_saved(self, progress: float, path: str) -> None:
        """Reports a complete checkpoint, without waiting for it."""
        self._saved.append(_Saved(progress, path))
        self._wake.set()

    def close(self, timeout_s: float) -> None:
        """Sends what is still to be reported, if that is possible within the timeout, and ends."""
        self._closing = True
        self._wake.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            last = self._closing
            try:
                self._report()
            except grpc.RpcError as error:
                self._note(error)
            if last:
                break
            self._wake.wait(self._interval_s)
            self._wake.clear()
        if self._channel is not None:
            self._channel.close()

    def _report(self) -> None:
        session = training_session_pb2_grpc.TrainingSessionStub(self._connected())
        while self._saved:
            saved = self._saved[0]
            session.CheckpointSaved(
                training_session_pb2.CheckpointSavedRequest(
                    task=self._reference, progress=saved.progress, path=saved.path
                ),
                timeout=_CALL_TIMEOUT_S,
            )
            self._saved.popleft()
        progress, model = self.progress, self.model
        answer = session.Heartbeat(
            training_session_pb2.HeartbeatRequest(
                task=self._reference,
                progress=progress,
                steps_per_second=self._measure(progress),
                iteration_s=self._iteration_s(),
                largest_tensor_mib=0.0 if model is None else model.largest_tensor_mib,
                model_mib=0.0 if model is None else model.model_mib,
            ),
            timeout=_CALL_TIMEOUT_S,
        )
        if answer.should_stop:
            self.stop_deadline_s = time.monotonic() + answer.grace_left_s
            self.should_stop = True

    def _connected(self) -> grpc.Channel:
        """The channel to where the cluster manager answers now."""
        now = self._task.current()
        self.rank, self.world_size = now.rank, now.world_size
        if self._channel is None or now.session_address != self._address:
            if self._channel is not None:
                self._channel.close()
            self._address = now.session_address
            self._channel = _channel(self._address, self._task.session_authority)
        return self._channel

    def _note(self, error: grpc.RpcError) -> None:
        # What a stub raises is the call itself too, though its declared type does not say so.
        code = cast("grpc.Call", error).code()
        if code is grpc.StatusCode.FAILED_PRECONDITION:
            # A newer attempt runs, or this one was given up: whatever this one still does is for nothing.
            _log.warning("this attempt is over, as far as the cluster manager is concerned: stopping")
            self.stop_deadline_s = time.monotonic()
            self.stale = self.should_stop = True
            self._saved.clear()
        elif code in _REFUSALS:
            if not self._refused:
                said = cast("grpc.Call", error).details()
                _log.warning("the cluster manager does not take what this task reports: %s", said)
            self._refused = True
            if code is grpc.StatusCode.INVALID_ARGUMENT:
                # It would be refused each time, and hold up all that comes after it.
                self._saved.clear()
        else:
            _log.debug("the cluster manager at %s does not answer: %s", self._address, code)

    def _measure(self, progress: float) -> float:
        """Progress per second, smoothed."""
        then_s, before = self._measured
        now_s = time.monotonic()
        if now_s - then_s >= self._interval_s / 2:
            recent = max(0.0, progress - before) / (now_s - then_s)
            self._throughput = (
                recent if self._throughput == 0 else (_SMOOTHING * recent + (1 - _SMOOTHING) * self._throughput)
            )
            self._measured = (now_s, progress)
        return self._throughput

    def _iteration_s(self) -> float:
        """Seconds that a unit of progress took on average since the first step; 0 before the second one."""
        first, last = self._first_step, self._last_step
        if first is None or last is None or last.progress <= first.progress:
            return 0.0
        return (last.at_s - first.at_s) / (last.progress - first.progress)


def _channel(address: str, authority: str) -> grpc.Channel:
    """In plain text where there is no authority by which the cluster manager is known."""
    if not authority:
        return grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(authority.encode())
    return grpc.secure_channel(address, credentials, options=_CHANNEL_OPTIONS)
