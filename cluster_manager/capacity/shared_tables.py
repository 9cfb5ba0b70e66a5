"""What the clusters that are asked the same questions share, so that a question is worked out once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count
from typing import NoReturn, SupportsIndex

import numpy as np

from cluster_manager.capacity.attempts import AttemptArrays
from cluster_manager.capacity.cluster_tables import TablesOfClusters, no_tables, put_tables
from cluster_manager.capacity.free_counts import CountedKinds
from cluster_manager.capacity.machine_shapes import MachineShapes
from cluster_manager.capacity.tables import TOTAL_COLUMNS, ClusterArrays
from cluster_manager.capacity.task_kinds import TaskKinds
from cluster_manager.capacity.undo_log import UndoLog
from domain.fleet import Cluster


class NeverCopied:
    """Its arrays are parts of arrays that others share with it: those of a copy would be neither that nor its own."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"{type(self).__name__} cannot be copied: make a new one and hold the same holdings there")


class SharedTables(NeverCopied):
    """Shapes of machines, kinds of tasks, counts, totals, the tables of all clusters for kernels, and one undo log."""

    __slots__ = (
        "_tables",
        "awaits_time",
        "counted",
        "kinds",
        "releases",
        "revision",
        "revisions",
        "shapes",
        "totals",
        "undo_log",
    )

    def __init__(self, clusters: Sequence[Cluster]) -> None:
        """Raises ValueError on an impossible machine."""
        self.shapes = MachineShapes(chain.from_iterable(cluster.machines() for cluster in clusters))
        self.kinds = TaskKinds(self.shapes)
        self.counted = CountedKinds(len(clusters), len(self.shapes.shapes))
        self.totals = np.zeros((len(clusters), TOTAL_COLUMNS), np.int64)
        """[cluster, as in ClusterArrays]"""
        self.undo_log = UndoLog()
        self.releases = 0
        """How often there may have come to be more capacity for a newcomer."""
        self.revisions = count(1)
        """Each number is given to one state of one cluster, and to the state of all that begins with it."""
        self.awaits_time = False
        """Whether any attempt that was ever held was to become evictable by time."""
        self.revision = 0
        """As long as it is the same, no cluster has changed; a state that comes back has its old one."""
        self._tables: TablesOfClusters | None = None

    @property
    def tables(self) -> TablesOfClusters:
        """What kernels are given, by position; the same list at all times. Raises LookupError without a cluster."""
        if self._tables is None:
            raise LookupError("no cluster has tables here")
        return self._tables

    def put(self, position: int, machines: ClusterArrays, attempts: AttemptArrays) -> None:
        """The tables of the cluster at this position from now on; the clusters come in the order of their positions."""
        kinds, counts = self.counted.tables, self.counted.counts[position]
        if self._tables is None:
            self._tables = no_tables(machines, attempts, kinds, counts)
        put_tables(self._tables, position, machines, attempts, kinds, counts)
