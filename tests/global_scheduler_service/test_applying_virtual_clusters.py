"""Virtual clusters are applied with the fleet that has them, or not at all."""

from dataclasses import replace

import grpc
from google.rpc import error_details_pb2

from domain.cells import CellHierarchy, CellLevel, CellPair, CellUse, ClusterCells, TaskCellUse
from domain.declared_cells import DeclaredCells, DeclaredMachines, DeclaredVirtualCluster
from domain.fleet import Cluster, Fleet
from domain.identifiers import ClusterId, JobName, VirtualClusterId
from domain.tenant import Tenant
from services.database import fleet_store, tenant_store
from services.wire.fleets import fleet_to_proto, tenant_to_proto
from services.wire.workloads import specification_to_proto
from tests.database.small_world import A100, ADS, FLEET, TABLES, TENANTS, VISION, dispatch, placement, specification
from tests.global_scheduler_service.service import Service, attempt_of, detail, in_service, refused, violated_fields
from topmast.v1 import global_scheduler_pb2 as messages

LEVELS = (CellLevel("gpu"), CellLevel("machine", 8), CellLevel("rack", 2))
DIVIDED_BY = CellHierarchy("a100", A100, LEVELS)


def with_cells(*hierarchies: CellHierarchy, mechanism: str = "cells") -> Fleet:
    """The fleet whose first cluster, of two racks with two machines each, is divided so."""
    east, *others = FLEET.regions
    first, *rest = east.clusters
    divided: Cluster = replace(first, mechanism=mechanism, cells=ClusterCells(hierarchies))
    return Fleet((replace(east, clusters=(divided, *rest)), *others))


def owning(*owned: DeclaredVirtualCluster) -> tuple[Tenant, ...]:
    return (replace(TENANTS[0], virtual_clusters=owned), *TENANTS[1:])


def cells(level: str, count: int) -> DeclaredVirtualCluster:
    return DeclaredVirtualCluster(ClusterId("east-b"), (DeclaredCells(level, count),))


async def both(service: Service, fleet: Fleet, tenants: tuple[Tenant, ...]) -> messages.ApplyFleetResponse:
    named = messages.TenantList(tenants=[tenant_to_proto(tenant) for tenant in tenants])
    return await service.stub.ApplyFleet(messages.ApplyFleetRequest(fleet=fleet_to_proto(fleet, TABLES), tenants=named))


async def stored(service: Service) -> tuple[Fleet, tuple[Tenant, ...]]:
    fleet, _ = await service.database.run(fleet_store.load_fleet)
    return fleet, await service.database.run(tenant_store.load_tenants)


