"""Who owns and uses what in the clusters that are divided into cells."""

from __future__ import annotations

from dataclasses import dataclass

from topmast.v1 import global_scheduler_pb2


@dataclass(frozen=True, slots=True)
class CellClusterUsage:
    """One cluster with cells: its GPUs are guaranteed, opportunistic, idle, or idle and out of use."""

    region: str
    cluster: str
    gpus: int
    guaranteed_gpus: int
    opportunistic_gpus: int
    idle_gpus: int
    out_of_use_gpus: int


@dataclass(frozen=True, slots=True)
class TenantCellUsage:
    """The GPUs of one tenant in one cluster: `guaranteed_gpus` are held in its cells, `opportunistic_gpus` elsewhere.

    `downgraded_gpus` are those of the opportunistic ones whose work asked for cells and does without at the moment;
    `bad_gpus` are owned and on hardware that is out of use. `fair_share_gpus` is its weighted max-min share of what is not
    guaranteed, of as many GPUs as it holds opportunistically or waits for beyond its quota.
    """

    tenant: str
    cluster: str
    owned_gpus: int
    guaranteed_gpus: int
    opportunistic_gpus: int
    downgraded_gpus: int
    bad_gpus: int
    fair_share_gpus: int


@dataclass(frozen=True, slots=True)
class CellLevelUsage:
    """The cells of one level that a tenant owns, or one pinned cell ("": none): they are used, free or bad."""

    tenant: str
    cluster: str
    hierarchy: str
    level: str
    pinned_cell: str
    gpus_per_cell: int
    owned: int
    used: int
    free: int
    bad: int


@dataclass(frozen=True, slots=True)
class VirtualClusters:
    """All of it, at one moment."""

    clusters: tuple[CellClusterUsage, ...]
    tenants: tuple[TenantCellUsage, ...]
    levels: tuple[CellLevelUsage, ...]


def virtual_clusters_from_proto(message: global_scheduler_pb2.GetVirtualClustersResponse) -> VirtualClusters:
    return VirtualClusters(
        tuple(
            CellClusterUsage(
                one.region,
                one.cluster,
                one.gpus,
                one.guaranteed_gpus,
                one.opportunistic_gpus,
                one.idle_gpus,
                one.out_of_use_gpus,
            )
            for one in message.clusters
        ),
        tuple(
            TenantCellUsage(
                one.tenant,
                one.cluster,
                one.owned_gpus,
                one.guaranteed_gpus,
                one.opportunistic_gpus,
                one.downgraded_gpus,
                one.bad_gpus,
                one.fair_share_gpus,
            )
            for one in message.tenants
        ),
        tuple(
            CellLevelUsage(
                one.tenant,
                one.cluster,
                one.hierarchy,
                one.level,
                one.pinned_cell,
                one.gpus_per_cell,
                one.owned,
                one.used,
                one.free,
                one.bad,
            )
            for one in message.levels
        ),
    )
