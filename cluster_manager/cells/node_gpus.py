"""Which GPUs of one node a task gets: the smallest cell that suffices, the fullest of those, and whole parts of it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class NodeShape(NamedTuple):
    """How the GPUs of a node are divided into cells."""

    sizes: tuple[int, ...]
    """GPUs of a cell of each level, from a single GPU up to the whole node."""

    @property
    def gpus(self) -> int:
        return self.sizes[-1]


@lru_cache(maxsize=4096)
def cell_masks(shape: NodeShape, level: int) -> tuple[int, ...]:
    """The cells of a level (1 is a GPU) as bits of the node; the node itself where it is smaller than that."""
    size = shape.sizes[min(level, len(shape.sizes)) - 1]
    return tuple(((1 << size) - 1) << first for first in range(0, shape.gpus, size))


@lru_cache(maxsize=65_536)
def tasks_that_fit(shape: NodeShape, free: int, gpus: int, within: int) -> int:
    """How many tasks of so many GPUs the free GPUs can hold, each within one cell of the level `within`."""
    return sum((free & mask).bit_count() // gpus for mask in cell_masks(shape, within))


@lru_cache(maxsize=65_536)
def choose_gpus(shape: NodeShape, free: int, gpus: int, within: int) -> int:
    """The GPUs for one task, as bits, within one cell of the level `within`; 0 where there are not enough."""
    for level in range(1, min(within, len(shape.sizes)) + 1):
        fitting = [mask for mask in cell_masks(shape, level) if (free & mask).bit_count() >= gpus]
        if fitting:
            tightest = min(fitting, key=lambda mask: ((free & mask).bit_count(), mask))
            return _take(shape, level, free & tightest, gpus)
    return 0


def _take(shape: NodeShape, level: int, free: int, gpus: int) -> int:
    """So many of the free GPUs of one cell of the level: the fullest parts whole, the rest from one further part."""
    if free.bit_count() == gpus:
        return free
    parts = [free & mask for mask in cell_masks(shape, level - 1) if free & mask]
    taken = 0
    for part in sorted(parts, key=lambda part: (part.bit_count(), part)):
        wanted = gpus - taken.bit_count()
        if part.bit_count() >= wanted:
            return taken | (_take(shape, level - 1, part, wanted) if wanted else 0)
        taken |= part
    return taken
