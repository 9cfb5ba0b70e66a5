"""Cells of virtual clusters (HiveD §3): what is declared of a cluster, and what is written down with work that uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from domain.identifiers import GpuModel, JobName, MachineId, TenantId, VirtualClusterId

MACHINE_LEVEL, RACK_LEVEL = "machine", "rack"
"""The levels that every cluster has, whatever places jobs in it. A declared hierarchy calls its machines so, too."""


class CellLevel(NamedTuple):
    """One level of a hierarchy."""

    name: str
    split: int = 1
    """Into how many cells of the level below a cell of this one splits; 1 for the lowest."""


@dataclass(frozen=True, slots=True)
class CellHierarchy:
    """A declared hierarchy (HiveD Fig. 4): names and split factors; the machines are those of its GPU model."""

    name: str
    gpu_model: GpuModel
    levels: tuple[CellLevel, ...]
    """From a single GPU up; one of them is the machine."""
    machines: tuple[MachineId, ...] | None = None
    """None: all machines of the GPU model, in the order of the fleet."""


@dataclass(frozen=True, slots=True)
class OwnedCells:
    """So many cells of a level of a hierarchy: r[t,k]."""

    chain: str
    level: str
    cells: int


@dataclass(frozen=True, slots=True)
class PinnedCell:
    """One very cell of the physical cluster, for work that asks for it by name."""

    name: str
    chain: str
    level: str
    machine: MachineId
    """One that the cell lies on."""
    gpu: int = 0
    """One of its GPUs there, for a cell that is less than a machine."""


@dataclass(frozen=True, slots=True)
class VirtualCluster:
    """What a tenant may count on."""

    virtual_cluster: VirtualClusterId
    cells: tuple[OwnedCells, ...] = ()
    pinned: tuple[PinnedCell, ...] = ()


def virtual_cluster_of_tenant(tenant: TenantId) -> VirtualClusterId:
    """A tenant has at most one virtual cluster in each cluster, of its own name."""
    return VirtualClusterId(tenant)


def tenant_of_virtual_cluster(virtual_cluster: VirtualClusterId) -> TenantId:
    """The tenant whose virtual cluster it is."""
    return TenantId(virtual_cluster)


@dataclass(frozen=True, slots=True)
class ClusterCells:
    """How a cluster is divided, and among whom."""

    hierarchies: tuple[CellHierarchy, ...] = ()
    """GPU models without one get what their machines and racks suggest."""
    virtual_clusters: tuple[VirtualCluster, ...] = ()
    fair_share_weights: tuple[tuple[TenantId, float], ...] = ()
    """Of tenants in their shares of opportunistic use, by name; those that are missing have a weight of 1."""
    static_binding: bool = False
    """Every owned cell stands for one physical cell for good, whatever is on it. Only for comparisons (HiveD §5.3)."""


class CellPair(NamedTuple):
    """A virtual cell, the whole of which a task uses, and the physical cell that it is bound to."""

    level: int
    virtual: int
    physical: int


class TaskCellUse(NamedTuple):
    """The cells of one task."""

    owned_level: str
    """The level of its virtual cluster's cell that it stands in, or stood in before it was downgraded."""
    pairs: tuple[CellPair, ...] = ()
    """The virtual cells that its GPUs are; none while it is downgraded."""


class CellUse(NamedTuple):
    """The cells of one job in one cluster, where it uses its virtual cluster's."""

    tenant: TenantId
    virtual_cluster: VirtualClusterId
    chain: str
    tasks: tuple[TaskCellUse, ...]
    """In the order of its placements."""
    pinned_cell: str | None = None
    yields_to_downgrade: bool = False
    """Instead of being evicted by its own virtual cluster it may lose its cells and go on opportunistically."""
    downgraded: bool = False
    """It does without its cells at the moment."""


CellsOfJobs: TypeAlias = tuple[tuple[JobName, CellUse], ...]
"""Of the jobs of an attempt that use cells of a virtual cluster."""


def virtual_cluster_of(cells: CellsOfJobs) -> VirtualClusterId | None:
    """The virtual cluster whose cells an attempt uses; None where it uses none, or does without at the moment."""
    for _, use in cells:
        if not use.downgraded:
            return use.virtual_cluster
    return None


def downgraded(use: CellUse) -> CellUse:
    """The same without the cells: it goes on opportunistically."""
    return use._replace(tasks=tuple([TaskCellUse(task.owned_level) for task in use.tasks]), downgraded=True)


def cells_after(cells: CellsOfJobs, changed: CellsOfJobs) -> CellsOfJobs:
    """What the jobs of an attempt use once that of some of them has changed."""
    new = dict(changed)
    return tuple([(job, new.get(job, use)) for job, use in cells])
