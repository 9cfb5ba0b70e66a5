"""Runs emulated attempts on a clock, which may be faster than real time: one timer for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager

from domain.identifiers import MachineId, WorkloadId
from domain.placement import AttemptKey, TaskPlacement
from services.clock import ServiceClock
from services.execution.attempt_register import AttemptRegister
from services.execution.change_feed import ChangeFeed, ChangeReader
from services.execution.emulation import Emulation
from services.execution.executor import (
    EMULATED,
    AttemptOrder,
    AttemptStatus,
    Change,
    LogRequest,
    MachineStatus,
    SessionImpossible,
    SessionTarget,
    StopAdvice,
    TaskLogChunk,
    TaskReference,
    TaskReport,
    UnknownAttempt,
    slot_of_change,
)
from services.execution.session_frames import SessionPurpose
from services.execution.session_link import SessionLink

_SHORTEST_WAIT_S = 0.001
"""Of real time: ends that are due closer together are published together."""


class EmulatedExecutor:
    """The shell around Emulation: asks the clock, sets the timer, publishes what changed.

    Graces are on the clock, like everything emulated. A restarted one is given its attempts back by orders with
    `started_s`, and they go on as if nothing had happened.
    """

    def __init__(
        self, clock: ServiceClock, machines: Sequence[MachineId] | None = None, *, checkpoint_time_s: float = 0.0
    ) -> None:
        """`machines`: those of the cluster, each of which is up until it is lost. None: another executor reports on them."""
        self._clock = clock
        self.register = AttemptRegister()
        self._emulation = Emulation(self.register, checkpoint_time_s)
        self._reports_all = machines is not None
        self._machines = {machine: MachineStatus(machine, up=True) for machine in machines or ()}
        self.feed: ChangeFeed[Change] = ChangeFeed(slot_of_change)
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, session_address: str) -> None:
        """Nothing of an emulated attempt exists outside this object: there is nothing to adopt."""

    async def execute(self, order: AttemptOrder) -> None:
        self._publish(self._emulation.execute(order, self._clock.now()))

    async def stop(self, key: AttemptKey, grace_s: float) -> None:
        self._publish(self._emulation.stop(key, grace_s, self._clock.now()))

    async def resize(
        self, key: AttemptKey, placements: tuple[TaskPlacement, ...], revision: int, work_rate: float = 1.0
    ) -> None:
        self._publish(self._emulation.resize(key, placements, revision, work_rate, self._clock.now()))

    async def lose_all(self, reason: str) -> None:
        self._publish(self._emulation.lose_all(reason, self._clock.now()))

    async def forget(self, keys: Sequence[AttemptKey]) -> None:
        self._emulation.forget(keys)

    def set_machine(self, machine: MachineId, up: bool, reason: str = "") -> None:
        """Loses an emulated machine, with all attempts on it, or brings it back."""
        status = MachineStatus(machine, up, reason)
        self._machines[machine] = status
        changed = self._emulation.set_machine(machine, up, reason, self._clock.now())
        self.feed.publish(status)
        self._publish(changed)

    async def set_machines(self, machines: Sequence[MachineId]) -> None:
        """Every emulated machine is up until it is lost."""
        known, present = self._machines, set(machines)
        self._machines = {machine: status for machine, status in known.items() if machine in present}
        if self._reports_all:
            for machine in machines:
                if machine not in known:
                    self._machines[machine] = MachineStatus(machine, up=True)
                    self.feed.publish(self._machines[machine])

    def statuses(self) -> tuple[AttemptStatus, ...]:
        self._publish(self._emulation.advance(self._clock.now()))
        return self._emulation.statuses(self._clock.now())

    def machines(self) -> tuple[MachineStatus, ...]:
        return tuple(status for _, status in sorted(self._machines.items()))

    def knows(self, key: AttemptKey) -> bool:
        return self._emulation.knows(key)

    def knows_workload(self, workload: WorkloadId) -> bool:
        return self._emulation.knows_workload(workload)

    def subscribe(self) -> ChangeReader[Change]:
        return ChangeReader(self.feed)

    async def heartbeat(self, task: TaskReference, report: TaskReport) -> StopAdvice:
        raise _has_no_tasks(task.key)

    async def checkpoint_saved(self, task: TaskReference, progress: float, path: str) -> None:
        raise _has_no_tasks(task.key)

    async def read_logs(self, request: LogRequest) -> AsyncIterator[TaskLogChunk]:
        """Emulated attempts print nothing. Raises UnknownAttempt when there is none of that workload."""
        if not self.knows_workload(request.workload):
            raise _has_no_tasks(AttemptKey(request.workload, request.attempt))
        chunks: tuple[TaskLogChunk, ...] = ()
        for chunk in chunks:
            yield chunk

    def session(self, target: SessionTarget, purpose: SessionPurpose) -> AbstractAsyncContextManager[SessionLink]:
        key = AttemptKey(target.workload, target.attempt)
        if not self.knows_workload(target.workload):
            raise _has_no_tasks(key)
        raise SessionImpossible(key, EMULATED)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self._publish(self._emulation.advance(self._clock.now()))

    def _publish(self, changed: Iterable[AttemptStatus]) -> None:
        for status in changed:
            self.feed.publish(status)
        due_s = self._emulation.next_due_s()
        if due_s is None:
            return
        loop = asyncio.get_running_loop()
        wait_s = max(_SHORTEST_WAIT_S, self._clock.real_seconds(due_s - self._clock.now()))
        at = loop.time() + wait_s
        if self._timer is not None:
            if self._timer.when() <= at + _SHORTEST_WAIT_S:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at, self._on_timer)


def _has_no_tasks(key: AttemptKey) -> UnknownAttempt:
    return UnknownAttempt(key, f"attempt {key.attempt} of {key.workload} has no tasks running here")
