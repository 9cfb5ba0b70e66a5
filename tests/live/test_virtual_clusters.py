"""Virtual clusters in a running service: owners get their cells at once, whoever is on them, also after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from domain.cells import CellHierarchy, CellLevel, ClusterCells
from domain.declared_cells import DeclaredCells, DeclaredMachines, DeclaredVirtualCluster
from domain.fleet import Fleet, Region
from domain.identifiers import ANY_GPU_MODEL, ClusterId
from domain.resources import Quota
from domain.tenant import Tenant
from domain.workload import Emulated
from services.wire.fleets import fleet_to_proto, tenant_to_proto
from tests.live.running import LiveRun, in_live_service
from tests.live.world import A100, EAST, RANKING, RESEARCH, V100, VISION, gpu_cluster, one_job
from topmast import Event

pytestmark = pytest.mark.live

DIVIDED = ClusterId("divided")
LEVELS = (CellLevel("gpu"), CellLevel("socket", 4), CellLevel("machine", 2))
_LONG = Emulated(1e6, 60.0)


def fleet(machines: int = 4) -> Fleet:
    """A cluster with cells beside one that is packed."""
    cells = ClusterCells((CellHierarchy("a100", A100, LEVELS),))
    divided = replace(gpu_cluster("divided", A100, machines), mechanism="cells", cells=cells)
    return Fleet((Region(EAST, (divided, gpu_cluster("packed", V100, 1))),))


def owning(*, ranking: int = 2, vision: int = 3) -> tuple[Tenant, ...]:
    """Ranking owns machines, vision sockets, and research nothing. None has so high a priority that it matters."""
    unlimited = Quota.of({ANY_GPU_MODEL: 1_000})
    machines = DeclaredVirtualCluster(DIVIDED, machines=DeclaredMachines(8 * ranking, ranking))
    sockets = DeclaredVirtualCluster(DIVIDED, (DeclaredCells("socket", vision),))
    return (
        Tenant(RANKING, 2, unlimited, virtual_clusters=(machines,)),
        Tenant(VISION, 3, unlimited, virtual_clusters=(sockets,)),
        Tenant(RESEARCH, 4, unlimited),
    )


def machines_of(event: Event) -> set[str]:
    placement = event.details["placement"]
    assert isinstance(placement, list)
    return {str(task["machine"]) for task in placement if isinstance(task, dict)}


async def seen(run: LiveRun, kind: str, workloads: Sequence[str]) -> None:
    """Until each of them has had that event."""
    for workload in workloads:
        if not any((event.event, event.workload) == (kind, workload) for event in run.events):
            await run.until_event(kind, workload)


async def cells_of(run: LiveRun) -> list[tuple[object, ...]]:
    """Of what lives, as stored."""
    async with run.database.transaction() as connection:
        cursor = await connection.execute(
            """SELECT c.workload, c.attempt, c.job, c.cells FROM attempt_cells c JOIN attempts a USING (workload, attempt)
                WHERE a.ended_s IS NULL ORDER BY 1, 2, 3"""
        )
        return await cursor.fetchall()


def test_owners_start_at_once_and_go_on_through_a_restart(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        guests = await run.submit([one_job(f"guest{n}", RESEARCH, _LONG, gpus=8, model=A100) for n in range(4)])
        packed = await run.submit([one_job("packed", RESEARCH, Emulated(600.0), gpus=8, model=V100)])
        await seen(run, "started", [*guests, *packed])
        full = await run.client.virtual_clusters()
        assert (full.clusters[0].opportunistic_gpus, full.clusters[0].idle_gpus) == (32, 0)
        # Both owners ask for what is theirs: as many guests leave as stand on it, and no more.
        (gang,) = await run.submit([one_job("gang", RANKING, _LONG, gpus=8, tasks=2, model=A100)])
        await run.until_event("started", gang)
        (small,) = await run.submit([one_job("small", VISION, _LONG, gpus=4, model=A100)])
        await run.until_event("started", small)
        assert run.count("evicted", cause="preempted") == 3
        before, cells = await run.client.virtual_clusters(), await cells_of(run)
        assert [(one.tenant, one.owned_gpus, one.guaranteed_gpus) for one in before.tenants] == [
            ("ranking", 16, 16),
            ("research", 0, 0),
            ("vision", 12, 4),
        ]
        assert [(level.tenant, level.level, level.owned, level.used) for level in before.levels] == [
            ("ranking", "machine", 2, 2),
            ("vision", "socket", 3, 1),
        ]
        await run.service.stop("regional/east")
        await run.service.start("regional/east")
        await run.service.wait_until_held(run.database)
        # Nothing has moved; the rest of its cells is still vision's, and ranking has no more than it owns.
        assert (await run.client.virtual_clusters(), await cells_of(run)) == (before, cells)
        rest = await run.submit([one_job(f"rest{n}", VISION, _LONG, gpus=4, model=A100) for n in range(2)])
        (beyond,) = await run.submit([one_job("beyond", RANKING, Emulated(600.0), gpus=8, model=A100)])
        await seen(run, "started", rest)
        await seen(run, "waiting", [beyond])
        after = await run.client.virtual_clusters(tenant="vision")
        assert [(one.owned_gpus, one.guaranteed_gpus, one.opportunistic_gpus) for one in after.tenants] == [(12, 12, 0)]
        for workload in (gang, small, *guests, *rest):
            await run.client.cancel(workload)
        await run.follow()
        run.check(fleet(), owning())
        await run.check_nothing_is_left()

    in_live_service(database_url, tmp_path, scenario, fleet=fleet(), tenants=owning())


async def apply_both(run: LiveRun, described: Fleet, tenants: Sequence[Tenant]) -> None:
    """Together: neither would match what is there of the other."""
    await run.client.apply_fleet(fleet_to_proto(described), [tenant_to_proto(tenant) for tenant in tenants])


async def gpus_of(run: LiveRun, tenant: str) -> tuple[int, int, int]:
    """Guaranteed, opportunistic and downgraded ones."""
    (found,) = (await run.client.virtual_clusters(tenant=tenant)).tenants
    return found.guaranteed_gpus, found.opportunistic_gpus, found.downgraded_gpus


def in_other_order(described: Fleet) -> Fleet:
    """With the machines of the first cluster the other way round: so all their cells have other numbers."""
    (region,) = described.regions
    divided, *others = region.clusters
    (rack,) = divided.racks
    turned = replace(divided, racks=(replace(rack, machines=rack.machines[::-1]),))
    return Fleet((replace(region, clusters=(turned, *others)),))


def test_work_goes_on_when_its_virtual_cluster_changes(database_url: str, tmp_path: Path) -> None:
    """It loses its cells, which is written down, and has them back as soon as they are owned again."""

    async def scenario(run: LiveRun) -> None:
        (gang,) = await run.submit([one_job("gang", RANKING, _LONG, gpus=8, tasks=2, model=A100)])
        (small,) = await run.submit([one_job("small", VISION, _LONG, gpus=4, model=A100)])
        await seen(run, "started", [gang, small])
        assert await gpus_of(run, "ranking") == (16, 0, 0)
        # One machine less than the gang stands on; and nobody is asked to leave for it.
        await run.client.apply_tenants([tenant_to_proto(tenant) for tenant in owning(ranking=1)])
        await run.until_event("downgraded", gang)
        assert await gpus_of(run, "ranking") == (0, 16, 16)
        (attempt,) = (await run.client.get(gang)).attempts
        assert [(cells.virtual_cluster, cells.downgraded) for cells in attempt.cells] == [("ranking", True)]
        assert await gpus_of(run, "vision") == (4, 0, 0)
        await run.service.stop("regional/east")
        await run.service.start("regional/east")
        await run.service.wait_until_held(run.database)
        assert await gpus_of(run, "ranking") == (0, 16, 16)
        await run.client.apply_tenants([tenant_to_proto(tenant) for tenant in owning()])
        await run.until_event("restored", gang)
        assert await gpus_of(run, "ranking") == (16, 0, 0)
        # Machines in another order have other cells: what runs there has these, and nothing happens to it.
        await apply_both(run, in_other_order(fleet()), owning())
        (proof,) = await run.submit([one_job("proof", VISION, Emulated(60.0), gpus=4, model=A100)])
        await run.until_event("completed", proof)
        assert (await gpus_of(run, "ranking"), await gpus_of(run, "vision")) == ((16, 0, 0), (4, 0, 0))
        before = await cells_of(run)
        await run.service.stop("regional/east")
        await run.service.start("regional/east")
        await run.service.wait_until_held(run.database)
        (again,) = await run.submit([one_job("again", VISION, Emulated(60.0), gpus=4, model=A100)])
        await run.until_event("completed", again)
        assert await cells_of(run) == before
        assert (run.count("evicting"), run.count("downgraded"), run.count("restored")) == (0, 1, 1)
        for workload in (gang, small):
            await run.client.cancel(workload)
        await run.follow()
        run.check(fleet(), owning())
        await run.check_nothing_is_left()

    in_live_service(database_url, tmp_path, scenario, fleet=fleet(), tenants=owning())
