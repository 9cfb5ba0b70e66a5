"""Fleets and tenants to apply: what Topmast may run on, and for whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from topmast.messages import mapping, message_list, message_of, part, strings
from topmast.v1 import fleet_pb2, global_scheduler_pb2


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
class TenantLimits:
    """How much of the service itself a tenant may take up; None: not limited.

    `max_pending` workloads wait, `max_running` run, `submissions_per_s` come in a real second in the long run,
    `submissions_burst` of them at once (None: as many as in ten seconds).
    """

    max_pending: int | None = None
    max_running: int | None = None
    submissions_per_s: float | None = None
    submissions_burst: int | None = None


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
    limits: TenantLimits | None = None


@dataclass(frozen=True, slots=True)
class AppliedFleet:
    """How much the fleet has that is now in force."""

    regions: int
    clusters: int
    machines: int
    gpus: int


def apply_request(
    fleet: Fleet | fleet_pb2.Fleet, tenants: Iterable[Tenant | fleet_pb2.Tenant] | None
) -> global_scheduler_pb2.ApplyFleetRequest:
    """The fleet alone (None), or with all tenants. Raises InvalidArgumentError for values of wrong types."""
    message = fleet if isinstance(fleet, fleet_pb2.Fleet) else part("fleet", Fleet, fleet, fleet_to_proto)
    request = global_scheduler_pb2.ApplyFleetRequest(fleet=message)
    if tenants is not None:
        request.tenants.SetInParent()
        request.tenants.tenants.extend(tenants_to_proto(tenants))
    return request


def fleet_to_proto(fleet: Fleet) -> fleet_pb2.Fleet:
    """The message to send; raises InvalidArgumentError for values of wrong types, by their place in the fleet."""
    return fleet_pb2.Fleet(
        regions=message_list("regions", Region, fleet.regions, _region_to_proto),
        tables=message_list("tables", Table, fleet.tables, _table_to_proto),
    )


def _table_to_proto(table: Table) -> fleet_pb2.Table:
    return message_of(
        fleet_pb2.Table,
        table=table.table,
        size_bytes=table.size_bytes,
        home=table.home,
        replicas=strings("replicas", table.replicas),
    )


def _region_to_proto(region: Region) -> fleet_pb2.Region:
    return message_of(
        fleet_pb2.Region,
        region=region.region,
        clusters=message_list("clusters", Cluster, region.clusters, _cluster_to_proto),
    )


def _cluster_to_proto(cluster: Cluster) -> fleet_pb2.Cluster:
    hierarchies = message_list("cells.hierarchies", CellHierarchy, cluster.hierarchies, _hierarchy_to_proto)
    return message_of(
        fleet_pb2.Cluster,
        cluster=cluster.cluster,
        racks=message_list("racks", Rack, cluster.racks, _rack_to_proto),
        mechanism=cluster.mechanism,
        cells=fleet_pb2.ClusterCells(hierarchies=hierarchies) if hierarchies else None,
        inference=part("inference", InferenceSide, cluster.inference, _inference_to_proto),
    )


def _inference_to_proto(side: InferenceSide) -> fleet_pb2.InferenceSide:
    return message_of(
        fleet_pb2.InferenceSide,
        address=side.address,
        series=side.series,
        headroom=side.headroom,
        look_every_s=side.look_every_s,
        forecast=side.forecast,
        reclaiming=side.reclaiming,
    )


def _hierarchy_to_proto(hierarchy: CellHierarchy) -> fleet_pb2.CellHierarchy:
    return message_of(
        fleet_pb2.CellHierarchy,
        hierarchy=hierarchy.hierarchy,
        gpu_model=hierarchy.gpu_model,
        levels=message_list("levels", CellLevel, hierarchy.levels, _level_to_proto),
        machines=strings("machines", hierarchy.machines),
    )


def _level_to_proto(level: CellLevel) -> fleet_pb2.CellLevel:
    return message_of(fleet_pb2.CellLevel, level=level.level, split=level.split)


def _rack_to_proto(rack: Rack) -> fleet_pb2.Rack:
    return message_of(
        fleet_pb2.Rack,
        rack=rack.rack,
        machines=message_list("machines", Machine, rack.machines, _machine_to_proto),
    )


def _machine_to_proto(machine: Machine) -> fleet_pb2.Machine:
    return message_of(
        fleet_pb2.Machine,
        machine=machine.machine,
        gpu_model=machine.gpu_model,
        gpus=machine.gpus,
        cpus=machine.cpus,
        memory_gib=machine.memory_gib,
    )


def tenants_to_proto(tenants: Iterable[Tenant | fleet_pb2.Tenant]) -> list[fleet_pb2.Tenant]:
    """The messages to send; raises InvalidArgumentError for values of wrong types, by their place in the list."""
    return message_list("tenants", (Tenant, fleet_pb2.Tenant), tenants, _tenant_message)


def _tenant_message(tenant: Tenant | fleet_pb2.Tenant) -> fleet_pb2.Tenant:
    return tenant_to_proto(tenant) if isinstance(tenant, Tenant) else tenant


def tenant_to_proto(tenant: Tenant) -> fleet_pb2.Tenant:
    """The message to send; raises InvalidArgumentError for values of wrong types."""
    return message_of(
        fleet_pb2.Tenant,
        tenant=tenant.tenant,
        priority=tenant.priority,
        gpu_quota=mapping("gpu_quota", tenant.gpu_quota),
        cpu_quota=tenant.cpu_quota,
        fair_share_weight=tenant.fair_share_weight,
        virtual_clusters=message_list(
            "virtual_clusters", VirtualCluster, tenant.virtual_clusters, _virtual_cluster_to_proto
        ),
        further_quotas=_further_quotas(tenant),
        limits=part("limits", TenantLimits, tenant.limits, _limits_to_proto),
    )


def _limits_to_proto(limits: TenantLimits) -> fleet_pb2.TenantLimits:
    return message_of(
        fleet_pb2.TenantLimits,
        max_pending=limits.max_pending,
        max_running=limits.max_running,
        submissions_per_s=limits.submissions_per_s,
        submissions_burst=limits.submissions_burst,
    )


def _further_quotas(tenant: Tenant) -> dict[int, fleet_pb2.PriorityQuota]:
    further = mapping("further_quotas", tenant.further_quotas)
    quotas = message_list("further_quotas", PriorityQuota, further.values(), _priority_quota_to_proto)
    return dict(zip(further, quotas, strict=True))


def _priority_quota_to_proto(quota: PriorityQuota) -> fleet_pb2.PriorityQuota:
    return message_of(
        fleet_pb2.PriorityQuota, gpu_quota=mapping("gpu_quota", quota.gpu_quota), cpu_quota=quota.cpu_quota
    )


def _virtual_cluster_to_proto(owned: VirtualCluster) -> fleet_pb2.VirtualCluster:
    return message_of(
        fleet_pb2.VirtualCluster,
        cluster=owned.cluster,
        cells=message_list("cells", OwnedCells, owned.cells, _owned_cells_to_proto),
        pinned=message_list("pinned", PinnedCell, owned.pinned, _pinned_cell_to_proto),
        gpu_model=owned.gpu_model,
        gpus=owned.gpus,
        machines=owned.machines,
    )


def _owned_cells_to_proto(cells: OwnedCells) -> fleet_pb2.OwnedCells:
    return message_of(fleet_pb2.OwnedCells, hierarchy=cells.hierarchy, level=cells.level, cells=cells.cells)


def _pinned_cell_to_proto(pin: PinnedCell) -> fleet_pb2.PinnedCell:
    return message_of(
        fleet_pb2.PinnedCell,
        name=pin.name,
        hierarchy=pin.hierarchy,
        level=pin.level,
        machine=pin.machine,
        gpu=pin.gpu,
    )
