"""Asks live attempts to leave: first in the database, then in memory; the orders to stop follow from that."""

from __future__ import annotations

from collections.abc import Iterable

from cluster_manager.attempt_run.events import Eviction
from cluster_manager.attempt_run.run import lost_with_machine
from domain.cells import cells_after
from domain.clock import Clock
from domain.events import EvictionCause
from domain.life_cycle import State
from domain.placement import AttemptKey
from services.database import attempt_store
from services.database.connection import AnyConnection
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.plan_writing import PlannedWrites
from services.regional_scheduler.recording import begin_evictions
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.session_over import SessionOver

LOST = Eviction(EvictionCause.MACHINE_LOST)


class EvictionWriter:
    """Evictions that make room for no workload in particular; those of a dispatch are written with the dispatch."""

    def __init__(self, memory: RegionMemory, due_attempts: DueAttempts, clock: Clock) -> None:
        self._memory = memory
        self._due_attempts = due_attempts
        self._clock = clock

    async def write(
        self, connection: AnyConnection, keys: Iterable[AttemptKey], eviction: Eviction
    ) -> list[AttemptKey]:
        """Writes that these attempts have to leave, unless they are leaving already; returns those that were written.

        After the commit `begin` does the same to memory. Raises SessionOver when the database knows them otherwise.
        """
        leaving = [
            (attempt, eviction)
            for key in keys
            if (attempt := self._memory.live.get(key)) is not None and attempt.state is not State.PREEMPTING
        ]
        marked = await begin_evictions(connection, self._memory.region.region, leaving, self._clock.now())
        unexpected = [attempt.key for attempt, _ in leaving if attempt.key not in marked]
        if unexpected:
            raise SessionOver(f"{unexpected[0]} was leaving or had ended in the database already")
        return [attempt.key for attempt, _ in leaving]

    async def write_each(
        self, connection: AnyConnection, stops: Iterable[tuple[AttemptKey, Eviction]]
    ) -> dict[AttemptKey, Eviction]:
        """The same of attempts that leave for different reasons: those of one reason at once. Returns those that were written."""
        by_reason: dict[Eviction, list[AttemptKey]] = {}
        for key, eviction in stops:
            by_reason.setdefault(eviction, []).append(key)
        return {
            key: eviction
            for eviction, keys in by_reason.items()
            for key in await self.write(connection, keys, eviction)
        }

    async def write_lost(self, connection: AnyConnection, keys: Iterable[AttemptKey]) -> list[AttemptKey]:
        """Writes that those of these attempts that are leaving lose a machine, and with it what they were saving."""
        leaving = [
            key
            for key in keys
            if (attempt := self._memory.live.get(key)) is not None and attempt.state is State.PREEMPTING
        ]
        await change_to_lost(
            connection, [attempt for key in leaving if (attempt := self._memory.live.get(key)) is not None]
        )
        return leaving

    def begin_lost(self, keys: Iterable[AttemptKey]) -> None:
        """What was written counts in memory too."""
        for key in keys:
            self.begin_in_memory(key, LOST)

    def begin(self, keys: Iterable[AttemptKey], eviction: Eviction) -> None:
        """What was written counts in memory too."""
        for key in keys:
            self._memory.inventory.begin_eviction(key)
            self.begin_in_memory(key, eviction)

    def carry_out(self, writes: PlannedWrites) -> None:
        """What was written for plans counts in memory too; the inventory knows it already."""
        for new in writes.changes:
            self._memory.live.begin_change(new.key, new.placements, new.change)
            self._due_attempts.give_orders(new.key)
        for lost_or_back in writes.cells:
            attempt = self._memory.live.get(lost_or_back.key)
            if attempt is not None:
                attempt.cells = cells_after(attempt.cells, lost_or_back.cells)
        for place in writes.reservations:
            self._memory.reserved[place.key] = place
        for key, eviction in writes.evictions:
            self.begin_in_memory(key, eviction)

    def begin_in_memory(self, key: AttemptKey, eviction: Eviction) -> None:
        """For what the inventory knows already."""
        self._memory.live.begin_eviction(key, eviction, self._clock.now())
        attempt = self._memory.live.get(key)
        if attempt is not None:
            self._due_attempts.look_at(attempt)


async def change_to_lost(connection: AnyConnection, leaving: Iterable[LiveAttempt]) -> None:
    """Writes why these attempts leave from now on, which were leaving already and of which a machine is lost."""
    await attempt_store.change_causes(
        connection, [(attempt.key, lost_with_machine(attempt.eviction)) for attempt in leaving]
    )
