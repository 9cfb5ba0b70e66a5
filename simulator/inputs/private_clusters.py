"""What a tenant would have if it shared nothing: its cells as clusters of its own (HiveD §2, §5.1)."""

from __future__ import annotations

from dataclasses import replace

from cluster_manager.cells.hierarchy import Chain, chains_of
from domain.cells import CellHierarchy, ClusterCells, VirtualCluster, virtual_cluster_of_tenant
from domain.fleet import Cluster, Fleet, Rack, Region
from domain.identifiers import MachineId, TenantId
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.virtual_clusters import owned_gpus


def private_inputs(given: SimulationInput) -> dict[TenantId, SimulationInput]:
    """What each tenant that owns cells would simulate alone, by tenant: its own workloads that ask for GPUs, and its cells.

    Everything else is as in the shared run: the tenant's priority and quota, the time at which the run begins.
    """
    begins_s = given.arrivals()[0].submit_s
    alone: dict[TenantId, SimulationInput] = {}
    for tenant in owned_gpus(given.fleet):
        rows = [row for row in given.rows if row.tenant == tenant and row.gpus > 0]
        if rows:
            alone[tenant] = replace(
                given,
                rows=rows,
                fleet=private_fleet(given.fleet, tenant),
                tenants=[known for known in given.tenants if known.tenant == tenant],
                begins_s=begins_s,
            )
    return alone


def private_fleet(fleet: Fleet, tenant: TenantId) -> Fleet:
    """The fleet of a tenant that owns cells: where it owns any, clusters with these and as few machines as hold them.

    These are the first machines of each hierarchy, in whole cells of its highest level where the tenant owns cells above the
    machine. Regions and clusters keep their names.
    """
    regions: list[Region] = []
    for region in fleet.regions:
        clusters = [private for cluster in region.clusters if (private := _private(cluster, tenant)) is not None]
        if clusters:
            regions.append(Region(region.region, tuple(clusters)))
    return Fleet(tuple(regions))


def _private(cluster: Cluster, tenant: TenantId) -> Cluster | None:
    """The cluster with the tenant's cells alone; None where it owns none."""
    name = virtual_cluster_of_tenant(tenant)
    owner = next((owned for owned in cluster.cells.virtual_clusters if owned.virtual_cluster == name), None)
    if owner is None or not cluster.has_cells:
        return None
    hierarchies: list[CellHierarchy] = []
    wanted: dict[MachineId, None] = {}
    for chain in chains_of(cluster, cluster.cells.hierarchies):
        machines = _machines_for(chain, owner)
        if machines:
            wanted |= dict.fromkeys(machines)
            hierarchies.append(CellHierarchy(chain.name, chain.gpu_model, chain.levels, machines))
    if not wanted:
        return None
    racks = tuple(
        Rack(rack.rack, kept)
        for rack in cluster.racks
        if (kept := tuple(machine for machine in rack.machines if machine.machine in wanted))
    )
    return replace(cluster, racks=racks, cells=ClusterCells(tuple(hierarchies), (owner,)))


def _machines_for(chain: Chain, owner: VirtualCluster) -> tuple[MachineId, ...]:
    """The machines of the chain that hold the owner's cells: those of its pinned cells, and the first of the others."""
    pinned: dict[int, None] = {}
    for pin in owner.pinned:
        if pin.chain == chain.name:
            address = chain.cell_of(chain.level_called(pin.level), pin.machine, pin.gpu)
            pinned |= dict.fromkeys(chain.machines_in(*address))
    owned = [(chain.level_called(cells.level), cells.cells) for cells in owner.cells if cells.chain == chain.name]
    gpus = sum(chain.sizes[level] * count for level, count in owned)
    whole = chain.sizes[chain.top] // chain.gpus_per_machine
    # Cells of different levels fill the cells of the highest one without gaps, the largest first.
    needed = -(-gpus // chain.sizes[chain.top])
    tops = {machine // whole: None for machine in pinned}
    free = [top for top in range(chain.counts[chain.top]) if top not in tops]
    chosen = sorted([*tops, *free[:needed]])
    return tuple(chain.machines[machine] for top in chosen for machine in range(top * whole, (top + 1) * whole))
