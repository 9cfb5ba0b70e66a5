"""Nodes as a search for places sees them: the machines, or parts of machines, that cells of several levels consist of.

The cells of a virtual cluster are numbered as if each were the first in a cell of the highest level of its own, so that
levels remain arithmetic; the same form serves the machines of the physical cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cluster_manager.cells.hierarchy import Chain
from cluster_manager.cells.node_gpus import NodeShape

Integers: TypeAlias = npt.NDArray[np.int64]


class Nodes:
    """The nodes of some cells of a chain, each a whole machine, or a whole cell that is less than a machine."""

    __slots__ = (
        "_cells",
        "around",
        "chain",
        "count",
        "first_gpu",
        "full",
        "level",
        "owned",
        "owned_levels",
        "shape",
        "sizes",
    )

    def __init__(self, chain: Chain, owned_levels: Sequence[int]) -> None:
        """The nodes of one cell of each of these levels."""
        self.chain = chain
        self.owned_levels = tuple(owned_levels)
        """[owned cell] its level."""
        self.first_gpu: list[int] = []
        """[node] its first GPU, where each owned cell begins at a multiple of the size of the highest level."""
        self.level: list[int] = []
        """[node] the machine's level, or that of the cell if it is lower."""
        self.owned: list[int] = []
        """[node] the cell that it is in."""
        self.around: list[tuple[int, int]] = []
        """[node] the smallest cell above the machine, and the owned cell, that it is in."""
        self.shape: list[NodeShape] = []
        shapes = [NodeShape(chain.sizes[1 : level + 1]) for level in range(chain.machine_level + 1)]
        machine = chain.gpus_per_machine
        for number, owned_level in enumerate(self.owned_levels):
            level = min(owned_level, chain.machine_level)
            for offset in range(max(1, chain.sizes[owned_level] // machine)):
                self.first_gpu.append(number * chain.sizes[chain.top] + offset * machine)
                self.level.append(level)
                self.owned.append(number)
                self.around.append((number, self.first_gpu[-1] // chain.sizes[min(level + 1, chain.top)]))
                self.shape.append(shapes[level])
        self.count = len(self.level)
        self.sizes: Integers = np.array([chain.sizes[level] for level in self.level], np.int64)
        """[node] its GPUs."""
        self.full = [(1 << chain.sizes[level]) - 1 for level in self.level]
        """[node] all its GPUs, as bits."""
        self._cells: dict[int, tuple[Integers, Integers]] = {}

    def cells(self, level: int) -> tuple[Integers, Integers]:
        """The first nodes of the cells of a level from the machine on, and the nodes behind their last ones.

        An owned cell of a lower level counts as one: whatever is within it is within a cell of the higher level too.
        """
        known = self._cells.get(level)
        if known is None:
            firsts: list[int] = []
            size, last = self.chain.sizes[level], None
            for node in range(self.count):
                cell = self.owned[node], self.first_gpu[node] // size
                if cell != last:
                    firsts.append(node)
                    last = cell
            known = np.array(firsts, np.int64), np.array([*firsts[1:], self.count], np.int64)
            self._cells[level] = known
        return known

    def cell(self, level: int, node: int) -> int:
        """The cell of the level, not above its owned cell's, that the node is in or is."""
        return self.first_gpu[node] // self.chain.sizes[level]
