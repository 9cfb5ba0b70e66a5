"""What the front door must know to judge a submission: fleet, tenants, tables, and what the fleet can host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import structlog

from cluster_manager.cells.declared import declarations_of, matched
from data_placement.catalog import Catalog
from domain.fleet import Fleet
from domain.identifiers import GpuModel, RegionId, TenantId
from domain.tenant import Tenant
from regional_scheduler.hosting import HostingRegions
from services.database import catalog_store, fleet_store, tenant_store
from services.database.channels import CATALOG_CHANNEL, FLEET_CHANNEL
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.revision_store import Revisions, load_revisions
from services.grpc_errors import Unavailable

_LOOK_INTERVAL_REAL_S = 5.0
"""A wake-up may get lost: the revisions are looked at so often in any case."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Changes:
    """What is newer than some revisions; None where nothing is. Tables are changed in place as they are read."""

    revisions: Revisions
    fleet: Fleet | None
    tenants: tuple[Tenant, ...] | None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """One revision of fleet and tenants, replaced as a whole when either changes; tables change in place."""

    revisions: Revisions
    fleet: Fleet
    tenants: Mapping[TenantId, Tenant]
    gpu_models: frozenset[GpuModel]
    regions: frozenset[RegionId]
    catalog: Catalog
    hosting: HostingRegions

    @staticmethod
    def of(fleet: Fleet, tenants: tuple[Tenant, ...], catalog: Catalog, revisions: Revisions) -> Surroundings:
        # What was applied matches: virtual clusters are there for what names a pinned cell.
        fleet = matched(fleet, declarations_of(tenants)).fleet
        return Surroundings(
            revisions,
            fleet,
            {tenant.tenant: tenant for tenant in tenants},
            frozenset(fleet.gpu_models()),
            frozenset(region.region for region in fleet.regions),
            catalog,
            HostingRegions(fleet.regions),
        )

    def with_changes(self, changes: Changes) -> Surroundings:
        """Those of the newer revisions."""
        if changes.fleet is not None:
            tenants = tuple(self.tenants.values()) if changes.tenants is None else changes.tenants
            return Surroundings.of(changes.fleet, tenants, self.catalog, changes.revisions)
        if changes.tenants is None:
            return replace(self, revisions=changes.revisions)
        if self.fleet.clusters_with_cells():
            return Surroundings.of(self.fleet, changes.tenants, self.catalog, changes.revisions)
        tenants_by_name = {tenant.tenant: tenant for tenant in changes.tenants}
        return replace(self, revisions=changes.revisions, tenants=tenants_by_name)


class SurroundingsKeeper:
    """The present surroundings. `run` keeps them up to date until cancelled."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._present: Surroundings | None = None
        self._loading = asyncio.Lock()

    @property
    def known(self) -> bool:
        return self._present is not None

    def present(self) -> Surroundings:
        """Raises Unavailable while there are none yet."""
        if self._present is None:
            raise Unavailable("the global scheduler is still starting; try again")
        return self._present

    async def refresh(self) -> None:
        """Takes over what is newer; raises DatabaseUnavailable."""
        async with self._loading:
            present = self._present
            if present is None:
                fleet, tenants, catalog, revisions = await self._database.run(_load, snapshot=True)
                # A fleet may have a hundred thousand machines: calls are answered meanwhile.
                self._present = await asyncio.to_thread(Surroundings.of, fleet, tenants, catalog, revisions)
            else:
                if await self._database.run(load_revisions) == present.revisions:
                    return
                changes = await self._database.run(
                    partial(_load_changes, known=present.revisions, catalog=present.catalog), snapshot=True
                )
                self._present = await asyncio.to_thread(present.with_changes, changes)
                if changes.fleet is not None:
                    former = [present.fleet]
                    del present
                    await asyncio.to_thread(_let_go, former)
            self._log_present()

    async def run(self, changed: Callable[[], None]) -> None:
        """`changed` is called when they may have become known."""
        async with self._database.listen(FLEET_CHANNEL, CATALOG_CHANNEL) as subscription:
            while True:
                try:
                    await self.refresh()
                    changed()
                except DatabaseUnavailable as error:
                    _log.warning("surroundings cannot be looked at", error=str(error))
                await subscription.wait(_LOOK_INTERVAL_REAL_S)

    def _log_present(self) -> None:
        present = self.present()
        _log.info(
            "surroundings",
            fleet=present.revisions.fleet,
            tenants=present.revisions.tenants,
            catalog=present.revisions.catalog,
            regions=len(present.regions),
            tables=len(present.catalog),
        )


def _let_go(former: list[Fleet]) -> None:
    """Frees a fleet that nothing else holds, rack by rack: a million machines at once would take 0.1 s in which no thread goes on."""
    racks = [rack for region in former[0].regions for cluster in region.clusters for rack in cluster.racks]
    former.clear()
    while racks:
        racks.pop()


async def _load(connection: AnyConnection) -> tuple[Fleet, tuple[Tenant, ...], Catalog, Revisions]:
    fleet, _ = await fleet_store.load_fleet(connection)
    tenants = await tenant_store.load_tenants(connection)
    return fleet, tenants, await catalog_store.load_catalog(connection), await load_revisions(connection)


async def _load_changes(connection: AnyConnection, known: Revisions, catalog: Catalog) -> Changes:
    revisions = await load_revisions(connection)
    await catalog_store.update_catalog(connection, catalog)
    return Changes(
        revisions,
        None if revisions.fleet == known.fleet else (await fleet_store.load_fleet(connection))[0],
        None if revisions.tenants == known.tenants else await tenant_store.load_tenants(connection),
    )
