"""Places for several jobs at once: an exact search, where placing them one after the other has failed.

Machines that have the same free are alike. So a cluster is described by patterns: how many tasks of each job share one
machine, and how many machines use that pattern; patterns with capacity for one more task are never needed. Which cluster
each job goes to, and how many machines use which pattern, is an integer program (HiGHS). A job that may be split over
clusters is kept whole where that is possible; else the program says how many of its tasks go to which cluster, over as few of
them as can be.

Invariant: what is returned fits, every job whole and in one cluster unless it may be split. Where all clusters pack, and the
search is not given up, nothing is returned only if nothing fits.

Ignores: what makes one place better than another. Gives up, always alike, where there are too many kinds of machines,
patterns or branches; leaves out clusters with other mechanisms, and jobs that must be on one machine or in one rack.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from cluster_manager.capacity.tables import NO_WORK, RESOURCES, WORKS_AS, Integers
from cluster_manager.capacity.task_kinds import TIER, UNFIT
from cluster_manager.mechanism import Query
from cluster_manager.packing.mechanism import Packing
from cluster_manager.tuning.program import NotSolved, Program
from regional_scheduler.region_capacity import RegionCapacity

MOST_GROUPS = 64
"""Of machines that are alike, in all clusters together."""
MOST_PATTERNS = 2_000
"""Of all groups together."""
MOST_FILLINGS = 20_000
"""Ways to fill machines that are looked at to find the patterns."""
MOST_NODES = 500
"""Of the search tree of the integer program."""
MOST_JOBS = 12

Amounts: TypeAlias = tuple[int, ...]
Pattern: TypeAlias = tuple[int, ...]
"""Tasks of each job on one machine."""


class ExactPlace(NamedTuple):
    """Where one job goes, or a part of it."""

    job: int
    """Which of the jobs."""
    position: int
    """Of the cluster in the region."""
    machines: Integers
    """In ascending order."""
    tasks: Integers
    """On each of them."""


class _Group(NamedTuple):
    """Machines of a cluster that have the same free."""

    position: int
    machines: tuple[int, ...]
    patterns: tuple[Pattern, ...]


class _GivenUp(Exception):
    """There are too many ways to try."""


def exact_places(region: RegionCapacity, queries: Sequence[Query]) -> list[ExactPlace] | None:
    """A place for each of the jobs, all at once and with what is free now, or places for the parts of those that are split; None:
    none was found. By job, the largest part first.
    """
    if len(queries) > MOST_JOBS or any(query.affinity.hard for query in queries):
        return None
    try:
        groups = _groups_of(region, queries)
    except _GivenUp:
        return None
    for splitting in (False, True) if any(query.across_clusters for query in queries) else (False,):
        try:
            chosen = _solve(groups, queries, splitting=splitting)
        except NotSolved:
            continue
        return [place for job in range(len(queries)) for place in _places_of(job, groups, chosen)]
    return None


def _groups_of(region: RegionCapacity, queries: Sequence[Query]) -> list[_Group]:
    groups: list[_Group] = []
    fillings = _Fillings()
    for position, (cluster, mechanism) in enumerate(zip(region.clusters, region.mechanisms, strict=True)):
        if not isinstance(mechanism, Packing):
            continue
        state = cluster.arrays.state
        machines = np.flatnonzero(state[:, WORKS_AS] != NO_WORK)
        free = np.column_stack((state[machines, WORKS_AS], np.maximum(state[machines, :RESOURCES], 0)))
        kinds, numbers = np.unique(free, axis=0, return_inverse=True)
        for number, (shape, *amounts) in enumerate(kinds.tolist()):
            patterns = fillings.patterns(shape, tuple(amounts), queries)
            if patterns:
                groups.append(_Group(position, tuple(machines[numbers == number].tolist()), patterns))
                if len(groups) > MOST_GROUPS or sum(len(group.patterns) for group in groups) > MOST_PATTERNS:
                    raise _GivenUp
    return groups


class _Fillings:
    """Every way to fill a machine so that no further task goes in."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MOST_FILLINGS

    def patterns(self, shape: int, free: Amounts, queries: Sequence[Query]) -> tuple[Pattern, ...]:
        """Those with a task. Raises _GivenUp."""
        needs: list[Amounts | None] = []
        for query in queries:
            table = query.kind.needs.table
            needs.append(None if table[shape, TIER] == UNFIT else tuple(table[shape, :RESOURCES].tolist()))
        return tuple([pattern for pattern in self._fill(free, needs, queries, ()) if any(pattern)])

    def _fill(
        self, free: Amounts, needs: Sequence[Amounts | None], queries: Sequence[Query], chosen: Pattern
    ) -> Iterator[Pattern]:
        self._left -= 1
        if self._left < 0:
            raise _GivenUp
        job = len(chosen)
        if job == len(needs):
            if all(
                tasks == query.tasks or _most(free, need, 1) == 0
                for tasks, need, query in zip(chosen, needs, queries, strict=True)
            ):
                yield chosen
            return
        need = needs[job]
        most = _most(free, need, queries[job].tasks)
        # The last job takes all that is left: with less there would be capacity for one more.
        least = most if job == len(needs) - 1 else 0
        for tasks in range(most, least - 1, -1):
            left = free if need is None else tuple(have - tasks * one for have, one in zip(free, need, strict=True))
            yield from self._fill(left, needs, queries, (*chosen, tasks))


