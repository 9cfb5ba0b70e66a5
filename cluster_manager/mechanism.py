"""The boundary of placement: what is asked of one cluster, and what its mechanism answers.

A mechanism decides where in its cluster a job goes, down to the indices of the GPUs, and which attempts leave for it.
Which cluster is best is the region's business: it compares the places that mechanisms find, which may be different
ones side by side. A mechanism changes nothing: what it finds is charged by its caller.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol, runtime_checkable

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.released_capacity import ReleasedCapacity
from cluster_manager.capacity.tables import Integers
from cluster_manager.capacity.task_kinds import TaskKind
from domain.affinity import JobAffinity
from domain.cells import CellUse
from domain.diagnosis import Reason
from domain.identifiers import JobName, TenantId, VirtualClusterId
from domain.placement import AttemptKey, Holding
from domain.rank import Standing
from domain.tenant import HIGHEST_PRIORITY

# Columns of the table of tasks of a place.
TASK_MACHINE = 0
TASK_MILLICPUS = 1
TASK_MEBIBYTES = 2
TASK_GPU_BITS = 3
TASK_COLUMNS = 4


class AffinityLevel(IntEnum):
    """How close together the tasks of a job should be, from the closest on."""

    MACHINE = 0
    RACK = 1
    CLUSTER = 2


class Affinity(NamedTuple):
    """All tasks within one unit of this level: as close to that as possible, or, if hard, nowhere else."""

    level: AffinityLevel
    hard: bool = False
    """With `said`: whether anything there is hard."""
    said: JobAffinity | None = None
    """What the job said, if it is more than a preference for this level; then a mechanism that knows cells goes by that."""
    fills: bool = False
    """With no level asked for: rather on machines that are partly taken than on idle ones."""


NO_AFFINITY = Affinity(AffinityLevel.CLUSTER)
FRAGMENTS = Affinity(AffinityLevel.CLUSTER, fills=True)
"""On what others have left over (Tiresias §3.3.2): for a job that is known to be as fast there."""
CONSOLIDATED = Affinity(AffinityLevel.MACHINE)
"""On as few racks and machines as there may be (Tiresias §4.3)."""


class Query(NamedTuple):
    """One job that seeks a place: what it asks for, and for whom."""

    kind: TaskKind
    """What each of its tasks asks for."""
    tasks: int
    affinity: Affinity
    standing: Standing
    """Attempts of a strictly worse one may be evicted for it."""
    now_s: float
    tenant: TenantId
    virtual_cluster: VirtualClusterId | None
    """The one whose cells it may use (HiveD §3); None for opportunistic use."""
    guaranteed: bool
    """Within its tenant's quota; else it uses only what is left over, and is the first to leave."""
    may_evict: bool = False
    """Whether attempts may be evicted where there is no place otherwise."""
    victims_from_priority: int = HIGHEST_PRIORITY
    """Only attempts of this priority or a lower one: another cluster has a place that is better than any with others."""
    across_clusters: bool = False
    """Whether the region may split it: then it asks each cluster for a part. A mechanism is asked for all these tasks."""


class Place(NamedTuple):
    """Where in one cluster a job would go, and which attempts leave for it."""

    tasks: Integers
    """[task, TASK_MACHINE | TASK_MILLICPUS | TASK_MEBIBYTES | TASK_GPU_BITS] numbered in machine order."""
    entries: Integers
    """[machine, as in AttemptArrays] what all tasks together take, in machine order."""
    victims: tuple[Holding, ...]
    """What each victim holds in this cluster, in the order of eviction."""
    spread: int
    """Racks (1,000,000 each) and machines (1 each) beyond the first, for a job to be consolidated; else 0."""
    fragmentation: float
    """GPUs left idle on the machines that are used; for a job without GPUs the share of CPUs."""
    last_resort: bool = False
    """Whether victims on machines that such a job leaves to others had to be considered; a cluster where they had not
    is better, if the best priority of its victims is the same."""
    cells: CellUse | None = None
    """The cells of a virtual cluster that it uses, to be written down with it."""
    downgraded: tuple[tuple[AttemptKey, JobName], ...] = ()
    """Jobs of attempts that lose their cells to the job and go on opportunistically where they are."""
    own_cells: tuple[AttemptKey, ...] = ()
    """Of the victims those that use the owner's cells opportunistically: they leave whatever their standing."""


