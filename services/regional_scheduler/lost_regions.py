"""Other regions that are lost: neither their schedulers nor any of their managers have held a lease for too long.

The tasks of a cluster stop themselves when the lease of its manager has ended for the stated time. So all that the region had
is ended here, by any region that is there; a scheduler of it that comes back begins with what that leaves. While one manager
is there nothing is ended: what runs needs no scheduler to run on, and its ends are kept until there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import structlog

from domain.clock import Clock
from domain.identifiers import ClusterId, RegionId, WorkloadId
from domain.reservation import ReservationEnd
from services.configuration import LeaseConfiguration
from services.database import award_store, fleet_store, lease_store, lost_cluster_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.lost_attempts import end_in_database
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.reserving import end_all_reservations
from services.tiers.fenced_transaction import fenced_transaction

_INTERVAL_REAL_S = 5.0

_log = structlog.get_logger(__name__)


class LostRegions:
    """Looks for them now and then; times are real seconds of the session's clock."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        memory: RegionMemory,
        configuration: LeaseConfiguration,
        clock: Clock,
        now_real_s: float,
    ) -> None:
        self._database = database
        self._lease = lease
        self._own = memory.region.region
        self._clock = clock
        self._limits = (configuration.tasks_stop_after_real_s, configuration.lost_grace_real_s)
        self._interval_real_s = min(_INTERVAL_REAL_S, configuration.lost_grace_real_s)
        # When the database was away no scheduler could renew its lease, and all come back with it.
        self._due_real_s = now_real_s + configuration.lost_grace_real_s

    async def look(self, now_real_s: float) -> None:
        """Declares lost what is."""
        if now_real_s < self._due_real_s:
            return
        self._due_real_s = now_real_s + self._interval_real_s
        for region in await self._overdue():
            async with fenced_transaction(self._database, self._lease) as connection:
                # Its scheduler, should it be back, and all other regions wait here; only one finds it still overdue.
                await lease_store.fence_regions(connection, [region])
                if region not in await lost_cluster_store.overdue_regions(connection, self._own, *self._limits):
                    continue
                silent_s = -(await lease_store.left_s(connection, f"{lease_store.REGIONAL_PREFIX}{region}") or 0.0)
                why = f"the scheduler of its region has held no lease for {silent_s:.0f} s, nor has any manager there"
                losses = await declare_region_lost(connection, region, why, self._clock.now())
            _log.error("region lost", region=region, why=why, workloads=len(losses.workloads))

    async def _overdue(self) -> list[RegionId]:
        after_s, grace_s = self._limits
        return await self._database.run(
            partial(lost_cluster_store.overdue_regions, but=self._own, tasks_stop_after_s=after_s, grace_s=grace_s),
            give_up_after_s=0.0,
        )


class Losses(NamedTuple):
    """What came of declaring something lost."""

    clusters: list[ClusterId]
    """Those that were not lost before, sorted."""
    workloads: list[WorkloadId]
    """Of the attempts that end, sorted."""


async def declare_clusters_lost(
    connection: AnyConnection, region: RegionId, clusters: Sequence[ClusterId], why: str, now: float
) -> Losses:
    """These clusters of the region are lost, and what it had there ends. The caller has fenced the region."""
    await lost_cluster_store.fence(connection, clusters)
    declared = await lost_cluster_store.declare(connection, region, clusters, why, now)
    return Losses(declared, await end_in_database(connection, region, clusters, why, now))


async def declare_region_lost(connection: AnyConnection, region: RegionId, why: str, now: float) -> Losses:
    """The same for all clusters of the region; what it had won is put up again, and nothing is kept there."""
    losses = await declare_clusters_lost(
        connection, region, await fleet_store.clusters_of(connection, region), why, now
    )
    await award_store.give_back_awards_of(connection, region)
    await end_all_reservations(connection, region, ReservationEnd.MACHINE_LOST, now)
    return losses
