"""Whether several jobs fit into an empty region all at once, each in one cluster unless it may be split: an exact search.

Machines of a shape are alike while they are empty. So a cluster is searched by patterns: how many tasks of each job
share one machine, and how many machines use that pattern. Patterns that leave room for one more task are never needed.
A branch ends as soon as the machines that remain could not hold the tasks that remain, job by job or resource by
resource. Only contrived workloads need more than a few steps.

Ignores: everything that makes one place better than another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from cluster_manager.capacity.machine_shapes import Amounts, MachineShape, tasks_within
from domain.resources import TaskResources
from regional_scheduler.empty_clusters import EmptyCluster

MOST_STEPS = 4_000
"""After so many steps the search gives up: about a tenth of a second."""
MOST_PATTERNS = 400
"""Of all shapes of a cluster together; the search is as deep as there are patterns."""

Pattern: TypeAlias = tuple[int, ...]
"""Tasks of each job on one machine."""
Machines: TypeAlias = tuple[tuple[MachineShape, int], ...]


@dataclass(frozen=True, slots=True)
class GangDemand:
    """What one job asks for: so many tasks of this size."""

    tasks: int
    resources: TaskResources
    split: bool = False
    """Whether its tasks may be in several of the clusters that take parts."""


class SearchGivenUp(Exception):
    """There are too many ways to share machines to try them all."""


class _Budget:
    """Counts the steps of a search."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MOST_STEPS

    def spend(self) -> None:
        """One step more; raises SearchGivenUp when that is one too many."""
        self._left -= 1
        if self._left < 0:
            raise SearchGivenUp


def fit_together(
    clusters: Sequence[EmptyCluster], demands: Sequence[GangDemand], takes_parts: Sequence[bool] = ()
) -> bool:
    """Whether all jobs fit at once; raises SearchGivenUp when that would take too long to find out.

    `takes_parts` says of each cluster whether it may have a part of a job that is split; empty: none may.
    """
    # Those that may be split come last: they fill what is left.
    order = sorted(
        range(len(demands)),
        key=lambda job: (demands[job].split, -demands[job].tasks * demands[job].resources.gpus, job),
    )
    search = _GangSearch(
        [cluster.machines for cluster in clusters], [demands[job] for job in order], tuple(takes_parts)
    )
    return search.assign(0)


Given: TypeAlias = tuple[tuple[int, int], ...]
"""What a cluster was given: jobs, and how many tasks of each."""


class _GangSearch:
    """Gives the jobs to clusters one after the other, as long as each cluster holds what it was given."""

    __slots__ = ("_budget", "_clusters", "_demands", "_given", "_known", "_takes_parts")

    def __init__(
        self, clusters: Sequence[Machines], demands: Sequence[GangDemand], takes_parts: tuple[bool, ...]
    ) -> None:
        self._clusters = clusters
        self._demands = demands
        self._takes_parts = takes_parts
        self._given: list[Given] = [()] * len(clusters)
        self._known: dict[tuple[Machines, Given], bool] = {}
        self._budget = _Budget()

    def assign(self, job: int) -> bool:
        """Whether this and the later jobs find clusters, beside what the clusters were given already."""
        if job == len(self._demands):
            return True
        tried: set[tuple[Machines, Given]] = set()
        for cluster, machines in enumerate(self._clusters):
            before = self._given[cluster]
            # Clusters alike that were given alike are one choice, not several.
            if (machines, before) in tried:
                continue
            tried.add((machines, before))
            self._given[cluster] = (*before, (job, self._demands[job].tasks))
            if self._holds(machines, self._given[cluster]) and self.assign(job + 1):
                return True
            self._given[cluster] = before
        return self._demands[job].split and self._assign_parts(job, 0, self._demands[job].tasks)

    def _assign_parts(self, job: int, cluster: int, left: int) -> bool:
        """The same with so many tasks of the job in this cluster and the later ones that take parts."""
        if left == 0:
            return self.assign(job + 1)
        while cluster < len(self._takes_parts) and not self._takes_parts[cluster]:
            cluster += 1
        if cluster >= len(self._takes_parts):
            return False
        before = self._given[cluster]
        for tasks in range(left, -1, -1):
            self._budget.spend()
            self._given[cluster] = (*before, (job, tasks)) if tasks else before
            holds = not tasks or self._holds(self._clusters[cluster], self._given[cluster])
            if holds and self._assign_parts(job, cluster + 1, left - tasks):
                return True
        self._given[cluster] = before
        return False

    def _holds(self, machines: Machines, given: Given) -> bool:
        known = self._known.get((machines, given))
        if known is None:
            demands = [replace(self._demands[job], tasks=tasks) for job, tasks in given]
            known = self._count_alone(machines, demands[-1])
            if known and len(given) > 1:
                known = self._share(machines, demands)
            self._known[machines, given] = known
        return known

    def _count_alone(self, machines: Machines, demand: GangDemand) -> bool:
        room = sum(shape.tasks_when_empty(demand.resources, demand.tasks) * count for shape, count in machines)
        return room >= demand.tasks

    def _share(self, machines: Machines, demands: Sequence[GangDemand]) -> bool:
        if _fit_without_sharing(machines, demands):
            return True
        groups = [
            _MachineGroup(shape.capacity, count, tuple(_Filling(shape, demands, self._budget).patterns))
            for shape, count in machines
        ]
        if sum(len(group.patterns) for group in groups) > MOST_PATTERNS:
            raise SearchGivenUp
        sharing = _Sharing(groups, _least_needs(machines, demands), self._budget)
        return sharing.finish(0, 0, groups[0].machines, tuple(demand.tasks for demand in demands))


