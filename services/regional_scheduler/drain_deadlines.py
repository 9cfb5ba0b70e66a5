"""Machines that were drained with a deadline: what is still on them then has to leave.

The deadlines stand in the database: a new session goes on with them. To empty a machine again that is empty changes nothing.
"""

from __future__ import annotations

from domain.clock import Clock
from domain.fleet import MachineState
from domain.identifiers import MachineId
from services.database import drain_store
from services.database.drain_store import StoredDrain
from services.database.engine import Database
from services.regional_scheduler.machine_maintenance import MachineMaintenance
from services.regional_scheduler.region_memory import RegionMemory

_MOST_AT_ONCE = 512
"""So many machines are emptied in one transaction."""

_DRAINED = (MachineState.DRAINING, MachineState.DRAINING_DOWN)


class DrainDeadlines:
    """Looked at in every round of the session's loop."""

    def __init__(self, database: Database, memory: RegionMemory, maintenance: MachineMaintenance, clock: Clock) -> None:
        self._database = database
        self._memory = memory
        self._maintenance = maintenance
        self._clock = clock
        self._changes_seen = -1
        self._drains: dict[MachineId, StoredDrain] = {}
        """Those whose deadline is to come, or has just come."""

    async def look(self) -> None:
        """Has everything leave that is on machines whose deadline has come."""
        if self._changes_seen != self._maintenance.drains_changed:
            self._changes_seen = self._maintenance.drains_changed
            await self._load()
        now = self._clock.now()
        due = [drain for drain in self._drains.values() if drain.deadline_s is not None and drain.deadline_s <= now]
        if not due:
            return
        for first in range(0, len(due), _MOST_AT_ONCE):
            occupied = {
                drain.machine: drain.reason
                for drain in due[first : first + _MOST_AT_ONCE]
                if self._memory.live.on(drain.machine) and self._memory.machine_state(drain.machine) in _DRAINED
            }
            if occupied:
                await self._maintenance.empty(occupied)
        for drain in due:
            del self._drains[drain.machine]

    async def _load(self) -> None:
        async with self._database.transaction() as connection:
            stored = await drain_store.with_deadline(connection, self._memory.region.region)
        self._drains = {drain.machine: drain for drain in stored}
