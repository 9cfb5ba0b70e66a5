"""What a region finds in a cluster when it reaches the cluster's manager: after a restart, an outage, a takeover.

Told in the log of the process and among the events, so that who was away knows what became of the work.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from domain.clock import Clock
from domain.events import Event, EventKind
from domain.identifiers import ClusterId
from formats.event_details import cluster_reconciled_details
from services.database import event_store
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.region_memory import RegionMemory
from services.tiers.fenced_transaction import fenced_transaction

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Reconciliation:
    """Numbers of attempts, from one complete report of a cluster's manager."""

    cluster: ClusterId
    went_on: int = 0
    """They run there, as the database says."""
    ended_meanwhile: int = 0
    """Their ends were kept there, and are recorded now."""
    not_found: int = 0
    """The database has them running there, and there is nothing of them."""
    stopped: int = 0
    """They run there and are over for the database: they are told to stop."""

    @property
    def found_anything(self) -> bool:
        return (self.went_on, self.ended_meanwhile, self.not_found, self.stopped) != (0, 0, 0, 0)


class Reconciliations:
    """Tells of those of one session, each once."""

    def __init__(self, database: Database, lease: Lease, memory: RegionMemory, clock: Clock) -> None:
        self._database = database
        self._lease = lease
        self._memory = memory
        self._clock = clock

    async def tell(self, found: list[Reconciliation]) -> None:
        """Writes what was found, where it was anything."""
        now, region = self._clock.now(), self._memory.region.region
        events: list[Event] = []
        for one in found:
            if not one.found_anything:
                continue
            details = cluster_reconciled_details(one.went_on, one.ended_meanwhile, one.not_found, one.stopped)
            _log.info("reconciled with a cluster", region=region, cluster=one.cluster, **details)
            events.append(Event(now, EventKind.CLUSTER_RECONCILED, region=region, cluster=one.cluster, details=details))
        if events:
            async with fenced_transaction(self._database, self._lease) as connection:
                await event_store.append(connection, events)
