"""A region has won an owner's workload together with one that uses the owner's cells: the one starts, leaves, and the log says so."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from domain.cells import CellHierarchy, CellLevel, ClusterCells
from domain.clock import ManualClock
from domain.declared_cells import DeclaredCells, DeclaredVirtualCluster
from domain.fleet import Fleet, Region
from domain.identifiers import ANY_GPU_MODEL, AttemptNumber, JobName, TenantId, WorkloadId
from domain.placement import AttemptKey
from domain.resources import Quota, TaskResources
from domain.tenant import Tenant
from domain.workload import Emulated, JobSpecification, WorkloadSpecification
from services.database import event_store, fleet_store, tenant_store, workload_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.workload_store import NewWorkload
from services.wire.workloads import specification_to_proto
from tests.database.small_world import EAST, award_to_east
from tests.live.world import A100, gpu_cluster
from tests.regional_scheduler_service.won_in_the_east import dispatch_won, loaded, take_over

GUEST, OWNER = TenantId("guest"), TenantId("owner")
FIRST, SECOND = WorkloadId("w000001"), WorkloadId("w000002")
NOW_S = 3000.0


async def set_up(connection: AnyConnection) -> None:
    """One machine, all of which the owner owns; the guest's workload stands before the owner's, and both are won."""
    levels = (CellLevel("gpu"), CellLevel("machine", 8))
    divided = replace(
        gpu_cluster("divided", A100, 1), mechanism="cells", cells=ClusterCells((CellHierarchy("a100", A100, levels),))
    )
    quota = Quota.of({ANY_GPU_MODEL: 100})
    owned = (DeclaredVirtualCluster(divided.cluster, (DeclaredCells("machine", 1),)),)
    await fleet_store.apply_fleet(connection, Fleet((Region(EAST, (divided,)),)))
    await tenant_store.apply_tenants(
        connection, (Tenant(GUEST, 1, quota), Tenant(OWNER, 2, quota, virtual_clusters=owned))
    )
    submitted = []
    for name, tenant in ((FIRST, GUEST), (SECOND, OWNER)):
        job = JobSpecification(JobName("main"), 1, TaskResources(8, A100), Emulated(1e6))
        wanted = WorkloadSpecification(name, tenant, (job,))
        serialized = specification_to_proto(wanted).SerializeToString()
        submitted.append(NewWorkload(name, wanted, serialized, 1.0, None, None))
    await workload_store.insert_submissions(connection, submitted)
    for priority, tenant in ((1, GUEST), (2, OWNER)):
        await connection.execute(
            "UPDATE queue_entries SET priority = %s, level = 0, credit = 0, within_quota = true WHERE tenant = %s",
            (priority, tenant),
        )
    await award_to_east(connection, FIRST, SECOND)


def test_an_owner_has_leave_what_starts_with_it(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await set_up(connection)
                memory = await loaded(connection)
                dispatched = await dispatch_won(connection, memory, ManualClock(NOW_S))
            take_over(memory, dispatched, ManualClock(NOW_S))
            async with database.transaction() as connection:
                again = await loaded(connection)
                page = await event_store.read(connection, 0, 100)
            for one in (memory, again):
                one.inventory.check()
                assert {str(h.key.workload): one.inventory.is_leaving(h.key) for h in one.inventory.holdings()} == {
                    FIRST: True,
                    SECOND: False,
                }
                waiting = one.live.get(AttemptKey(SECOND, AttemptNumber(1)))
                assert waiting is not None
                assert one.live.blocked(waiting)
            told = [(stored.event.event, stored.event.workload) for stored in page.events if stored.event.t == NOW_S]
            assert told == [("dispatched", FIRST), ("evicting", FIRST), ("dispatched", SECOND)]

    asyncio.run(scenario())
