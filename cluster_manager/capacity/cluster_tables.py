"""The tables of several clusters as one argument of a kernel, which looks at whichever of them it must.

An argument of ten arrays takes two microseconds to enter a kernel, for each cluster. A list of them takes one, however
many clusters are in it, and fifty nanoseconds for each that the kernel takes out of it.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from numba.typed import List

from cluster_manager.capacity.attempts import AttemptArrays
from cluster_manager.capacity.charging import FIRST, charge
from cluster_manager.capacity.tables import ClusterArrays, Integers
from cluster_manager.kernels.compiled import compiled


class ClusterTables(NamedTuple):
    """One cluster, as kernels see it."""

    machines: ClusterArrays
    attempts: AttemptArrays


TablesOfClusters: TypeAlias = "list[ClusterTables]"
"""To kernels a typed list of Numba's; by position."""


@compiled
def no_tables(machines: ClusterArrays, attempts: AttemptArrays) -> TablesOfClusters:
    """An empty list for tables of these types."""
    tables: TablesOfClusters = List()
    tables.append(ClusterTables(machines, attempts))
    tables.pop()
    return tables


@compiled
def put_tables(tables: TablesOfClusters, position: int, machines: ClusterArrays, attempts: AttemptArrays) -> None:
    """Puts the tables of a cluster at its position, which is in the list or next to its last."""
    if position == len(tables):
        tables.append(ClusterTables(machines, attempts))
    else:
        tables[position] = ClusterTables(machines, attempts)


@compiled
def charge_entries(tables: TablesOfClusters, position: int, entries: Integers, sign: int) -> None:
    """Charges all entries in the cluster at this position (sign 1) or gives them back (-1); they are not counted."""
    charge(tables[position].machines, entries, FIRST, len(entries), sign)
