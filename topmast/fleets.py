"""Fleets and tenants to apply: what Topmast may run on, and for whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from topmast.v1 import fleet_pb2


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine. All its GPUs are of one model; `gpu_model` is "" when it has none."""

    machine: str
    gpu_model: str = ""
    gpus: int = 0
    cpus: float = 0.0
    memory_gib: float = 0.0


@dataclass(frozen=True, slots=True)
class Rack:
    rack: str
    machines: Sequence[Machine]


@dataclass(frozen=True, slots=True)
class Cluster:
    cluster: str
    racks: Sequence[Rack]


@dataclass(frozen=True, slots=True)
class Region:
    region: str
    clusters: Sequence[Cluster]


@dataclass(frozen=True, slots=True)
class Table:
    """A table that workloads read: its home region, and the regions that hold a complete copy besides."""

    table: str
    size_bytes: int
    home: str
    replicas: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Fleet:
    """All regions and tables. Names of machines and clusters are unique in the whole fleet."""

    regions: Sequence[Region]
    tables: Sequence[Table] = ()


@dataclass(frozen=True, slots=True)
class Tenant:
    """A team. `priority` 0 is the highest, 6 the lowest. `gpu_quota` counts GPUs by model.

    The model "any" holds those that have no entry of their own; `cpu_quota` None: CPUs are not limited.
    """

    tenant: str
    priority: int
    gpu_quota: Mapping[str, int] = field(default_factory=dict)
    cpu_quota: float | None = None
    fair_share_weight: float = 1.0


@dataclass(frozen=True, slots=True)
class AppliedFleet:
    """How much the fleet has that is now in force."""

    regions: int
    clusters: int
    machines: int
    gpus: int


def fleet_to_proto(fleet: Fleet) -> fleet_pb2.Fleet:
    return fleet_pb2.Fleet(
        regions=[_region_to_proto(region) for region in fleet.regions],
        tables=[
            fleet_pb2.Table(table=table.table, size_bytes=table.size_bytes, home=table.home, replicas=table.replicas)
            for table in fleet.tables
        ],
    )


def _region_to_proto(region: Region) -> fleet_pb2.Region:
    return fleet_pb2.Region(
        region=region.region,
        clusters=[
            fleet_pb2.Cluster(cluster=cluster.cluster, racks=[_rack_to_proto(rack) for rack in cluster.racks])
            for cluster in region.clusters
        ],
    )


def _rack_to_proto(rack: Rack) -> fleet_pb2.Rack:
    return fleet_pb2.Rack(
        rack=rack.rack,
        machines=[
            fleet_pb2.Machine(
                machine=machine.machine,
                gpu_model=machine.gpu_model,
                gpus=machine.gpus,
                cpus=machine.cpus,
                memory_gib=machine.memory_gib,
            )
            for machine in rack.machines
        ],
    )


def tenant_to_proto(tenant: Tenant) -> fleet_pb2.Tenant:
    return fleet_pb2.Tenant(
        tenant=tenant.tenant,
        priority=tenant.priority,
        gpu_quota=tenant.gpu_quota,
        cpu_quota=tenant.cpu_quota,
        fair_share_weight=tenant.fair_share_weight,
    )
