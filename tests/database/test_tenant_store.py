import asyncio

import pytest

from domain.declared_cells import DeclaredCells, DeclaredMachines, DeclaredPin, DeclaredVirtualCluster
from domain.identifiers import ANY_GPU_MODEL, ClusterId, GpuModel, MachineId, TenantId, WorkloadId
from domain.resources import Quota
from domain.tenant import Tenant
from services.database import cancellation_store, lease_store, tenant_store, workload_store
from services.database.engine import Database
from services.database.tenant_store import TenantsRefused
from tests.database.small_world import (
    ADS,
    TENANTS,
    VISION,
    specification,
    submission,
    submit,
    until_somebody_waits,
)


def test_tenants_come_back_as_they_were_applied(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            assert await database.run(tenant_store.load_tenants) == ()
            owned = DeclaredVirtualCluster(
                ClusterId("east-a"),
                (DeclaredCells("rack", 1, "v100"), DeclaredCells("gpu", 3)),
                (DeclaredPin("fast", "switch", MachineId("m1"), 2),),
            )
            short = DeclaredVirtualCluster(ClusterId("east-b"), machines=DeclaredMachines(32, 4, GpuModel("A100")))
            unlimited = Tenant(TenantId("a/b.c"), 0, Quota.of({}, None), virtual_clusters=(owned, short))
            wanted = (*TENANTS, unlimited)
            for _ in range(2):
                assert await database.run(lambda connection: tenant_store.apply_tenants(connection, wanted)) == 1
            assert await database.run(tenant_store.load_tenants) == tuple(sorted(wanted, key=lambda t: t.tenant))
            changed = Tenant(ADS, 2, Quota.of({ANY_GPU_MODEL: 1}, 2.5), 0.5)
            assert await database.run(lambda connection: tenant_store.apply_tenants(connection, [changed])) == 2
            assert await database.run(tenant_store.load_tenants) == (changed,)
            assert await database.run(tenant_store.tenants_revision) == 2

    asyncio.run(scenario())


def test_tenant_with_unended_work_must_not_disappear(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            batch = [submission(1), submission(2), submission(3, specification(VISION))]
            await database.run(lambda connection: submit(connection, batch))
            with pytest.raises(TenantsRefused, match=r"ads \(2\); cancel"):
                await database.run(lambda connection: tenant_store.apply_tenants(connection, TENANTS[1:]))
            for number in (1, 2):
                name = WorkloadId(f"w00000{number}")
                async with database.transaction() as connection:
                    await cancellation_store.cancel(connection, name, "", 10.0)
            await database.run(lambda connection: tenant_store.apply_tenants(connection, TENANTS[1:]))
            assert await database.run(tenant_store.load_tenants) == TENANTS[1:]

    asyncio.run(scenario())


def test_tenant_cannot_disappear_under_a_submission(database_url: str) -> None:
    """1. A submission of the tenant is under way. 2. The tenant is to go: that waits. 3. It is refused."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, []))
            async with database.transaction() as submitting:
                await workload_store.insert_submissions(submitting, [submission(1)])
                applying = asyncio.create_task(
                    database.run(lambda connection: tenant_store.apply_tenants(connection, TENANTS[1:]))
                )
                await until_somebody_waits(database)
            with pytest.raises(TenantsRefused):
                await applying

    asyncio.run(scenario())


def test_regions_cannot_charge_the_quotas_of_before(database_url: str) -> None:
    """1. A region writes. 2. Tenants are to change: that waits. 3. What the region writes next sees the new ones."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: tenant_store.apply_tenants(connection, TENANTS))
            lease = await database.run(
                lambda connection: lease_store.acquire(connection, "regional/east", "me", "here:1", 1, 60.0)
            )
            assert lease is not None
            async with database.transaction() as writing:
                await lease_store.assert_held(writing, lease)
                applying = asyncio.ensure_future(
                    database.run(lambda connection: tenant_store.apply_tenants(connection, TENANTS[:1]))
                )
                await until_somebody_waits(database)
                assert await tenant_store.tenants_revision(writing) == 1
            await applying
            async with database.transaction() as writing:
                await lease_store.assert_held(writing, lease)
                assert await tenant_store.tenants_revision(writing) == 2

    asyncio.run(scenario())
