"""What the front door must know to judge a submission: the fleet, the tenants, and what they can host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from domain.fleet import Fleet
from domain.identifiers import GpuModel, RegionId, TableId, TenantId
from domain.tenant import Tenant
from regional_scheduler.hosting import HostingRegions
from services.database import fleet_store, tenant_store
from services.database.channels import FLEET_CHANNEL
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.grpc_errors import Unavailable

_LOOK_INTERVAL_REAL_S = 5.0
"""A wake-up may get lost: the revisions are looked at so often in any case."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Revisions:
    """Which fleet and which tenants."""

    fleet: int
    tenants: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """One revision of fleet and tenants; replaced as a whole when either changes."""

    revisions: Revisions
    fleet: Fleet
    tenants: Mapping[TenantId, Tenant]
    gpu_models: frozenset[GpuModel]
    regions: frozenset[RegionId]
    tables: frozenset[TableId]
    hosting: HostingRegions

    @staticmethod
    def of(fleet: Fleet, tenants: tuple[Tenant, ...], revisions: Revisions) -> Surroundings:
        return Surroundings(
            revisions,
            fleet,
            {tenant.tenant: tenant for tenant in tenants},
            frozenset(fleet.gpu_models()),
            frozenset(region.region for region in fleet.regions),
            frozenset(table.table for table in fleet.tables),
            HostingRegions(fleet.regions),
        )


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
        """Loads them when there are newer ones; raises DatabaseUnavailable."""
        async with self._loading:
            revisions = await self._database.run(_load_revisions)
            if self._present is not None and self._present.revisions == revisions:
                return
            fleet, tenants, revisions = await self._database.run(_load, snapshot=True)
            # A fleet may have a hundred thousand machines: calls are answered meanwhile.
            self._present = await asyncio.to_thread(Surroundings.of, fleet, tenants, revisions)
            _log.info("surroundings", fleet=revisions.fleet, tenants=revisions.tenants, regions=len(fleet.regions))

    async def run(self, changed: Callable[[], None]) -> None:
        """`changed` is called when they may have become known."""
        async with self._database.listen(FLEET_CHANNEL) as subscription:
            while True:
                try:
                    await self.refresh()
                    changed()
                except DatabaseUnavailable as error:
                    _log.warning("surroundings cannot be looked at", error=str(error))
                await subscription.wait(_LOOK_INTERVAL_REAL_S)


async def _load_revisions(connection: AnyConnection) -> Revisions:
    return Revisions(await fleet_store.fleet_revision(connection), await tenant_store.tenants_revision(connection))


async def _load(connection: AnyConnection) -> tuple[Fleet, tuple[Tenant, ...], Revisions]:
    fleet, _ = await fleet_store.load_fleet(connection)
    return fleet, await tenant_store.load_tenants(connection), await _load_revisions(connection)
