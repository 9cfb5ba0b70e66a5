"""Places for the jobs of a workload, one after the other, each in the best cluster or in parts.

Rule: each job goes where its score is best with the earlier ones charged and their victims gone. A job that may be split is
placed in this order: free in one cluster, free in several, with victims in one, with victims in several. So it comes to the
best score, in which evictions come before the spread (design §4).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeAlias

from cluster_manager.mechanism import Query
from domain.identifiers import JobName
from domain.placement import AttemptKey
from domain.workload import JobSpecification
from regional_scheduler.cluster_choice import FoundPlace, find_best_place
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.several_clusters import Part, free_parts, parts_with_victims, room_of


class Demand(NamedTuple):
    """A job of the workload, or a part of it: at which position it was submitted, and what it asks for."""

    position: int
    job: JobSpecification
    query: Query
    first_task: int = 0
    """The number of its first task: a part of a job comes after those in other clusters."""

    @property
    def alike(self) -> Hashable:
        """The same for jobs of the workload that find the same places."""
        query = self.query
        return query.kind.number, query.tasks, query.affinity, query.across_clusters

    def part(self, tasks: int, first_task: int) -> Demand:
        """So many of its tasks, all in one cluster."""
        return self._replace(query=self.query._replace(tasks=tasks, across_clusters=False), first_task=first_task)


class NoPlace(NamedTuple):
    """Which job found no place; alone, when nothing else of the workload was placed before it."""

    demand: Demand
    alone: bool
    capacity: tuple[int, ...]
    held: bool = False
    """Whether it would find one on machines that are kept for others."""

    @property
    def job(self) -> JobName:
        """Its name."""
        return self.demand.job.name

    @property
    def room(self) -> tuple[int, ...]:
        """For how many of its tasks each cluster has room at most, in fleet order, if the job alone finds none."""
        return self.capacity if self.alone else ()


Placed: TypeAlias = list[tuple[Demand, FoundPlace]]


def place_in_turn(
    region: RegionCapacity,
    demands: Sequence[Demand],
    *,
    evicting: bool,
    within: Sequence[int] = (),
    gone: Sequence[AttemptKey] = (),
) -> Placed | NoPlace:
    """The best place for each job in turn, or for its parts, the earlier ones and what they evict taken into account.

    `within` keeps each job to one cluster; the attempts that are `gone` count as released. Ends with the first job
    without a place, and says what capacity there was for it in each cluster, if evictions were sought.
    """
    placed: Placed = []
    with region.supposing():
        for key in gone:
            region.suppose_released(key)
        for number, demand in enumerate(demands):
            where = within[number] if within else None
            found = _place_one(region, demand, where, evicting=evicting)
            if isinstance(found, FoundPlace):
                placed.append((demand, found))
                if number + 1 < len(demands):
                    _suppose_placed(region, found)
            elif isinstance(found, list):
                placed += _place_parts(region, demand, found, evicting=evicting)
            else:
                return NoPlace(demand, number == 0, found)
    return placed


def _place_one(
    region: RegionCapacity, demand: Demand, within: int | None, *, evicting: bool
) -> FoundPlace | list[Part] | tuple[int, ...]:
    """The best place for the job in one cluster, or how it is split; else what capacity there was, as `find_best_place` says.

    In this order: free in one cluster, free in several, with victims in one, with victims in several. So it comes to the
    best score, in which evictions come before the spread.
    """
    query = demand.query
    if within is not None or not query.across_clusters:
        return find_best_place(region, query, within, evicting=evicting)
    found = find_best_place(region, query)
    if isinstance(found, FoundPlace):
        return found
    parts = free_parts(region, query)
    if parts or not evicting:
        return parts or ()
    found = find_best_place(region, query, evicting=True)
    if isinstance(found, FoundPlace):
        return found
    with_victims = parts_with_victims(region, query)
    return with_victims if isinstance(with_victims, list) else room_of(region, found, with_victims)


def _place_parts(region: RegionCapacity, demand: Demand, parts: Sequence[Part], *, evicting: bool) -> Placed:
    """The places of the parts, their tasks numbered through. Raises LookupError for parts that do not fit."""
    placed: Placed = []
    first_task = demand.first_task
    for position, tasks in parts:
        part = demand.part(tasks, first_task)
        found = find_best_place(region, part.query, position, evicting=evicting)
        if not isinstance(found, FoundPlace):
            cluster = region.cluster_ids[position]
            raise LookupError(f"cluster {cluster}: no place for {tasks} tasks of job {demand.job.name}, as counted")
        placed.append((part, found))
        _suppose_placed(region, found)
        first_task += tasks
    return placed


def _suppose_placed(region: RegionCapacity, found: FoundPlace) -> None:
    for victim in found.place.victims:
        region.suppose_released(victim.key)
    region.suppose_charged(found.position, found.place.entries)
