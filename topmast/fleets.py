"""Fleets and tenants to apply: what Topmast may run on, and for whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
class CellLevel:
    """`split`: into how many cells of the level below one of these splits; the lowest level is a single GPU."""

    level: str
    split: int = 1


@dataclass(frozen=True, slots=True)
class CellHierarchy:
    """How the machines of a GPU model divide, from a single GPU up; one of the levels is called "machine"."""

    hierarchy: str
    gpu_model: str
    levels: Sequence[CellLevel]
    machines: Sequence[str] = ()
    """Empty: all machines of the GPU model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSide:
    """Who serves inference on a cluster's machines, and how these are lent to training. Give `address` or `series`."""

    address: str = ""
    """host:port of its InferenceScheduler."""
    series: str = ""
    """A CSV file with the load over time, which is played instead; on the machine of the regional scheduler."""
    headroom: float = 0.02
    """The share of the machines that is never lent."""
    look_every_s: float = 300.0
    forecast: str = "autoregressive"
    reclaiming: str = "least_preemption_cost"


@dataclass(frozen=True, slots=True)
class Cluster:
    """`mechanism` is what places jobs in it: "packing", or "cells" for virtual clusters."""

    cluster: str
    racks: Sequence[Rack]
    mechanism: str = "packing"
    hierarchies: Sequence[CellHierarchy] = ()
    """With "cells"; GPU models without one get what machines and racks suggest."""
    inference: InferenceSide | None = None
    """None: its machines are for training."""


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
class OwnedCells:
    """So many cells of a level. `hierarchy` "": the only one of the cluster that has such a level."""

    level: str
    cells: int
    hierarchy: str = ""


@dataclass(frozen=True, slots=True)
class PinnedCell:
    """One very cell, which work asks for by `name`: the one that contains this GPU of this machine."""

    name: str
    level: str
    machine: str
    gpu: int = 0
    hierarchy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualCluster:
    """What a tenant may count on in a cluster with mechanism "cells".

    Say either `cells`, or `gpus` in `machines` ("32 GPUs in 4 machines"), with the model where the cluster has several.
    """

    cluster: str
    cells: Sequence[OwnedCells] = ()
    gpus: int = 0
    machines: int = 0
    gpu_model: str = ""
    pinned: Sequence[PinnedCell] = ()


@dataclass(frozen=True, slots=True)
class PriorityQuota:
    """What a tenant may use at a priority. `gpu_quota` and `cpu_quota` as in `Tenant`."""

    gpu_quota: Mapping[str, int] = field(default_factory=dict)
    cpu_quota: float | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    """A team. `priority`, of workloads that ask for none: 0 is the highest, 6 the lowest. `gpu_quota` counts GPUs by model.

    The model "any" holds those that have no entry of their own; `cpu_quota` None: CPUs are not limited. `further_quotas` are
    by priority: workloads may ask for these priorities too.
    """

    tenant: str
    priority: int
    gpu_quota: Mapping[str, int] = field(default_factory=dict)
    cpu_quota: float | None = None
    fair_share_weight: float = 1.0
    virtual_clusters: Sequence[VirtualCluster] = ()
    further_quotas: Mapping[int, PriorityQuota] = field(default_factory=dict)


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
            fleet_pb2.Cluster(
                cluster=cluster.cluster,
                racks=[_rack_to_proto(rack) for rack in cluster.racks],
                mechanism=cluster.mechanism,
                cells=_cells_to_proto(cluster.hierarchies) if cluster.hierarchies else None,
                inference=_inference_to_proto(cluster.inference) if cluster.inference is not None else None,
            )
            for cluster in region.clusters
        ],
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


def _cells_to_proto(hierarchies: Sequence[CellHierarchy]) -> fleet_pb2.ClusterCells:
    return fleet_pb2.ClusterCells(
        hierarchies=[
            fleet_pb2.CellHierarchy(
                hierarchy=hierarchy.hierarchy,
                gpu_model=hierarchy.gpu_model,
                levels=[fleet_pb2.CellLevel(level=level.level, split=level.split) for level in hierarchy.levels],
                machines=hierarchy.machines,
            )
            for hierarchy in hierarchies
        ]
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


def tenants_to_proto(tenants: Iterable[Tenant | fleet_pb2.Tenant]) -> list[fleet_pb2.Tenant]:
    return [tenant_to_proto(tenant) if isinstance(tenant, Tenant) else tenant for tenant in tenants]


def tenant_to_proto(tenant: Tenant) -> fleet_pb2.Tenant:
    return fleet_pb2.Tenant(
        tenant=tenant.tenant,
        priority=tenant.priority,
        gpu_quota=tenant.gpu_quota,
        cpu_quota=tenant.cpu_quota,
        fair_share_weight=tenant.fair_share_weight,
        virtual_clusters=[_virtual_cluster_to_proto(owned) for owned in tenant.virtual_clusters],
        further_quotas={
            priority: fleet_pb2.PriorityQuota(gpu_quota=quota.gpu_quota, cpu_quota=quota.cpu_quota)
            for priority, quota in tenant.further_quotas.items()
        },
    )


def _virtual_cluster_to_proto(owned: VirtualCluster) -> fleet_pb2.VirtualCluster:
    return fleet_pb2.VirtualCluster(
        cluster=owned.cluster,
        cells=[
            fleet_pb2.OwnedCells(hierarchy=cells.hierarchy, level=cells.level, cells=cells.cells)
            for cells in owned.cells
        ],
        pinned=[
            fleet_pb2.PinnedCell(
                name=pin.name, hierarchy=pin.hierarchy, level=pin.level, machine=pin.machine, gpu=pin.gpu
            )
            for pin in owned.pinned
        ],
        gpu_model=owned.gpu_model,
        gpus=owned.gpus,
        machines=owned.machines,
    )
