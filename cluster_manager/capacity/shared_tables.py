"""What the clusters that are asked the same questions share, so that a question is worked out once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count

import numpy as np

from cluster_manager.capacity.free_counts import CountedKinds
from cluster_manager.capacity.machine_shapes import MachineShapes
from cluster_manager.capacity.tables import TOTAL_COLUMNS
from cluster_manager.capacity.task_kinds import TaskKinds
from cluster_manager.capacity.undo_log import UndoLog
from domain.fleet import Cluster


class SharedTables:
    """Shapes of machines, kinds of tasks, counts, totals, and one undo log."""

    __slots__ = ("counted", "kinds", "revisions", "shapes", "totals", "undo_log")

    def __init__(self, clusters: Sequence[Cluster]) -> None:
        """Raises ValueError on an impossible machine."""
        self.shapes = MachineShapes(chain.from_iterable(cluster.machines() for cluster in clusters))
        self.kinds = TaskKinds(self.shapes)
        self.counted = CountedKinds(len(clusters), len(self.shapes.shapes))
        self.totals = np.zeros((len(clusters), TOTAL_COLUMNS), np.int64)
        """[cluster, as in ClusterArrays]"""
        self.undo_log = UndoLog()
        self.revisions = count(1)
        """Each number is given to one state of one cluster."""
