"""One executor out of two: workloads that are wholly emulated go to one, all others to the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager

from domain.identifiers import MachineId
from domain.placement import AttemptKey, TaskPlacement
from services.execution.change_feed import ChangeReader
from services.execution.emulated_executor import EmulatedExecutor
from services.execution.executor import (
    AttemptOrder,
    AttemptStatus,
    Change,
    Executor,
    LogRequest,
    MachineStatus,
    SessionTarget,
    StopAdvice,
    TaskLogChunk,
    TaskReference,
    TaskReport,
    sorted_by_key,
)
from services.execution.ray_executor import RayExecutor
from services.execution.session_frames import SessionPurpose
from services.execution.session_link import SessionLink


class RoutingExecutor:
    """All attempts of a workload go the same way, because what its jobs run never changes: fences stay whole."""

    def __init__(self, emulated: EmulatedExecutor, processes: RayExecutor) -> None:
        self._emulated = emulated
        self._processes = processes
        processes.share_register(emulated.register)

    async def start(self, session_address: str) -> None:
        await self._emulated.start(session_address)
        await self._processes.start(session_address)

    async def execute(self, order: AttemptOrder) -> None:
        # What one of them knows already, if only as stopped before it was started, stays with it.
        emulated = order.specification.emulated and not self._processes.knows(order.key)
        executor: Executor = self._emulated if emulated else self._processes
        await executor.execute(order)

    async def stop(self, key: AttemptKey, grace_s: float) -> None:
        await self._executor_of(key).stop(key, grace_s)

    async def resize(
        self, key: AttemptKey, placements: tuple[TaskPlacement, ...], revision: int, work_rate: float = 1.0
    ) -> None:
        await self._executor_of(key).resize(key, placements, revision, work_rate)

    async def forget(self, keys: Sequence[AttemptKey]) -> None:
        await self._emulated.forget(keys)
        await self._processes.forget(keys)

    async def set_machines(self, machines: Sequence[MachineId]) -> None:
        await self._emulated.set_machines(machines)
        await self._processes.set_machines(machines)

    async def lose_all(self, reason: str) -> None:
        await self._emulated.lose_all(reason)
        await self._processes.lose_all(reason)

    def statuses(self) -> tuple[AttemptStatus, ...]:
        return sorted_by_key([*self._emulated.statuses(), *self._processes.statuses()])

    def machines(self) -> tuple[MachineStatus, ...]:
        """As the processes' executor sees them, but down where the emulation has lost them."""
        by_machine = {status.machine: status for status in self._processes.machines()}
        for status in self._emulated.machines():
            if not status.up:
                by_machine[status.machine] = status
        return tuple(status for _, status in sorted(by_machine.items()))

    def subscribe(self) -> ChangeReader[Change]:
        return ChangeReader(self._emulated.feed, self._processes.feed)

    async def heartbeat(self, task: TaskReference, report: TaskReport) -> StopAdvice:
        # Emulated attempts have no tasks: who reports for one has no token, and is told nothing of it.
        return await self._processes.heartbeat(task, report)

    async def checkpoint_saved(self, task: TaskReference, progress: float, path: str) -> None:
        await self._processes.checkpoint_saved(task, progress, path)

    def read_logs(self, request: LogRequest) -> AsyncIterator[TaskLogChunk]:
        if self._emulated.knows_workload(request.workload):
            return self._emulated.read_logs(request)
        return self._processes.read_logs(request)

    def session(self, target: SessionTarget, purpose: SessionPurpose) -> AbstractAsyncContextManager[SessionLink]:
        emulated = self._emulated.knows_workload(target.workload)
        executor: Executor = self._emulated if emulated else self._processes
        return executor.session(target, purpose)

    async def close(self) -> None:
        await self._emulated.close()
        await self._processes.close()

    def _executor_of(self, key: AttemptKey) -> Executor:
        return self._emulated if self._emulated.knows(key) else self._processes