def test_a_fleet_and_its_virtual_clusters_are_applied_together(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        tenants = owning(
            cells("rack", 1), DeclaredVirtualCluster(ClusterId("east-b"), machines=DeclaredMachines(16, 2))
        )
        assert (await both(service, with_cells(DIVIDED_BY), tenants)).tenants == 2
        assert await stored(service) == (with_cells(DIVIDED_BY), tenants)
        # Neither could be applied without the other: racks go, and sockets come.
        renamed = replace(DIVIDED_BY, levels=(CellLevel("gpu"), CellLevel("socket", 4), CellLevel("machine", 2)))
        changed = owning(cells("socket", 1))
        await refused(service.apply(with_cells(renamed)))
        await refused(service.apply(with_cells(DIVIDED_BY), tenants=changed))
        await both(service, with_cells(renamed), changed)
        assert await stored(service) == (with_cells(renamed), changed)

    in_service(database_url, scenario)


def test_what_tenants_own_and_use_is_shown(database_url: str) -> None:
    use = CellUse(ADS, VirtualClusterId("ads"), "a100", (TaskCellUse("machine", (CellPair(2, 0, 0),)),))

    async def scenario(service: Service) -> None:
        await both(service, with_cells(DIVIDED_BY), owning(cells("machine", 3)))
        w1 = (await service.submit()).workload
        w2 = (await service.submit(specification_to_proto(specification(VISION)))).workload
        own = replace(attempt_of(w1), cells=((JobName("train"), use),), placements=(placement(),))
        guest = replace(attempt_of(w2), tenant=VISION, placements=(placement("east-b-r1-m0", 4),))
        await service.database.run(lambda connection: dispatch(connection, own, guest))
        found = await service.stub.GetVirtualClusters(messages.GetVirtualClustersRequest())
        (cluster,) = found.clusters
        assert (cluster.region, cluster.cluster, cluster.gpus) == ("east", "east-b", 32)
        assert (cluster.guaranteed_gpus, cluster.opportunistic_gpus, cluster.idle_gpus) == (8, 4, 20)
        assert [(one.tenant, one.owned_gpus, one.guaranteed_gpus, one.opportunistic_gpus) for one in found.tenants] == [
            ("ads", 24, 8, 0),
            ("vision", 0, 0, 4),
        ]
        assert [(one.level, one.owned, one.used, one.free, one.bad) for one in found.levels] == [
            ("machine", 3, 1, 2, 0)
        ]
        (attempt,) = (await service.get(w1)).attempts
        assert [(one.job, one.virtual_cluster, list(one.levels)) for one in attempt.cells] == [
            ("train", "ads", ["machine"])
        ]
        none = await service.stub.GetVirtualClusters(messages.GetVirtualClustersRequest(cluster="east-a"))
        assert not none.clusters

    in_service(database_url, scenario)


def test_a_level_that_is_promised_too_often_is_refused_and_nothing_is_applied(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        before = await stored(service)
        greedy = owning(cells("rack", 1), cells("machine", 3))
        error = await refused(both(service, with_cells(DIVIDED_BY), greedy))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert violated_fields(error) == ["tenants.tenants[0].virtual_clusters[1].cells[0]"]
        assert "level machine: virtual clusters own 3 cells (ads 3), 1 more than the 2" in str(error.details())
        assert await stored(service) == before

    in_service(database_url, scenario)


def test_tenants_are_refused_where_the_fleet_has_not_their_cells(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        error = await refused(service.apply(tenants=owning(cells("machine", 1))))
        assert violated_fields(error) == ["tenants[0].virtual_clusters[0].cluster"]
        assert "has mechanism packing; virtual clusters need cells" in str(error.details())
        await service.apply(with_cells(), tenants=owning(cells("machine", 1)))
        error = await refused(service.apply(with_cells(), tenants=owning(cells("row", 1))))
        assert violated_fields(error) == ["tenants[0].virtual_clusters[0].cells[0].level"]
        assert (await stored(service))[1] == owning(cells("machine", 1))

    in_service(database_url, scenario)


def test_a_fleet_is_refused_that_has_not_the_cells_of_the_tenants(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        await both(service, with_cells(), owning(cells("machine", 3)))
        packed = with_cells(mechanism="packing")
        (east, *others) = with_cells().regions
        smaller = replace(east.clusters[0], racks=east.clusters[0].racks[:1])
        for fleet, why in (
            (packed, "has mechanism packing"),
            (Fleet((replace(east, clusters=(smaller, *east.clusters[1:])), *others)), "own 3 cells (ads 3), 1 more"),
        ):
            error = await refused(service.apply(fleet, tenants=owning(cells("machine", 3))))
            assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
            (violation,) = detail(error, error_details_pb2.PreconditionFailure).violations
            assert violation.type == "VIRTUAL_CLUSTERS"
            assert "tenant ads, virtual_clusters[0]" in violation.description
            assert why in violation.description
            assert (await stored(service))[0] == with_cells()

    in_service(database_url, scenario)


def test_a_hierarchy_that_does_not_divide_is_refused(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        wrong = replace(DIVIDED_BY, levels=(*LEVELS[:2], CellLevel("rack", 3)))
        error = await refused(service.apply(with_cells(wrong)))
        assert violated_fields(error) == ["fleet.regions[0].clusters[0].cells.hierarchies[0].levels[2].split"]
        assert "4 cells of level machine do not divide into cells of 3" in str(error.details())

    in_service(database_url, scenario)
