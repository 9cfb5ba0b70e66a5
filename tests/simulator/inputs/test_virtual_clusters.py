"""Virtual clusters of a trace, and the private clusters that they are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cluster_manager.cells.assignment import assigned_cells
from cluster_manager.cells.hierarchy import chains_of
from domain.cells import CellHierarchy, CellLevel, ClusterCells, OwnedCells, PinnedCell, VirtualCluster
from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, GpuModel, MachineId, TenantId, VirtualClusterId
from domain.tenant import Tenant
from formats.problems import FormatError
from formats.trace import TraceRow
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.fleets import FleetSource, fleet_from, gpus_of_fleet
from simulator.inputs.private_clusters import private_fleet, private_inputs
from simulator.inputs.virtual_clusters import (
    divided,
    machines_of_gang,
    owned_gpus,
    tenants_with_quotas_of_cells,
    virtual_clusters_of_trace,
    whole_shares,
)
from tests.simulator.inputs.rows import random_rows, row

LEVELS = tuple(CellLevel(name, split) for name, split in (("gpu", 1), ("socket", 4), ("machine", 2), ("rack", 4)))


def with_virtual_clusters_of_trace(fleet: Fleet, rows: Sequence[TraceRow]) -> Fleet:
    return divided(fleet, virtual_clusters_of_trace(fleet, rows), "the trace")


def machines_of(fleet: Fleet) -> int:
    return sum(1 for region in fleet.regions for _ in region.machines())


def test_machines_are_shared_out_by_the_work_asked_for() -> None:
    rows = (
        row("a", 0, 300, 4, "large"),
        row("b", 0, 100, 4, "small"),
        row("c", 0, 1, 1, "tiny"),
        row("d", 0, 9, 0, "cpu"),
    )
    fleet = with_virtual_clusters_of_trace(fleet_from(FleetSource(gpus=80)), rows)
    assert owned_gpus(fleet) == {"large": 56, "small": 16, "tiny": 8}
    assert [cluster.mechanism for cluster in fleet.clusters_with_cells()] == ["cells"]
    quotas = {tenant.tenant: tenant.quota for tenant in tenants_with_quotas_of_cells(rows, fleet)}
    assert {name: dict(quota.gpus)[ANY_GPU_MODEL] for name, quota in quotas.items()} == {
        "cpu": 0, "large": 56, "small": 16, "tiny": 8,
    }  # fmt: skip


def test_a_tenant_owns_at_least_what_its_largest_workload_takes() -> None:
    rows = (row("a", 0, 10_000, 8, "busy"), row("b", 0, 1, 24, "seldom"))
    assert owned_gpus(with_virtual_clusters_of_trace(fleet_from(FleetSource(gpus=64)), rows)) == {
        "busy": 40,
        "seldom": 24,
    }
    with pytest.raises(FormatError, match="--vcs-of-trace: machines: cluster region-1-c01 has 3 machines with V100, and the "
                       "largest workloads of its 2 tenants take 4"):  # fmt: skip
        with_virtual_clusters_of_trace(fleet_from(FleetSource(gpus=24)), rows)


@pytest.mark.parametrize(("gpus", "machines"), [(1, 1), (8, 1), (9, 2), (12, 2), (16, 2), (20, 4), (24, 3)])
def test_machines_of_a_gang_that_is_cut_into_equal_tasks(gpus: int, machines: int) -> None:
    assert machines_of_gang(gpus, 8) == machines


def test_nothing_can_be_owned_where_nobody_asks_for_gpus_or_for_other_models() -> None:
    fleet = fleet_from(FleetSource(gpus=64))
    with pytest.raises(FormatError, match="no workload of the trace asks for GPUs"):
        with_virtual_clusters_of_trace(fleet, (row("a", 0, 1, 0),))
    other = replace(row("a", 0, 1, 1, "t"), gpu_model=GpuModel("T4"))
    with pytest.raises(FormatError, match="t asks for GPU models that no machine has; there are V100"):
        with_virtual_clusters_of_trace(fleet, (other, row("b", 0, 1, 1, "u")))


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 5)), min_size=1, max_size=12), st.integers(1, 60))
def test_never_shares_out_more_or_less_than_there_is(asked: list[tuple[int, int]], total: int) -> None:
    weights, least = [float(weight) for weight, _ in asked], [minimum for _, minimum in asked]
    assume(sum(least) <= total)
    shares = whole_shares(weights, least, total)
    assert sum(shares) == total
    assert all(share >= minimum for share, minimum in zip(shares, least, strict=True))
    for one in range(len(asked)):
        for other in range(len(asked)):
            if weights[one] > weights[other] and shares[one] > least[one]:
                assert shares[one] >= shares[other] or shares[other] == least[other]


def test_every_region_is_shared_out_and_all_is_owned() -> None:
    rows = random_rows(400)
    source = FleetSource(region_gpus=(("east", 512), ("west", 320)), clusters_per_region=1)
    fleet = with_virtual_clusters_of_trace(fleet_from(source), rows)
    assert sum(owned_gpus(fleet).values()) == gpus_of_fleet(fleet) == 832
    for cluster in fleet.clusters_with_cells():
        assigned_cells(chains_of(cluster, cluster.cells.hierarchies), cluster.cells.virtual_clusters)


def test_a_private_cluster_holds_the_owned_cells_and_no_more_than_it_must() -> None:
    fleet = fleet_from(FleetSource(gpus=128))
    (cluster,) = fleet.regions[0].clusters
    owner = VirtualCluster(
        VirtualClusterId("a"),
        (OwnedCells("V100", "rack", 1), OwnedCells("V100", "socket", 3)),
        (PinnedCell("mine", "V100", "socket", MachineId("region-1-c01-r01-m06")),),
    )
    other = VirtualCluster(VirtualClusterId("b"), (OwnedCells("V100", "machine", 2),))
    divided = ClusterCells((CellHierarchy("V100", GpuModel("V100"), LEVELS),), (owner, other))
    in_cells = replace(cluster, mechanism="cells", cells=divided)
    shared = Fleet((replace(fleet.regions[0], clusters=(in_cells,)),))
    private = private_fleet(shared, TenantId("a"))
    # One rack for the pinned cell, one owned, and one for three sockets.
    assert machines_of(private) == 12
    (alone,) = private.clusters_with_cells()
    chains = chains_of(alone, alone.cells.hierarchies)
    assigned_cells(chains, alone.cells.virtual_clusters)
    assert alone.cells.virtual_clusters == (owner,)
    assert owned_gpus(private) == {"a": 32 + 12 + 4}
    # A rack of four machines is the highest level, so whole ones are needed.
    assert machines_of(private_fleet(shared, TenantId("b"))) == 4
    assert private_fleet(shared, TenantId("nobody")) == Fleet(())


def test_private_inputs_keep_everything_else() -> None:
    rows = [row("a", 10, 100, 8, "x"), row("b", 20, 100, 8, "y"), row("c", 30, 100, 0, "y"), row("d", 40, 100, 8, "y")]
    fleet = with_virtual_clusters_of_trace(fleet_from(FleetSource(gpus=64)), rows)
    tenants = tenants_with_quotas_of_cells(rows, fleet)
    alone = private_inputs(SimulationInput("t", rows, fleet, tenants))
    assert {tenant: [one.workload_id for one in given.rows] for tenant, given in alone.items()} == {
        "x": ["a"],
        "y": ["b", "d"],
    }
    assert {given.begins_s for given in alone.values()} == {10.0}
    assert [tenant.tenant for given in alone.values() for tenant in given.tenants] == ["x", "y"]
    assert all(isinstance(tenant, Tenant) for given in alone.values() for tenant in given.tenants)


def test_the_same_trace_gives_the_same_virtual_clusters_in_any_order() -> None:
    rows = random_rows(100)
    shuffled = [rows[place] for place in np.random.default_rng(2).permutation(len(rows))]
    fleet = fleet_from(FleetSource(gpus=512))
    assert with_virtual_clusters_of_trace(fleet, rows) == with_virtual_clusters_of_trace(fleet, shuffled)
