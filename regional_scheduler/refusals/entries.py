"""Jobs that alone found no place, kept so that those which cover a new job are found at once (MAST §4.3).

Rule: a job that found no place covers every one of its group that asks for as many tasks or more, of as many GPUs, CPUs
and MiB or more, at the same or a worse standing, unless that one is guaranteed and the first was not: a guaranteed
newcomer may evict what others must leave alone, never the other way round. Nor does the refusal of one that must be in one
cluster cover one that may be split; that of one that may be split covers both. One that was kept off what is reserved covers
only those that run for as long or longer by their class. Only entries that no other one of the group
covers are kept, and of those only so many as were used last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from cluster_manager.capacity.tables import Integers
from cluster_manager.mechanism import Query
from domain.identifiers import GpuModel
from domain.rank import Standing
from domain.workload import JobSpecification
from kernels.compiled import compiled
from regional_scheduler.refusals.releases import ReleaseLog

Scope: TypeAlias = tuple[Hashable, ...]
"""[cluster] What its mechanism looks at beside what is compared here: see `PlacementMechanism.refusal_scope`."""

Group: TypeAlias = tuple[GpuModel, bool, bool, Scope]
"""GPU model asked for, whether CPUs are the proportional share, whether memory is, scope: only like is compared with
like."""

ENTRIES_REMEMBERED = 8_192
"""When there are more, the least recently used eighth of them is forgotten."""

# Columns of the table of a group, each the larger the harder to place; amounts are those of one task.
TASKS = 0
GPUS = 1
MILLICPUS = 2
MEBIBYTES = 3
OPPORTUNISTIC = 4
STANDING = 5
IN_ONE_CLUSTER = 6
RUN_TIME = 7
"""Its class, if it was refused for want of what is kept for others; else 0. Of a job that is asked about: its class."""
ENTRY_COLUMNS = 8
LEVELS = 1 << 32
"""More than one priority has."""


def standing_column(standing: Standing) -> int:
    """The standing as one number, the larger the worse."""
    return standing.priority * LEVELS + standing.level


@dataclass(slots=True, eq=False)
class RefusedJob:
    """A job that found no place, and for how many of its tasks each cluster may have capacity by now."""

    group: Group
    row: Integers  # as in a group's table
    job: JobSpecification
    query: Query
    """As the mechanisms were asked, at the standing at which it was refused."""
    capacity: list[int]  # [cluster]
    when_empty: list[int]  # [cluster]
    together: tuple[int, ...]
    """The positions of the clusters whose capacities count together for it; empty: it must be in one cluster."""
    seen: int
    """The releases before this number are in `capacity`."""
    used: int = 0
    """When it was last the answer."""
    holds: bool = True
    """False: the job may find a place by now."""

    def may_fit(self, position: int) -> bool:
        """Whether the capacity suffices for its tasks now that there is more at this position."""
        tasks, capacity = self.query.tasks, self.capacity
        return capacity[position] >= tasks or sum([capacity[one] for one in self.together]) >= tasks


class RefusedJobs:
    """What is remembered in one layer."""

    __slots__ = ("_clock", "_count_again", "_groups", "_releases", "count")

    def __init__(self, releases: ReleaseLog, count_again: Callable[[RefusedJob], list[int] | None]) -> None:
        """`count_again` gives the capacities of clusters for an entry's tasks, if they are known to be too little."""
        self._groups: dict[Group, _Group] = {}
        self._releases = releases
        self._count_again = count_again
        self._clock = 0
        self.count = 0
        """How many entries there are; some may turn out not to hold any more when they are asked about next."""

    def covering(self, groups: tuple[Group, ...], row: Integers) -> RefusedJob | None:
        """An entry of one of these groups that covers such a job and still holds."""
        for name in groups:
            group = self._groups.get(name)
            if group is None:
                continue
            while (entry := group.covering(row)) is not None:
                if self.still_holds(entry):
                    self.use(entry)
                    return entry
                self._remove(group, entry)
        return None

    def still_holds(self, entry: RefusedJob) -> bool:
        """Adds to its capacity what was released meanwhile at most.

        Where that may be enough for its tasks it is counted again, and ends unless it is too little after all.
        """
        if entry.holds and entry.seen != self._releases.number:
            if not self._stays_short(entry):
                counts = self._count_again(entry)
                if counts is None:
                    entry.holds = False
                else:
                    entry.capacity = counts
            entry.seen = self._releases.number
        return entry.holds

    def _stays_short(self, entry: RefusedJob) -> bool:
        since = self._releases.since(entry.seen)
        if since is None:
            return False
        query, capacity = entry.query, entry.capacity
        for release in since:
            position = release.position
            most = release.mechanism.capacity_after(query, capacity[position], release.released)
            capacity[position] = min(most, entry.when_empty[position])
            if entry.may_fit(position):
                return False
        return True

    def use(self, entry: RefusedJob) -> None:
        """It was the answer."""
        self._clock += 1
        entry.used = self._clock

    def add(self, entry: RefusedJob) -> None:
        """Keeps an entry that no other one covers, instead of those that it covers."""
        group = self._groups.setdefault(entry.group, _Group())
        while (covered := group.covered_by(entry.row)) is not None:
            self._remove(group, covered)
        self._groups[entry.group] = group
        group.append(entry)
        self.count += 1
        self.use(entry)
        if self.count > ENTRIES_REMEMBERED:
            self._forget_the_least_used()

    def drop_ended(self) -> None:
        """Forgets the entries that do not hold any more."""
        for group in list(self._groups.values()):
            for entry in list(group.entries):
                if not self.still_holds(entry):
                    self._remove(group, entry)

    def clear(self) -> None:
        """Forgets all of them."""
        for group in self._groups.values():
            for entry in group.entries:
                entry.holds = False
        self._groups.clear()
        self.count = 0

    def _forget_the_least_used(self) -> None:
        entries = [entry for group in self._groups.values() for entry in group.entries]
        entries.sort(key=lambda entry: entry.used)
        for entry in entries[: ENTRIES_REMEMBERED // 8]:
            self._remove(self._groups[entry.group], entry)

    def _remove(self, group: _Group, entry: RefusedJob) -> None:
        entry.holds = False
        group.remove(entry)
        self.count -= 1
        if not group.entries:
            del self._groups[entry.group]


class _Group:
    """The entries of one group, and the same as a table."""

    __slots__ = ("_table", "entries")

    def __init__(self) -> None:
        self.entries: list[RefusedJob] = []
        self._table = np.zeros((4, ENTRY_COLUMNS), np.int64)

    def covering(self, row: Integers) -> RefusedJob | None:
        """The first entry that is nowhere larger."""
        number = first_covering(self._table, len(self.entries), row)
        return self.entries[number] if number < len(self.entries) else None

    def covered_by(self, row: Integers) -> RefusedJob | None:
        """The first entry that is nowhere smaller."""
        number = first_covered(self._table, len(self.entries), row)
        return self.entries[number] if number < len(self.entries) else None

    def append(self, entry: RefusedJob) -> None:
        """One more."""
        if len(self.entries) == len(self._table):
            self._table = np.concatenate((self._table, np.zeros_like(self._table)))
        self._table[len(self.entries)] = entry.row
        self.entries.append(entry)

    def remove(self, entry: RefusedJob) -> None:
        """One less; the last takes its place."""
        number = self.entries.index(entry)
        last = self.entries.pop()
        if last is not entry:
            self.entries[number] = last
            self._table[number] = last.row


@compiled
def first_covering(table: Integers, rows: int, asked: Integers) -> int:
    """The first of the rows that is nowhere larger than what is asked; `rows` when there is none."""
    for row in range(rows):
        column = 0
        while column < ENTRY_COLUMNS and table[row, column] <= asked[column]:
            column += 1
        if column == ENTRY_COLUMNS:
            return row
    return rows


@compiled
def first_covered(table: Integers, rows: int, asked: Integers) -> int:
    """The first of the rows that is nowhere smaller than what is asked; `rows` when there is none."""
    for row in range(rows):
        column = 0
        while column < ENTRY_COLUMNS and table[row, column] >= asked[column]:
            column += 1
        if column == ENTRY_COLUMNS:
            return row
    return rows
