"""Downgraded attempts get their cells back, and inconsistent ones lose theirs: in the database first, then in memory."""

from __future__ import annotations

from domain.clock import Clock
from regional_scheduler.cell_changes import bound_anew, cell_changes
from regional_scheduler.plan_application import apply_actions
from services.database import cell_store, event_store
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.attempt_events import cell_events
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.plan_writing import PlanWriting, write_changes
from services.regional_scheduler.region_memory import RegionMemory
from services.tiers.fenced_transaction import fenced_transaction


class CellChanges:
    """Looks for them before anything new is placed."""

    def __init__(
        self, database: Database, lease: Lease, memory: RegionMemory, writer: EvictionWriter, clock: Clock
    ) -> None:
        self._database = database
        self._lease = lease
        self._memory = memory
        self._writer = writer
        self._clock = clock

    async def look(self) -> None:
        """Writes what has changed and does it to memory. Costs nothing while no attempt lacks its cells."""
        await self._write_bound_anew()
        memory, region = self._memory, self._memory.region.region
        actions = cell_changes(memory.inventory)
        if not actions:
            return
        now = self._clock.now()
        writing = PlanWriting(region, memory.live, now)
        writing.add_actions(actions)
        async with fenced_transaction(self._database, self._lease) as connection:
            await write_changes(connection, region, writing.writes, now)
            await event_store.append(connection, cell_events(region, writing.writes.cells, memory.live.get, now))
        apply_actions(memory.inventory, actions, now)
        self._writer.carry_out(writing.writes)

    async def _write_bound_anew(self) -> None:
        """Nothing happens to these attempts; but a session that follows binds the very same cells."""
        found = bound_anew(self._memory.inventory)
        if not found:
            return
        async with fenced_transaction(self._database, self._lease) as connection:
            await cell_store.write_cells(connection, found)
        for key, cells in found:
            self._memory.inventory.replace_cells(key, cells)
            attempt = self._memory.live.get(key)
            if attempt is not None:
                attempt.cells = cells
