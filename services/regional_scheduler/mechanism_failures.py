"""What placement mechanisms of packages do wrong: in the log of the process, and among the events."""

from __future__ import annotations

import structlog

from domain.clock import Clock
from domain.events import Event, EventKind
from formats.event_details import mechanism_failed_details
from services.database import event_store
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.region_memory import RegionMemory
from services.tiers.fenced_transaction import fenced_transaction

_log = structlog.get_logger(__name__)


class MechanismFailures:
    """Tells of those of one session, each once."""

    def __init__(self, database: Database, lease: Lease, memory: RegionMemory, clock: Clock) -> None:
        self._database = database
        self._lease = lease
        self._memory = memory
        self._clock = clock

    async def tell(self) -> None:
        """Writes what is new."""
        failures = self._memory.inventory.faults.take_mechanism_failures()
        if not failures:
            return
        now, region = self._clock.now(), self._memory.region.region
        events: list[Event] = []
        for failure in failures:
            details = mechanism_failed_details(failure.mechanism, failure.asked, failure.error)
            _log.error("a placement mechanism failed", region=region, cluster=failure.cluster, **details)
            kind = EventKind.MECHANISM_FAILED
            events.append(Event(now, kind, region=region, cluster=failure.cluster, details=details))
        async with fenced_transaction(self._database, self._lease) as connection:
            await event_store.append(connection, events)
