"""Places for a job whose tasks must all be on one machine, or all in one rack.

Rule: the best place without evictions is taken if it is on one machine, or in one rack. Where it is not (jobs without
GPUs keep to machines without as long as they can), one machine or rack that suffices is chosen, and the place is sought
there alone; so it is with evictions, where the attempts that may be evicted are taken away one by one in the order of
eviction until one machine or rack suffices.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cluster_manager.capacity.attempts import (
    END_ENTRY,
    EVICTABLE,
    FIRST_ENTRY,
    LEVEL,
    PRIORITY,
    SPARED,
    AttemptArrays,
)
from cluster_manager.capacity.charging import MACHINE
from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.cluster_tables import TablesOfClusters, no_tables, put_tables
from cluster_manager.capacity.tables import (
    NO_WORK,
    RACK,
    RESOURCES,
    SHAPE,
    WORKS_AS,
    ClusterArrays,
    Integers,
    summarise_racks,
    summarise_totals,
)
from cluster_manager.capacity.task_kinds import TIER, UNFIT
from cluster_manager.mechanism import AffinityLevel, Query
from domain.eviction import Evictor, Victim, may_evict
from domain.rank import Standing

ALONE_THERE = 0
"""The position of the only cluster of `tables_of_unit`."""
ALONE: Integers = np.array([ALONE_THERE], np.int64)
"""The same as kernels take it."""


def units_of(query: Query, machines: ClusterArrays) -> Integers:
    """[machine] the number of the machine or of the rack that it is, whichever all tasks must be in."""
    if query.affinity.level is AffinityLevel.MACHINE:
        return np.arange(len(machines.state))
    return machines.fixed[:, RACK]


class UnitSearch:
    """For how many tasks of a query each unit has capacity while attempts leave."""

    def __init__(self, query: Query, view: ClusterCapacity) -> None:
        self._query = query
        self._attempts = view.attempts
        machines = view.arrays
        self._units = units_of(query, machines)
        self._fits = (machines.state[:, WORKS_AS] != NO_WORK) & (
            query.kind.needs.table[machines.fixed[:, SHAPE], TIER] != UNFIT
        )
        self._needs = query.kind.needs.table[machines.fixed[:, SHAPE], :RESOURCES]
        self._free = machines.state[:, :RESOURCES].copy()
        self._room = self._rooms_on(np.arange(len(self._free)))
        self.rooms: Integers = np.zeros(int(self._units.max(initial=-1)) + 1, np.int64)
        """[unit] for how many tasks there is capacity."""
        np.add.at(self.rooms, self._units, self._room)

    def free_unit(self) -> int | None:
        """The first of those that suffice with the least capacity, with nothing evicted; None where none does."""
        enough = np.flatnonzero(self.rooms >= self._query.tasks)
        return int(enough[self.rooms[enough].argmin()]) if len(enough) else None

    def first_unit_evicting(self) -> int | None:
        """The first unit that suffices while attempts leave in the order of eviction; None where none ever does."""
        for row in self._evictable():
            first, end = self._attempts.rows[row, FIRST_ENTRY], self._attempts.rows[row, END_ENTRY]
            entries = self._attempts.entries[first:end]
            on = entries[:, MACHINE]
            self._free[on] += entries[:, :RESOURCES]
            rooms = self._rooms_on(on)
            np.add.at(self.rooms, self._units[on], rooms - self._room[on])
            self._room[on] = rooms
            units = np.unique(self._units[on])
            enough = self.rooms[units] >= self._query.tasks
            if enough.any():
                return int(units[enough][0])
        return None

    def _rooms_on(self, machines: Integers) -> Integers:
        needs, free = self._needs[machines], np.maximum(self._free[machines], 0)
        most = np.where(needs > 0, free // np.maximum(needs, 1), self._query.tasks).min(
            axis=1, initial=self._query.tasks
        )
        return np.where(self._fits[machines], most, 0)

    def _evictable(self) -> Iterator[int]:
        """The rows of the attempts that the query may evict, in the order of eviction."""
        query, attempts = self._query, self._attempts
        newcomer = Evictor(query.standing, query.guaranteed)
        for row in attempts.order[: attempts.live[0]].tolist():
            priority, level, spared = attempts.rows[row, [PRIORITY, LEVEL, SPARED]].tolist()
            if priority < query.victims_from_priority:
                return
            victim = Victim(Standing(priority, level), bool(spared), float(attempts.evictable_from_s[row]))
            if attempts.rows[row, EVICTABLE] and may_evict(newcomer, victim, query.now_s):
                yield row


def tables_of_unit(query: Query, unit: int, view: ClusterCapacity) -> TablesOfClusters:
    """The tables of the cluster as if no machine outside of this unit took any work."""
    machines, attempts = view.arrays, view.attempts
    state = machines.state.copy()
    state[units_of(query, machines) != unit, WORKS_AS] = NO_WORK
    rack_free = summarise_racks(state, machines.fixed, machines.shapes, len(machines.rack_free))
    totals = summarise_totals(state, machines.fixed, machines.shapes)
    within = machines._replace(state=state, rack_free=rack_free, totals=totals)
    return _alone(within, attempts)


def _alone(machines: ClusterArrays, attempts: AttemptArrays) -> TablesOfClusters:
    nothing_counted = np.zeros((0, 0, 0), np.int64), np.zeros(0, np.int64)
    tables = no_tables(machines, attempts, *nothing_counted)
    put_tables(tables, 0, machines, attempts, *nothing_counted)
    return tables
