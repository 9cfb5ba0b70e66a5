"""For how many tasks of a kind each cluster has capacity without evictions: counted once, then kept up to date.

Most questions of a saturated queue are answered by one look here. Exact: a job finds a place without evictions if and
only if some cluster has capacity for all of its tasks, for its tasks are alike and never stand in each other's way.
"""

from __future__ import annotations

import numpy as np

from cluster_manager.capacity.charging import MACHINE, charge, switch_work
from cluster_manager.capacity.fitting import tasks_on
from cluster_manager.capacity.tables import NO_WORK, WORKS_AS, ClusterArrays, Integers
from cluster_manager.capacity.task_kinds import MOST_TASKS, NEED_COLUMNS, TaskKind
from kernels.compiled import compiled, compiled_part

MOST_KINDS = 256
"""So many are kept up to date at most: each costs every charge some nanoseconds per machine."""
QUESTIONS_REMEMBERED = 16 * MOST_KINDS
"""A kind that was not asked for among so many questions gives way to another one."""


@compiled_part
def count_machine(
    cluster: ClusterArrays, tables: Integers, counts: Integers, kinds: int, machine: int, sign: int
) -> None:
    """Adds (sign 1) or takes away (-1) what the machine has capacity for, for each kind."""
    if cluster.state[machine, WORKS_AS] == NO_WORK:
        return
    for kind in range(kinds):
        counts[kind] += sign * tasks_on(cluster, tables[kind], machine, MOST_TASKS)


@compiled_part
def charge_and_count(
    cluster: ClusterArrays,
    entries: Integers,
    first: int,
    end: int,
    tables: Integers,
    counts: Integers,
    kinds: int,
    sign: int,
) -> None:
    """Charges entries [first, end) (sign 1) or gives them back (sign -1), and keeps the counts up to date."""
    for entry in range(first, end):
        count_machine(cluster, tables, counts, kinds, entries[entry, MACHINE], -1)
    charge(cluster, entries, first, end, sign)
    for entry in range(first, end):
        count_machine(cluster, tables, counts, kinds, entries[entry, MACHINE], 1)


@compiled
def switch_and_count(
    cluster: ClusterArrays, machine: int, takes_work: bool, tables: Integers, counts: Integers, kinds: int
) -> None:
    """Lets the machine take work from now on, or no longer, and keeps the counts up to date."""
    count_machine(cluster, tables, counts, kinds, machine, -1)
    switch_work(cluster, machine, takes_work)
    count_machine(cluster, tables, counts, kinds, machine, 1)


@compiled
def count_all(cluster: ClusterArrays, table: Integers) -> int:
    """Counts the capacity for one kind anew, on all machines."""
    tasks = 0
    for machine in range(len(cluster.state)):
        if cluster.state[machine, WORKS_AS] != NO_WORK:
            tasks += tasks_on(cluster, table, machine, MOST_TASKS)
    return tasks


class CountedKinds:
    """The kinds that are counted in some clusters, and the counts: a row for each cluster.

    When too many kinds have been asked for, a new one takes the place of the kind that was last asked for the longest
    time ago, unless that is still asked for now and then: a queue of very many kinds must not have them all counted
    anew in turn.
    """

    __slots__ = (
        "_asked",
        "_clusters",
        "_counts_of_kinds",
        "_owners",
        "_places",
        "_questions",
        "counts",
        "forgotten",
        "tables",
    )

    def __init__(self, clusters: int, shapes: int) -> None:
        self._places: dict[int, int] = {}
        self._owners: list[int] = []
        self._asked = [0] * MOST_KINDS
        self._questions = 0
        self._clusters: list[ClusterArrays] = []
        self.tables = np.zeros((MOST_KINDS, shapes, NEED_COLUMNS), np.int64)
        self.counts = np.zeros((clusters, MOST_KINDS), np.int64)
        self._counts_of_kinds: list[Integers] = list(self.counts.T)
        self.forgotten = 0
        """How many kinds are counted no more; while it stays, the counts handed out are those of their kinds."""

    @property
    def kinds(self) -> int:
        """How many kinds are counted."""
        return len(self._owners)

    def add_cluster(self, arrays: ClusterArrays) -> FreeCounts:
        """Counts in this cluster too; the clusters come in the order of their rows."""
        self._clusters.append(arrays)
        return FreeCounts(self, arrays, len(self._clusters) - 1)

    def of(self, kind: TaskKind, *, may_begin: bool = True) -> Integers | None:
        """[cluster] for how many tasks of the kind there is capacity now; None when too many kinds are asked for.

        None also for a kind that is not counted yet, unless counting it may begin now: it may not while the tables are
        other than what is held. The array changes with the clusters, and is another kind's once `forgotten` has changed.
        """
        self._questions += 1
        place = self._places.get(kind.number)
        if place is None:
            place = self._place_for(kind.number) if may_begin else None
            if place is None:
                return None
            self.tables[place] = kind.needs.table
            for row, arrays in enumerate(self._clusters):
                self.counts[row, place] = count_all(arrays, kind.needs.table)
        self._asked[place] = self._questions
        return self._counts_of_kinds[place]

    def _place_for(self, number: int) -> int | None:
        """A place that is free, or that of the kind that nothing asks for any more."""
        place = len(self._owners)
        if place < MOST_KINDS:
            self._owners.append(number)
        else:
            place = self._asked.index(min(self._asked))
            if self._questions - self._asked[place] <= QUESTIONS_REMEMBERED:
                return None
            del self._places[self._owners[place]]
            self._owners[place] = number
            self.forgotten += 1
        self._places[number] = place
        return place


class FreeCounts:
    """The counts of one cluster, kept up to date through everything that changes what is free."""

    __slots__ = ("_arrays", "_counted", "_counts")

    def __init__(self, counted: CountedKinds, arrays: ClusterArrays, row: int) -> None:
        self._counted = counted
        self._arrays = arrays
        self._counts = counted.counts[row]

    def switch_work(self, machine: int, *, takes_work: bool) -> None:
        """The machine takes work from now on, or no longer."""
        counted = self._counted
        switch_and_count(self._arrays, machine, takes_work, counted.tables, self._counts, counted.kinds)

    def are_right(self) -> bool:
        """Whether the counts are what counting anew gives."""
        return all(
            count_all(self._arrays, self._counted.tables[kind]) == self._counts[kind]
            for kind in range(self._counted.kinds)
        )
