"""What is asked of cells: tasks, how close together, for whom, and what may leave for it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from domain.affinity import CellAffinity
from domain.identifiers import GpuModel, TenantId, VirtualClusterId
from domain.rank import Standing


class InvalidRequest(ValueError):
    """A request that no state of the cluster could answer with a place."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """Identical tasks; each stays on one machine."""

    count: int
    gpus: int
    within: CellAffinity | None = None
    """Where the GPUs of each single task are to be: within one socket, one switch."""


@dataclass(frozen=True, slots=True)
class AffinityGroup:
    """Tasks and smaller groups that belong together."""

    tasks: tuple[Tasks, ...] = ()
    within: CellAffinity | None = None
    groups: tuple[AffinityGroup, ...] = ()

    @property
    def gpus(self) -> int:
        return sum(tasks.count * tasks.gpus for tasks in self.tasks) + sum(group.gpus for group in self.groups)

    def all_tasks(self) -> Iterator[Tasks]:
        """The tasks in the order in which an answer names their places: the group's own, then group by group."""
        yield from self.tasks
        for group in self.groups:
            yield from group.all_tasks()

    def affinities(self) -> Iterator[CellAffinity]:
        """Every affinity that is asked for, from the outermost on."""
        if self.within is not None:
            yield self.within
        yield from (tasks.within for tasks in self.tasks if tasks.within is not None)
        for group in self.groups:
            yield from group.affinities()


@dataclass(frozen=True, slots=True)
class CellRequest:
    """A gang that is to be placed whole or not at all, in one chain."""

    key: Hashable
    gang: AffinityGroup
    tenant: TenantId
    virtual_cluster: VirtualClusterId | None
    """The one whose cells it uses, guaranteed; None for opportunistic use of whatever is idle."""
    standing: Standing
    """Guaranteed work of a strictly worse one in the same virtual cluster may be evicted for it."""
    gpu_model: GpuModel | None = None
    """None: any."""
    pinned_cell: str | None = None
    """Only in this pinned cell of the virtual cluster."""
    yields_to_downgrade: bool = False
    """Instead of being evicted by its own virtual cluster it may lose its cells and go on opportunistically."""
    may_evict: bool = True
    chains: tuple[str, ...] | None = None
    """Only in these chains; None: any."""

    @property
    def guaranteed(self) -> bool:
        return self.virtual_cluster is not None

    def __post_init__(self) -> None:
        """Raises InvalidRequest."""
        if any(tasks.count < 1 or tasks.gpus < 1 for tasks in self.gang.all_tasks()):
            raise InvalidRequest(f"{self.key}: tasks must be at least one, with at least one GPU each")
        if not any(True for _ in self.gang.all_tasks()):
            raise InvalidRequest(f"{self.key}: asks for no tasks")
        if self.pinned_cell is not None and self.virtual_cluster is None:
            raise InvalidRequest(f"{self.key}: opportunistic work cannot ask for the pinned cell {self.pinned_cell}")
