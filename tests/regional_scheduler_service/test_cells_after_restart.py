"""A region that is started anew before every decision decides what one decides that goes on, to the last cell."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from domain.cells import CellHierarchy, CellLevel, ClusterCells
from domain.declared_cells import DeclaredCells, DeclaredMachines, DeclaredPin, DeclaredVirtualCluster
from domain.fleet import Fleet, Region
from domain.identifiers import ANY_GPU_MODEL, GpuModel, JobName, MachineId, RegionId, TenantId, WorkloadId
from domain.resources import Quota, TaskResources
from domain.tenant import Tenant
from domain.workload import Emulated, JobSpecification, WorkloadSpecification
from services.database import attempt_store, catalog_store, fleet_store, tenant_store, workload_store
from services.database.attempt_store import StoredAttempt
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.workload_store import NewWorkload
from services.wire.workloads import specification_to_proto
from tests.database.small_world import FORGET_WORKLOADS
from tests.live.world import A100, gpu_cluster
from tests.regional_scheduler_service.test_auctioneering import AuctioningRegion, open_region

EAST = RegionId("east")
OWNER, OTHER, GUEST = TenantId("owner"), TenantId("other"), TenantId("guest")
LEVELS = (CellLevel("gpu"), CellLevel("socket", 4), CellLevel("machine", 2))
WAVES, PER_WAVE = 5, 10
UNLIMITED = Quota.of({ANY_GPU_MODEL: 10_000})


def fleet() -> Fleet:
    divided = replace(
        gpu_cluster("divided", A100, 5),
        mechanism="cells",
        cells=ClusterCells((CellHierarchy("a100", A100, LEVELS),)),
    )
    return Fleet((Region(EAST, (divided, gpu_cluster("packed", GpuModel("V100"), 1))),))


def tenants() -> tuple[Tenant, ...]:
    divided = fleet().regions[0].clusters[0].cluster
    pinned = (DeclaredPin("fast", "socket", MachineId("divided-m4"), 6),)
    return (
        Tenant(GUEST, 3, UNLIMITED),
        Tenant(OTHER, 2, UNLIMITED, virtual_clusters=(DeclaredVirtualCluster(divided, (DeclaredCells("socket", 3),)),)),
        Tenant(
            OWNER,
            1,
            UNLIMITED,
            virtual_clusters=(DeclaredVirtualCluster(divided, pinned=pinned, machines=DeclaredMachines(16, 2)),),
        ),
    )


def specification(number: int, rng: np.random.Generator) -> WorkloadSpecification:
    tenant = (OWNER, OTHER, GUEST)[int(rng.integers(3))]
    gpus, tasks = ((1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (8, 2))[int(rng.integers(6))]
    job = JobSpecification(JobName("main"), tasks, TaskResources(gpus, A100), Emulated(1e6))
    return WorkloadSpecification(f"w{number}", tenant, (job,))


async def begin_wave(connection: AnyConnection, wave: int, rng: np.random.Generator) -> None:
    """New workloads, and a scan pass over the queue, at another standing for each tenant."""
    submitted = []
    for number in range(wave * PER_WAVE, (wave + 1) * PER_WAVE):
        wanted = specification(number, rng)
        serialized = specification_to_proto(wanted).SerializeToString()
        submitted.append(NewWorkload(WorkloadId(f"w{number:06}"), wanted, serialized, float(number), None, None))
    await workload_store.insert_submissions(connection, submitted)
    for tenant in tenants():
        await connection.execute(
            "UPDATE queue_entries SET priority = %s, level = 0, credit = 0, within_quota = true WHERE tenant = %s",
            (tenant.priority, tenant.tenant),
        )
    await connection.execute(
        "INSERT INTO scan_passes (now_s, entries, changed, reclassified) VALUES (%s, %s, 0, 0)", (1e4 + wave, PER_WAVE)
    )


async def end_some(connection: AnyConnection, region: AuctioningRegion, rng: np.random.Generator) -> None:
    """What is leaving has left, and some of the others are at their end."""
    for attempt in await attempt_store.load_live(connection, EAST):
        if attempt.state.value == "PREEMPTING" or rng.random() < 0.3:
            await connection.execute(
                "UPDATE attempts SET state = 'ENDED', ended_s = 1 WHERE workload = %s", (attempt.key.workload,)
            )
            await connection.execute(
                "UPDATE workloads SET state = 'COMPLETED' WHERE workload = %s", (attempt.key.workload,)
            )
            region.memory.inventory.release(attempt.key)
            region.memory.live.remove(attempt.key)


async def story(database: Database, seed: int, *, restarts: bool) -> list[list[StoredAttempt]]:
    """What runs after each wave."""
    rng = np.random.default_rng(seed)
    async with database.transaction() as connection:
        await connection.execute(
            f"{FORGET_WORKLOADS}; DELETE FROM leases; DELETE FROM auction_rounds; DELETE FROM awards"
        )
        await fleet_store.apply_fleet(connection, fleet())
        await catalog_store.apply_tables(connection, ())
        await tenant_store.apply_tenants(connection, tenants())
    region = await open_region(database, EAST)
    found: list[list[StoredAttempt]] = []
    for wave in range(WAVES):
        if restarts:
            async with database.transaction() as connection:
                await connection.execute("DELETE FROM leases")
            region = await open_region(database, EAST)
        async with database.transaction() as connection:
            await begin_wave(connection, wave, rng)
        while await region.step():
            pass
        async with database.transaction() as connection:
            found.append(await attempt_store.load_live(connection, EAST))
            for attempt in found[-1]:
                holding = region.memory.inventory.holding(attempt.key)
                assert holding is not None
                assert (holding.placements, sorted(holding.cells)) == (attempt.placements, sorted(attempt.cells))
            await end_some(connection, region, rng)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_never_decides_otherwise_after_a_restart(database_url: str, seed: int) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            went_on = await story(database, seed, restarts=False)
            started_anew = await story(database, seed, restarts=True)
        assert started_anew == went_on
        in_cells = [attempt for wave in went_on for attempt in wave if attempt.cells]
        evicted = [attempt for wave in went_on for attempt in wave if attempt.eviction is not None]
        assert in_cells
        assert evicted
        assert any(not attempt.cells for wave in went_on for attempt in wave)

    asyncio.run(scenario())
