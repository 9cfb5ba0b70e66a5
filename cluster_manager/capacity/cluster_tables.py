"""The tables of several clusters as one argument of a kernel, which looks at whichever of them it must.

An argument of ten arrays takes two microseconds to enter a kernel, for each cluster. A list of them takes one, however
many clusters are in it, and fifty nanoseconds for each that the kernel takes out of it.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from numba.typed import List

from cluster_manager.capacity.attempts import (
    END_ENTRY,
    FIRST_ENTRY,
    AttemptArrays,
    EvictionFacts,
    drop_attempt,
    insert_attempt,
)
from cluster_manager.capacity.charging import ALL_FITS, CHARGE, FIRST, GIVE_BACK, charge, first_conflict
from cluster_manager.capacity.free_counts import charge_and_count
from cluster_manager.capacity.tables import ClusterArrays, Integers
from kernels.compiled import compiled


class ClusterTables(NamedTuple):
    """One cluster, as kernels see it."""

    machines: ClusterArrays
    attempts: AttemptArrays
    kinds: Integers  # the tables of the kinds of tasks that are counted
    counts: Integers  # [kind] for how many tasks the cluster has capacity without evictions


TablesOfClusters: TypeAlias = "list[ClusterTables]"
"""To kernels a typed list of Numba's; by position."""


@compiled
def no_tables(machines: ClusterArrays, attempts: AttemptArrays, kinds: Integers, counts: Integers) -> TablesOfClusters:
    """An empty list for tables of these types."""
    tables: TablesOfClusters = List()
    tables.append(ClusterTables(machines, attempts, kinds, counts))
    tables.pop()
    return tables


@compiled
def put_tables(
    tables: TablesOfClusters,
    position: int,
    machines: ClusterArrays,
    attempts: AttemptArrays,
    kinds: Integers,
    counts: Integers,
) -> None:
    """Puts the tables of a cluster at its position, which is in the list or next to its last."""
    if position == len(tables):
        tables.append(ClusterTables(machines, attempts, kinds, counts))
    else:
        tables[position] = ClusterTables(machines, attempts, kinds, counts)


@compiled
def hold_entries(
    tables: TablesOfClusters,
    position: int,
    entries: Integers,
    counted: int,
    row: int,
    rank: int,
    first: int,
    must_fit: bool,
    priority: int,
    level: int,
    evictable: bool,
    spared: bool,
    evictable_from_s: float,
    started_s: float,
    weight: int,
    saved_s: float,
    checkpoint_interval_s: float,
) -> tuple[int, int]:
    """Charges the entries of an attempt in the cluster at this position, and puts it into the tables of attempts.

    `counted` is how many kinds of tasks are counted; what is known of the attempt is taken one by one, as a tuple takes longer
    to enter. Where all of it must fit and does not, nothing happens, and
    what is returned says why: see `first_conflict`.
    """
    cluster = tables[position]
    if must_fit:
        entry, what = first_conflict(cluster.machines, entries)
        if entry != ALL_FITS:
            return entry, what
    charge_and_count(cluster.machines, entries, FIRST, len(entries), cluster.kinds, cluster.counts, counted, CHARGE)
    facts = EvictionFacts(
        priority, level, evictable, spared, evictable_from_s, started_s, weight, saved_s, checkpoint_interval_s
    )
    insert_attempt(cluster.attempts, row, rank, first, entries, facts)
    return ALL_FITS, 0


@compiled
def release_entries(tables: TablesOfClusters, position: int, counted: int, row: int) -> int:
    """Gives back what the attempt in this row holds, and takes it out of the tables of attempts; returns its rank there."""
    cluster = tables[position]
    first, end = cluster.attempts.rows[row, FIRST_ENTRY], cluster.attempts.rows[row, END_ENTRY]
    stored = cluster.attempts.entries
    charge_and_count(cluster.machines, stored, first, end, cluster.kinds, cluster.counts, counted, GIVE_BACK)
    return drop_attempt(cluster.attempts, row)


@compiled
def charge_entries(tables: TablesOfClusters, position: int, entries: Integers, sign: int) -> None:
    """Charges all entries in the cluster at this position (sign 1) or gives them back (-1); they are not counted."""
    charge(tables[position].machines, entries, FIRST, len(entries), sign)
