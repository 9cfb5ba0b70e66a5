"""A whole service that asks who is calling, two tenants with work in it, and callers of every role."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc

from domain.fleet import Fleet, Region
from domain.identifiers import ANY_GPU_MODEL, RegionId, TableId, TenantId
from domain.resources import Quota
from domain.table import Table
from domain.tenant import Tenant
from domain.workload import Emulated
from services.database import ownership_store, package_store, token_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.runtime.in_process import InProcessService, run_in_process
from services.security.home_tokens import admin_token_file
from services.security.tokens import new_token
from services.wire.workloads import specification_to_proto
from tests.live.running import CONFIGURATION, PATIENCE_REAL_S
from tests.live.world import A100, EAST, gpu_cluster, one_job
from topmast import AsyncClient

OWN, FOREIGN = "acme", "globex"
"""Tenants: that of the callers who are limited to one, and the other one."""

FOREIGN_NAME = "zeppelin"
"""In the name of everything that is the other tenant's."""

PACKAGE = "a" * 64
OWN_TABLE, FOREIGN_TABLE, SHARED_TABLE = f"{OWN}space.clicks", f"{FOREIGN_NAME}space.clicks", "weather"

_FLEET = Fleet(
    (Region(EAST, (gpu_cluster("east-a", A100, 1),)), Region(RegionId("west"), (gpu_cluster("west-a", A100, 1),)))
)
_TENANTS = tuple(Tenant(TenantId(name), 1, Quota.of({ANY_GPU_MODEL: 16}, cpus=96.0)) for name in (OWN, FOREIGN))
_TABLES = tuple(Table(TableId(name), 10**9, EAST) for name in (OWN_TABLE, FOREIGN_TABLE, SHARED_TABLE))


@dataclass
class GuardedService:
    """The service, its callers, and what there is in it."""

    service: InProcessService
    database: Database
    admin_token: str
    tokens: dict[str, str] = field(default_factory=dict)
    """By role; those of tenant and read-only are for OWN."""
    running: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    """Workloads by tenant."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Of the three kinds of tier."""

    async def make_token(
        self, role: str, tenants: tuple[str, ...] = (), *, name: str = "", expires_in_s: float | None = None
    ) -> tuple[str, str]:
        """Its id and as it is presented."""
        shown, token = new_token()
        expires_at = None if expires_in_s is None else datetime.now(UTC) + timedelta(seconds=expires_in_s)
        await self.database.run(
            lambda connection: token_store.insert(
                connection, token.token, token.secret_hash, name or role, role, tenants, "the test", expires_at
            )
        )
        return token.token, shown

    @asynccontextmanager
    async def client(self, token: str) -> AsyncIterator[AsyncClient]:
        async with AsyncClient(self.service.address, token=token, attempts=1) as client:
            yield client

    def channel(self, tier: str) -> grpc.aio.Channel:
        """A channel without a token."""
        return grpc.aio.insecure_channel(self.addresses[tier])


@asynccontextmanager
async def guarded_service(database_url: str, home: Path) -> AsyncIterator[GuardedService]:
    """Each tenant has a workload that runs, one that waits, a table; there is one table that is nobody's, and one package of FOREIGN."""
    async with (
        run_in_process(
            database_url,
            _FLEET,
            _TENANTS,
            home,
            configuration=CONFIGURATION,
            clock_speed=1.0,
            tables=_TABLES,
            authentication=True,
        ) as service,
        Database(database_url) as database,
    ):
        guarded = GuardedService(service, database, admin_token_file(home).read_text().strip())
        await database.run(_own_tables)
        async with guarded.client(guarded.admin_token) as admin, asyncio.timeout(PATIENCE_REAL_S):
            await _submit(guarded, admin)
            for tier in (await admin.status()).tiers:
                guarded.addresses.setdefault(tier.tier, tier.address)
        for role, tenants in (("operator", ()), ("tenant", (OWN,)), ("read-only", (OWN,)), ("tier", ())):
            _, guarded.tokens[role] = await guarded.make_token(role, tenants)
        guarded.tokens["admin"] = guarded.admin_token
        yield guarded


async def _own_tables(connection: AnyConnection) -> None:
    for tenant, table in ((OWN, OWN_TABLE), (FOREIGN, FOREIGN_TABLE)):
        await connection.execute(
            "INSERT INTO data_namespaces (namespace, tenant) VALUES (%s, %s)", (table.partition(".")[0], tenant)
        )
    await package_store.note_stored(connection, PACKAGE, 1)
    await ownership_store.note_package_owners(connection, PACKAGE, [FOREIGN])


async def _submit(guarded: GuardedService, admin: AsyncClient) -> None:
    work = Emulated(1e8, 1e5)
    for tenant, region in ((OWN, "east"), (FOREIGN, "west")):
        name = FOREIGN_NAME if tenant == FOREIGN else "runs"
        asked = specification_to_proto(one_job(name, TenantId(tenant), work, gpus=8))
        asked.regions.append(region)
        guarded.running[tenant] = (await admin.submit(asked)).workload
    left = set(guarded.running.values())
    async for event in admin.events(follow=True):
        if event.event == "started":
            left.discard(event.workload or "")
        if not left:
            break
    for tenant in (OWN, FOREIGN):
        name = f"{FOREIGN_NAME}-2" if tenant == FOREIGN else "waits"
        asked = specification_to_proto(one_job(name, TenantId(tenant), work, gpus=8))
        guarded.waiting[tenant] = (await admin.submit(asked)).workload
