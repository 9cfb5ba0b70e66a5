"""Fleets, tables and tenants as messages. Reading and judging them is `replacement_checks`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from domain.cells import ClusterCells
from domain.declared_cells import DeclaredVirtualCluster
from domain.fleet import Cluster, Fleet, Machine
from domain.inference import InferenceSide
from domain.table import Table
from domain.tenant import Tenant
from domain.tenant_limits import NO_LIMITS
from topmast.v1 import fleet_pb2

DEFAULT_FAIR_SHARE_WEIGHT = 1.0


def fleet_to_proto(fleet: Fleet, tables: Iterable[Table] = ()) -> fleet_pb2.Fleet:
    """The message that `checked_fleet` turns into the same again."""
    return fleet_pb2.Fleet(
        regions=[
            fleet_pb2.Region(region=region.region, clusters=[_cluster_to_proto(cluster) for cluster in region.clusters])
            for region in fleet.regions
        ],
        tables=[
            fleet_pb2.Table(table=table.table, size_bytes=table.size_bytes, home=table.home, replicas=table.replicas)
            for table in tables
        ],
    )


def _cluster_to_proto(cluster: Cluster) -> fleet_pb2.Cluster:
    return fleet_pb2.Cluster(
        cluster=cluster.cluster,
        racks=[
            fleet_pb2.Rack(
                rack=rack.rack,
                machines=[_machine_to_proto(machine) for machine in rack.machines],
                power_domain=rack.power_domain,
            )
            for rack in cluster.racks
        ],
        mechanism=cluster.mechanism,
        cells=_cells_to_proto(cluster.cells) if cluster.cells.hierarchies else None,
        inference=_inference_to_proto(cluster.inference) if cluster.inference is not None else None,
    )


def _inference_to_proto(side: InferenceSide) -> fleet_pb2.InferenceSide:
    return fleet_pb2.InferenceSide(
        address=side.address,
        series=side.series,
        headroom=side.headroom,
        look_every_s=side.look_every_s,
        forecast=side.forecast,
        reclaiming=side.reclaiming,
    )


def _cells_to_proto(cells: ClusterCells) -> fleet_pb2.ClusterCells:
    """The hierarchies; virtual clusters are sent with the tenants."""
    return fleet_pb2.ClusterCells(
        hierarchies=[
            fleet_pb2.CellHierarchy(
                hierarchy=hierarchy.name,
                gpu_model=hierarchy.gpu_model,
                levels=[fleet_pb2.CellLevel(level=level.name, split=level.split) for level in hierarchy.levels],
                machines=hierarchy.machines or (),
            )
            for hierarchy in cells.hierarchies
        ]
    )


def _machine_to_proto(machine: Machine) -> fleet_pb2.Machine:
    return fleet_pb2.Machine(
        machine=machine.machine,
        gpu_model=machine.gpu_model,
        gpus=machine.gpus,
        cpus=machine.cpus,
        memory_gib=machine.memory_gib,
    )


def tenant_to_proto(tenant: Tenant) -> fleet_pb2.Tenant:
    """The message that `checked_tenants` turns into the same tenant again."""
    return fleet_pb2.Tenant(
        tenant=tenant.tenant,
        priority=tenant.priority,
        gpu_quota=dict(tenant.quota.gpus),
        cpu_quota=tenant.quota.cpus,
        fair_share_weight=tenant.fair_share_weight,
        virtual_clusters=[_virtual_cluster_to_proto(declared) for declared in tenant.virtual_clusters],
        further_quotas={
            priority: fleet_pb2.PriorityQuota(gpu_quota=dict(quota.gpus), cpu_quota=quota.cpus)
            for priority, quota in tenant.further_quotas
        },
        limits=fleet_pb2.TenantLimits(**asdict(tenant.limits)) if tenant.limits != NO_LIMITS else None,
    )


def _virtual_cluster_to_proto(declared: DeclaredVirtualCluster) -> fleet_pb2.VirtualCluster:
    message = fleet_pb2.VirtualCluster(
        cluster=declared.cluster,
        cells=[
            fleet_pb2.OwnedCells(hierarchy=cells.hierarchy or "", level=cells.level, cells=cells.cells)
            for cells in declared.cells
        ],
        pinned=[
            fleet_pb2.PinnedCell(
                name=pin.name, hierarchy=pin.hierarchy or "", level=pin.level, machine=pin.machine, gpu=pin.gpu
            )
            for pin in declared.pinned
        ],
    )
    if declared.machines is not None:
        message.gpu_model = declared.machines.gpu_model or ""
        message.gpus, message.machines = declared.machines.gpus, declared.machines.machines
    return message
