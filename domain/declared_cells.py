"""What tenants.yaml says of virtual clusters (HiveD §3.2): in the words of that file, not yet matched with a fleet.

`cluster_manager.cells.declared` makes `domain.cells.VirtualCluster` of it: there every name is one of the fleet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from domain.identifiers import ClusterId, GpuModel, MachineId, TenantId


@dataclass(frozen=True, slots=True)
class DeclaredCells:
    """So many cells of a level."""

    level: str
    cells: int
    hierarchy: str | None = None
    """None: the only one of the cluster that has a level of this name."""


@dataclass(frozen=True, slots=True)
class DeclaredMachines:
    """As many GPUs on each of so many machines, as in "32 GPUs in 4 machines"."""

    gpus: int
    machines: int
    gpu_model: GpuModel | None = None
    """None: the only one of the cluster."""


@dataclass(frozen=True, slots=True)
class DeclaredPin:
    """One very cell of the cluster, for work that asks for it by name."""

    name: str
    level: str
    machine: MachineId
    """One that the cell lies on."""
    gpu: int = 0
    """One of its GPUs there, for a cell that is less than a machine."""
    hierarchy: str | None = None
    """None: that of the machine."""


@dataclass(frozen=True, slots=True)
class DeclaredVirtualCluster:
    """What a tenant may count on in one cluster. Several declarations of one tenant and cluster add up."""

    cluster: ClusterId
    cells: tuple[DeclaredCells, ...] = ()
    pinned: tuple[DeclaredPin, ...] = ()
    machines: DeclaredMachines | None = None
    """The short form, instead of cells."""


Declarations: TypeAlias = Mapping[TenantId, Sequence[DeclaredVirtualCluster]]
"""The virtual clusters by tenant, in the order of the file that they come from."""
