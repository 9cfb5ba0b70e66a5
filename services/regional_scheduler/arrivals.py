"""Attempts that migrate into this region: places are kept for them, until they come or do not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from domain.identifiers import MachineId, WorkloadId
from domain.placement import AttemptKey
from services.database import reservation_store
from services.database.attempt_store import StoredAttempt
from services.database.connection import AnyConnection
from services.database.reservation_store import ReservedPlace
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.loading import holding_of, live_attempt_of
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.session_over import SessionOver


class Arrivals:
    """Changes the region's memory to what the database says of its reservations."""

    def __init__(self, memory: RegionMemory, due_attempts: DueAttempts) -> None:
        self._memory = memory
        self._due_attempts = due_attempts

    def admit(self, successor: LiveAttempt, preempted_s: Mapping[str, tuple[float, ...]]) -> None:
        """The attempt begins in the place that was kept for it; `preempted_s` has what `preemptions` says of it."""
        inventory = self._memory.inventory
        self.withdraw(successor.key.workload)
        if self._memory.tuning is not None:
            self._memory.tuning.knows(successor.key, successor.specification, successor.tuned.profiles)
        inventory.hold(holding_of(successor, inventory.rule, preempted_s))
        self._memory.live.add(successor)
        self._due_attempts.give_orders(successor.key)

    def withdraw(self, workload: WorkloadId) -> None:
        """No place is kept for the workload any more."""
        for key in [key for key in self._memory.reserved if key.workload == workload]:
            del self._memory.reserved[key]
            self._memory.inventory.release(key)

    def compare(
        self,
        stored: Iterable[StoredAttempt],
        reserved: Iterable[ReservedPlace],
        preempted_s: Mapping[str, tuple[float, ...]],
    ) -> None:
        """Takes in attempts that another region has ended and that go on here, and lets go of what is not kept."""
        for attempt in stored:
            if self._memory.live.get(attempt.key) is None:
                self.admit(live_attempt_of(attempt, self._memory.works), preempted_s)
        kept: dict[AttemptKey, ReservedPlace] = {place.key: place for place in reserved}
        for key in [key for key in self._memory.reserved if key not in kept]:
            self.withdraw(key.workload)

    def keeps_on(self, machine: MachineId) -> bool:
        """Whether a place is kept on the machine."""
        return any(
            placement.machine == machine for place in self._memory.reserved.values() for placement in place.placements
        )

    async def give_up(self, connection: AnyConnection, machines: Collection[MachineId]) -> list[WorkloadId]:
        """Writes that no place is kept on these machines any more; after the commit `withdraw` does it to memory.

        Raises SessionOver when one is not kept any more: its attempt may have begun here already, has to leave the
        machine like the others, and is not in memory yet.
        """
        there = [
            key.workload
            for key, place in self._memory.reserved.items()
            if any(placement.machine in machines for placement in place.placements)
        ]
        kept = await reservation_store.take(connection, there)
        gone = [workload for workload in there if workload not in kept]
        if gone:
            raise SessionOver(f"no place is kept for {gone[0]} any more on a machine that it may run on")
        return there
