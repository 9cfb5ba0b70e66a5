"""Fleets, tables and tenants, both ways. As with workloads, nothing is judged here."""

from __future__ import annotations

from collections.abc import Iterable

from domain.fleet import DEFAULT_MECHANISM, Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId, RegionId, TableId, TenantId
from domain.resources import Quota
from domain.table import Table
from domain.tenant import Tenant
from topmast.v1 import fleet_pb2

DEFAULT_FAIR_SHARE_WEIGHT = 1.0


def fleet_from_proto(message: fleet_pb2.Fleet) -> Fleet:
    """All regions, in the message's order."""
    return Fleet(tuple(_region_from_proto(region) for region in message.regions))


def tables_from_proto(message: fleet_pb2.Fleet) -> tuple[Table, ...]:
    """All tables, in the message's order."""
    return tuple(
        Table(
            TableId(table.table),
            table.size_bytes,
            RegionId(table.home),
            tuple(RegionId(replica) for replica in table.replicas),
        )
        for table in message.tables
    )


def _region_from_proto(message: fleet_pb2.Region) -> Region:
    return Region(RegionId(message.region), tuple(_cluster_from_proto(cluster) for cluster in message.clusters))


def _cluster_from_proto(message: fleet_pb2.Cluster) -> Cluster:
    return Cluster(
        ClusterId(message.cluster),
        tuple(
            Rack(RackId(rack.rack), tuple([_machine_from_proto(machine) for machine in rack.machines]))
            for rack in message.racks
        ),
        message.mechanism or DEFAULT_MECHANISM,
    )


def _machine_from_proto(message: fleet_pb2.Machine) -> Machine:
    return Machine(
        MachineId(message.machine), GpuModel(message.gpu_model), message.gpus, message.cpus, message.memory_gib
    )


def fleet_to_proto(fleet: Fleet, tables: Iterable[Table] = ()) -> fleet_pb2.Fleet:
    """The message that `fleet_from_proto` and `tables_from_proto` turn into the same again."""
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
            fleet_pb2.Rack(rack=rack.rack, machines=[_machine_to_proto(machine) for machine in rack.machines])
            for rack in cluster.racks
        ],
        mechanism=cluster.mechanism,
    )


def _machine_to_proto(machine: Machine) -> fleet_pb2.Machine:
    return fleet_pb2.Machine(
        machine=machine.machine,
        gpu_model=machine.gpu_model,
        gpus=machine.gpus,
        cpus=machine.cpus,
        memory_gib=machine.memory_gib,
    )


def tenant_from_proto(message: fleet_pb2.Tenant) -> Tenant:
    """One tenant; no weight means 1."""
    return Tenant(
        TenantId(message.tenant),
        message.priority,
        Quota.of(
            {GpuModel(model): gpus for model, gpus in message.gpu_quota.items()},
            message.cpu_quota if message.HasField("cpu_quota") else None,
        ),
        message.fair_share_weight or DEFAULT_FAIR_SHARE_WEIGHT,
    )


def tenant_to_proto(tenant: Tenant) -> fleet_pb2.Tenant:
    """The message that `tenant_from_proto` turns into the same tenant again."""
    return fleet_pb2.Tenant(
        tenant=tenant.tenant,
        priority=tenant.priority,
        gpu_quota=dict(tenant.quota.gpus),
        cpu_quota=tenant.quota.cpus,
        fair_share_weight=tenant.fair_share_weight,
    )
