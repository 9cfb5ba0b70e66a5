"""Takes over what was applied while the region works: into its memory, between two rounds, without a new session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from cluster_manager.capacity.errors import InventoryError
from cluster_manager.cells.declared import declarations_of, region_with_virtual_clusters, weights_of
from cluster_manager.mechanisms import NoMechanism
from data_placement.catalog import Catalog
from domain.fleet import Fleet, MachineState, Region
from domain.identifiers import ClusterId, MachineId, RegionId
from domain.tenant import Tenant
from formats.problems import FormatError
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.region_change import capacity_after_change
from services.database import catalog_store, fleet_store, tenant_store
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from services.database.revision_store import Revisions, load_revisions
from services.database.sensitivity_store import StoredProfile, load_since
from services.regional_scheduler.absent_clusters import AbsentClusters, machines_by_cluster
from services.regional_scheduler.inbox import Inbox
from services.regional_scheduler.order_sender import OrderSender
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.session_over import RegionGone, SessionOver

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Newer:
    """What is newer in the database than in the memory; None where nothing is. Tables are changed in place as they are read."""

    revisions: Revisions
    region: tuple[Region, Mapping[MachineId, MachineState]] | None
    """As it is stored: without its virtual clusters."""
    fleet: Fleet | None
    """All regions; None also where only the region's own machines matter."""
    tenants: tuple[Tenant, ...] | None
    profiles: tuple[StoredProfile, ...]


class AppliedChanges:
    """Fleet, tenants, tables and sensitivity profiles of which the database has newer revisions than the region's memory."""

    def __init__(
        self, database: Database, memory: RegionMemory, inbox: Inbox, absent: AbsentClusters, sender: OrderSender
    ) -> None:
        self._database = database
        self._memory = memory
        self._inbox = inbox
        self._absent = absent
        self._sender = sender

    async def take_over(self, now_real_s: float) -> None:
        """Brings the memory to the present revisions, if it was said that there may be newer ones.

        A workload may be placeable now that was not: so a scan pass is asked for, which gives all a new chance.
        Raises SessionOver when the region is gone, or something is held on a machine that is.
        """
        if not self._inbox.look_at_applied:
            return
        self._inbox.look_at_applied = False
        memory = self._memory
        async with self._database.transaction(pipelined=True) as connection:
            revisions = await load_revisions(connection)
        if revisions == memory.revisions:
            return
        newer = await self._database.run(
            partial(
                _load_newer,
                known=memory.revisions,
                region=memory.region.region,
                tenants_known=tuple(memory.tenants.values()),
                catalog=memory.catalog,
                heeds_fleet=memory.tuning is not None and memory.tuning.heeds_fleet,
            ),
            snapshot=True,
            give_up_after_s=0.0,
        )
        if newer.tenants is not None:
            memory.tenants = {tenant.tenant: tenant for tenant in newer.tenants}
        if newer.region is not None:
            await self._exchange_machines(*newer.region, now_real_s)
        if newer.fleet is not None and memory.tuning is not None:
            tenants = tuple(memory.tenants.values())
            async with memory.steady:
                await asyncio.to_thread(memory.tuning.fleet_changed, newer.fleet, tenants)
        memory.works.take_over(newer.profiles, newer.revisions.profiles)
        memory.revisions = newer.revisions
        _log.info(
            "took over what was applied",
            region=memory.region.region,
            fleet=newer.revisions.fleet,
            tenants=newer.revisions.tenants,
            catalog=newer.revisions.catalog,
        )
        async with self._database.transaction() as connection:
            wake_after_commit(connection, SCAN_CHANNEL)

    async def _exchange_machines(
        self, region: Region, states: Mapping[MachineId, MachineState], now_real_s: float
    ) -> None:
        memory = self._memory
        # In a thread, for a region may have many thousands of machines. Only the session's loop changes the memory, and
        # that waits here; whoever plans on it or reads several things of it waits, too.
        try:
            async with memory.steady:
                machines = await asyncio.to_thread(_exchange, memory, region, states)
        except InventoryError as error:
            raise SessionOver(f"what the region holds does not fit its machines any more: {error}") from error
        except (NoMechanism, FormatError) as error:
            raise SessionOver(str(error)) from error
        self._absent.machines_changed(machines, now_real_s)
        self._sender.clusters_changed(memory.region)


def _exchange(
    memory: RegionMemory, region: Region, states: Mapping[MachineId, MachineState]
) -> Mapping[ClusterId, tuple[MachineId, ...]]:
    """Returns the machines of each cluster. When it raises, the memory is as it was."""
    region = region_with_virtual_clusters(region, tuple(memory.tenants.values()))
    sources = () if memory.tuning is None else memory.tuning.sources(region)
    inventory = capacity_after_change(memory.inventory, region, states, sources)
    memory.exchange_machines(region, inventory, RegionBidder(region, inventory, memory.catalog))
    return machines_by_cluster(region)


async def _load_newer(
    connection: AnyConnection,
    known: Revisions,
    region: RegionId,
    tenants_known: Sequence[Tenant],
    catalog: Catalog,
    *,
    heeds_fleet: bool,
) -> _Newer:
    revisions = await load_revisions(connection)
    tenants = None if revisions.tenants == known.tenants else await tenant_store.load_tenants(connection)
    machines, whole_fleet = None, None
    if revisions.fleet != known.fleet or _share_otherwise(tenants, tenants_known):
        fleet, states = await fleet_store.load_fleet(connection, region)
        if not fleet.regions:
            raise RegionGone(f"the fleet has no region {region} any more")
        machines = (fleet.regions[0], states)
        if heeds_fleet:
            whole_fleet, _ = await fleet_store.load_fleet(connection)
    await catalog_store.update_catalog(connection, catalog)
    return _Newer(revisions, machines, whole_fleet, tenants, await load_since(connection, known.profiles))


def _share_otherwise(tenants: Sequence[Tenant] | None, known: Sequence[Tenant]) -> bool:
    """Whether other cells are owned now, or they are shared by other weights. None: the tenants are those that are known."""
    if tenants is None:
        return False
    now, before = (
        {tenant: declared for tenant, declared in declarations_of(some).items() if declared}
        for some in (tenants, known)
    )
    return now != before or (bool(now) and weights_of(tenants) != weights_of(known))