def _fit_without_sharing(machines: Machines, demands: Sequence[GangDemand]) -> bool:
    """Whether it is enough that every job gets machines of its own, the ones that hold most of its tasks first."""
    left = [count for _, count in machines]
    for demand in demands:
        rooms = [shape.tasks_when_empty(demand.resources, demand.tasks) for shape, _ in machines]
        remaining = demand.tasks
        for index in sorted(range(len(rooms)), key=lambda index: (-rooms[index], index)):
            if rooms[index] and remaining > 0:
                used = min(left[index], -(-remaining // rooms[index]))
                left[index] -= used
                remaining -= used * rooms[index]
        if remaining > 0:
            return False
    return True


@dataclass(frozen=True, slots=True)
class _MachineGroup:
    """The machines of one shape in a cluster, and the ways in which the jobs can share one of them."""

    capacity: Amounts
    machines: int
    patterns: tuple[Pattern, ...]


class _Filling:
    """Every way to fill one machine so that no further task goes in."""

    __slots__ = ("_budget", "_demands", "_needs", "patterns")

    def __init__(self, shape: MachineShape, demands: Sequence[GangDemand], budget: _Budget) -> None:
        self._budget = budget
        self._demands = demands
        self._needs = [shape.need_of(demand.resources) if shape.suits(demand.resources) else None for demand in demands]
        self.patterns: list[Pattern] = []
        self._fill(shape.capacity, ())

    def _fill(self, free: Amounts, chosen: Pattern) -> None:
        self._budget.spend()
        job = len(chosen)
        if job == len(self._demands):
            if any(chosen) and self._is_full(free, chosen):
                self.patterns.append(chosen)
            return
        need = self._needs[job]
        most = 0 if need is None else tasks_within(free, need, self._demands[job].tasks)
        # The last job takes all that is left: with less the machine would not be full.
        least = most if job == len(self._demands) - 1 else 0
        for tasks in range(most, least - 1, -1):
            self._fill(free if need is None else _less(free, need, tasks), (*chosen, tasks))

    def _is_full(self, free: Amounts, chosen: Pattern) -> bool:
        return all(
            tasks == demand.tasks or need is None or tasks_within(free, need, 1) == 0
            for tasks, demand, need in zip(chosen, self._demands, self._needs, strict=True)
        )


def _less(free: Amounts, need: Amounts, tasks: int) -> Amounts:
    gpus, millicpus, mebibytes = free
    return gpus - tasks * need[0], millicpus - tasks * need[1], mebibytes - tasks * need[2]


def _least_needs(machines: Machines, demands: Sequence[GangDemand]) -> tuple[Amounts, ...]:
    """What a task of each job takes at least, on whatever shape suits it."""
    least: list[Amounts] = []
    for demand in demands:
        needs = [shape.need_of(demand.resources) for shape, _ in machines if shape.suits(demand.resources)]
        gpus, millicpus, mebibytes = (min(amounts) for amounts in zip(*needs, strict=True))
        least.append((gpus, millicpus, mebibytes))
    return tuple(least)


class _Sharing:
    """The search in one cluster: how many machines use which pattern, shape by shape."""

    __slots__ = ("_budget", "_failed", "_groups", "_least_needs")

    def __init__(self, groups: Sequence[_MachineGroup], least_needs: Sequence[Amounts], budget: _Budget) -> None:
        self._groups = groups
        self._least_needs = least_needs
        self._budget = budget
        self._failed: set[tuple[int, int, int, Pattern]] = set()

    def finish(self, group: int, pattern: int, left: int, remaining: Pattern) -> bool:
        """Whether the remaining tasks of each job fit.

        There are `left` machines of this group, for its patterns from this one on, and all machines of later groups.
        """
        self._budget.spend()
        if not any(remaining):
            return True
        if group == len(self._groups) or not self._could(group, pattern, left, remaining):
            return False
        state = group, pattern, left, remaining
        if state in self._failed:
            return False
        if self._finish_from(group, pattern, left, remaining):
            return True
        self._failed.add(state)
        return False

    def _finish_from(self, group: int, pattern: int, left: int, remaining: Pattern) -> bool:
        patterns = self._groups[group].patterns
        if pattern == len(patterns) or left == 0:
            following = self._groups[group + 1].machines if group + 1 < len(self._groups) else 0
            return self.finish(group + 1, 0, following, remaining)
        chosen = patterns[pattern]
        useful = max(-(-asked // tasks) for asked, tasks in zip(remaining, chosen, strict=True) if tasks)
        for used in range(min(left, useful), -1, -1):
            after = tuple(max(0, asked - used * tasks) for asked, tasks in zip(remaining, chosen, strict=True))
            if self.finish(group, pattern + 1, left - used, after):
                return True
        return False

    def _could(self, group: int, pattern: int, left: int, remaining: Pattern) -> bool:
        """False when what is left is too little for one of the jobs alone, or for all in one resource."""
        here = _MachineGroup(self._groups[group].capacity, left, self._groups[group].patterns[pattern:])
        groups = (here, *self._groups[group + 1 :])
        for job, asked in enumerate(remaining):
            room = sum(rest.machines * max((chosen[job] for chosen in rest.patterns), default=0) for rest in groups)
            if room < asked:
                return False
        return all(
            sum(asked * need[resource] for asked, need in zip(remaining, self._least_needs, strict=True))
            <= sum(rest.machines * rest.capacity[resource] for rest in groups)
            for resource in range(3)
        )
