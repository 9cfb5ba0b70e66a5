"""Computes a region's invariants anew from what is held, now and then: a violation is never passed over in silence."""

from __future__ import annotations

import asyncio

import structlog

from cluster_manager.capacity.errors import InvariantBroken
from domain.clock import Clock
from domain.events import Event, EventKind
from services.database import event_store
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.session_over import SessionOver
from services.tiers.fenced_transaction import fenced_transaction

CHECK_EVERY_REAL_S = 60.0
CHECK_SOON_REAL_S = 5.0
"""So long after the last check there is another one where something has gone wrong."""

_log = structlog.get_logger(__name__)


class InvariantWatch:
    """Looks at the memory of one session."""

    def __init__(self, database: Database, lease: Lease, memory: RegionMemory, clock: Clock, now_real_s: float) -> None:
        self._database = database
        self._lease = lease
        self._memory = memory
        self._clock = clock
        self._checked_real_s = now_real_s
        self._wait_real_s = CHECK_EVERY_REAL_S

    def look_soon(self) -> None:
        """Something has gone wrong that should have left the memory as it was."""
        self._wait_real_s = CHECK_SOON_REAL_S

    async def look(self, now_real_s: float) -> None:
        """Checks when it is time to.

        Raises SessionOver for a memory that contradicts itself, once the event log names what is broken: nothing more
        is decided on it, and the next session makes one anew.
        """
        if now_real_s < self._checked_real_s + self._wait_real_s:
            return
        self._checked_real_s, self._wait_real_s = now_real_s, CHECK_EVERY_REAL_S
        region = self._memory.region.region
        try:
            # Leases are kept meanwhile. The session waits, and so do questions what would be planned.
            async with self._memory.steady:
                await asyncio.to_thread(self._memory.inventory.check)
        except InvariantBroken as broken:
            _log.error("an invariant is broken", region=region, invariant=str(broken))
            event = Event(
                self._clock.now(), EventKind.INVARIANT_BROKEN, region=region, details={"invariant": str(broken)}
            )
            async with fenced_transaction(self._database, self._lease) as connection:
                await event_store.append(connection, [event])
            raise SessionOver(f"an invariant is broken: {broken}") from broken