def _most(free: Amounts, need: Amounts | None, tasks: int) -> int:
    """For how many tasks there is capacity, at most so many."""
    if need is None:
        return 0
    return min([tasks, *(have // one for have, one in zip(free, need, strict=True) if one > 0)])


class _Chosen(NamedTuple):
    """What the integer program says."""

    tasks_in: tuple[Mapping[int, int], ...]
    """[job] how many of its tasks are in the clusters at these positions."""
    machines_of: tuple[tuple[int, ...], ...]
    """[group][pattern] how many machines use it."""


class _Option(NamedTuple):
    """A job may have tasks in a cluster: all of them, or so many at most."""

    job: int
    position: int
    most: int
    whole: bool


def _solve(groups: Sequence[_Group], queries: Sequence[Query], *, splitting: bool) -> _Chosen:
    """Raises NotSolved."""
    options = _options(groups, queries, splitting=splitting)
    # Rows: each job has all its tasks somewhere; each machine has one pattern; in each cluster there are patterns for what a job
    # has there; only where the job is does it have tasks.
    first_group = len(queries)
    row_of = {(one.job, one.position): first_group + len(groups) + number for number, one in enumerate(options)}
    parts = [one for one in options if not one.whole]
    first_part = first_group + len(groups) + len(options)
    program = Program(
        [(float(query.tasks), float(query.tasks)) for query in queries]
        + [(0.0, float(len(group.machines))) for group in groups]
        + [(0.0, math.inf)] * (len(options) + len(parts))
    )
    for one in options:
        tasks = float(queries[one.job].tasks) if one.whole else 1.0
        entries = [(one.job, tasks), (row_of[one.job, one.position], -tasks)]
        if not one.whole:
            entries.append((first_part + parts.index(one), -1.0))
        program.add_column(0.0, 1.0 if one.whole else float(one.most), entries, whole=True)
    for number, group in enumerate(groups):
        for pattern in group.patterns:
            entries = [(first_group + number, 1.0)]
            entries += [
                (row_of[job, group.position], float(tasks))
                for job, tasks in enumerate(pattern)
                if tasks and (job, group.position) in row_of
            ]
            program.add_column(0.0, float(len(group.machines)), entries, whole=True)
    for number, one in enumerate(parts):
        program.add_column(-1.0, 1.0, [(first_part + number, float(one.most))], whole=True)
    values = iter(round(value) for value in program.solve(math.inf, most_nodes=MOST_NODES).values)
    tasks_in: list[dict[int, int]] = [{} for _ in queries]
    for one in options:
        tasks = next(values) * (queries[one.job].tasks if one.whole else 1)
        if tasks:
            tasks_in[one.job][one.position] = tasks
    if any(sum(having.values()) < query.tasks for having, query in zip(tasks_in, queries, strict=True)):
        raise NotSolved("a job has no cluster")
    machines_of = tuple([tuple([next(values) for _ in group.patterns]) for group in groups])
    return _Chosen(tuple(tasks_in), machines_of)


def _options(groups: Sequence[_Group], queries: Sequence[Query], *, splitting: bool) -> list[_Option]:
    options: list[_Option] = []
    for job, query in enumerate(queries):
        whole = not (splitting and query.across_clusters)
        for position in sorted({group.position for group in groups}):
            most = min(_room(job, position, groups), query.tasks)
            if most >= (query.tasks if whole else 1):
                options.append(_Option(job, position, most, whole))
    return options


def _room(job: int, position: int, groups: Sequence[_Group]) -> int:
    return sum(
        len(group.machines) * max(pattern[job] for pattern in group.patterns)
        for group in groups
        if group.position == position
    )


def _places_of(job: int, groups: Sequence[_Group], chosen: _Chosen) -> list[ExactPlace]:
    """The machines of its clusters whose patterns have tasks of the job, as many as it needs; the largest part first."""
    tasks_on: dict[int, dict[int, int]] = {position: {} for position in chosen.tasks_in[job]}
    left = dict(chosen.tasks_in[job])
    for group, uses in zip(groups, chosen.machines_of, strict=True):
        machines = iter(group.machines)
        for pattern, use in zip(group.patterns, uses, strict=True):
            for _ in range(use):
                machine = next(machines)
                tasks = min(pattern[job], left.get(group.position, 0))
                if tasks:
                    tasks_on[group.position][machine] = tasks
                    left[group.position] -= tasks
    places: list[ExactPlace] = []
    for position in sorted(tasks_on, key=lambda position: (-chosen.tasks_in[job][position], position)):
        in_order = sorted(tasks_on[position])
        tasks_in_order = [tasks_on[position][machine] for machine in in_order]
        places.append(ExactPlace(job, position, np.array(in_order, np.int64), np.array(tasks_in_order, np.int64)))
    return places