class CellChange(NamedTuple):
    """What a job of a live attempt uses of its virtual cluster's cells from now on, on the GPUs that it has."""

    attempt: AttemptKey
    job: JobName
    use: CellUse


@dataclass(frozen=True, slots=True)
class Shortfall:
    """There is no place."""

    capacity: int
    """For how many of the job's tasks there is capacity at most, with all evicted that may be."""


class BestPlace(NamedTuple):
    """The best of the places in several clusters."""

    position: int
    """Of the cluster in the region."""
    place: Place


class PlacementMechanism(Protocol):
    """One way to place jobs in a cluster. It keeps nothing between two calls but what it can find out again."""

    def find(self, query: Query, view: ClusterCapacity) -> Place | Shortfall:
        """The best place in this cluster, evicting only where it must and may.

        A shortfall is exact: the mechanism has no place for the job in the cluster as it is. The view is as before.
        """
        ...

    def same_answer_key(self, query: Query, view: ClusterCapacity) -> Hashable:
        """Queries of the same key get the same answer as long as the cluster's revision is the same."""
        ...

    def refusal_scope(self, query: Query, view: ClusterCapacity) -> Hashable:
        """What decides whether the query finds a place, beside what a memory of refusals compares by size.

        A query that found no place says this of every other one of the same scope that asks for the same GPU model or a
        stricter one, as many tasks or more, each of as much or more, at the same or a worse standing, and guaranteed only
        if it was itself. A mechanism for which any of that does not hold puts the field into the scope, such as the
        tenant, the virtual cluster, or a hard affinity.
        """
        ...

    def required_victims(self, query: Query, victims: Sequence[AttemptKey], view: ClusterCapacity) -> tuple[bool, ...]:
        """For each of these victims, which all leave, whether the job surely has no place if that one alone stays.

        False says nothing.
        """
        ...

    def capacity_after(self, query: Query, capacity: int, released: ReleasedCapacity) -> int:
        """For how many of the job's tasks there may be capacity at most, where it was `capacity` before a release.

        Capacity may have grown for the job if this is enough for its tasks; below that it surely finds no place. It hears
        of every release: a mechanism in which whatever stands worse may be evicted can leave those out that do not concern
        the query (`ReleasedCapacity.concerns`), and no other one.
        """
        ...


@runtime_checkable
class SeveralClusters(Protocol):
    """What a mechanism may offer besides: clusters that have the very same mechanism are then asked in one call."""

    def find_best(
        self, query: Query, views: Sequence[ClusterCapacity], positions: Integers
    ) -> BestPlace | tuple[int, ...]:
        """The first of the best places, by `place_rank`, that `find` has in the clusters at these positions.

        Where it has none in any of them: for each, the capacity of its shortfall. There is at least one position.
        """
        ...


@runtime_checkable
class ReclaimsForOwners(Protocol):
    """What a mechanism may offer besides: owners for whom others leave, whatever their standings."""

    def reclaims(self, query: Query) -> bool:
        """Whether attempts of any standing may have to leave for the query."""
        ...


@runtime_checkable
class ChangesCells(Protocol):
    """What a mechanism may offer besides: cells that live attempts lose and get back while they go on."""

    def cell_changes(self, view: ClusterCapacity) -> Sequence[CellChange]:
        """The jobs that use other cells from now on than their holdings say, all of them together. The view is as before."""
        ...

    def bound_anew(self, view: ClusterCapacity) -> Sequence[CellChange]:
        """The jobs whose cells are others that are alike, for machines, virtual clusters or their tasks have changed. Until
        their holdings say so, what is bound depends on more than these. The view is as before."""
        ...


class WhyWaiting(NamedTuple):
    """Why a cluster divided into cells has no place for a job."""

    reason: Reason
    sentence: str
    """Without its subject, the job."""
    asked: str
    """The cells that it asks for, in words."""
    owned: str
    """The cells that may serve it, in words; empty for opportunistic work."""


@runtime_checkable
class ExplainsWaiting(Protocol):
    """What a mechanism may offer besides: its own words for why there is no place."""

    def why_waiting(self, query: Query, view: ClusterCapacity) -> WhyWaiting | None:
        """Why the query has no place in the cluster; None where it has one, or there is nothing to add to the counts."""
        ...
