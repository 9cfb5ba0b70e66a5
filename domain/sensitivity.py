"""How fast a job is with which CPUs and memory for each of its GPUs (Synergy §3.1, the resource sensitivity matrix)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from domain.placement import TaskPlacement


class AmountsPerGpu(NamedTuple):
    """CPUs and memory that a job holds for each of its GPUs, the same on every machine."""

    cpus: float
    memory_gib: float


def held_per_gpu(placements: Iterable[TaskPlacement]) -> AmountsPerGpu:
    """The least that any of these tasks with GPUs holds per GPU: a job is as fast as its slowest process (Synergy §4.2).

    Raises ValueError when none has GPUs.
    """
    held = [
        AmountsPerGpu(placement.cpus / len(placement.gpu_indices), placement.memory_gib / len(placement.gpu_indices))
        for placement in placements
        if placement.gpu_indices
    ]
    if not held:
        raise ValueError("tasks without GPUs hold nothing per GPU")
    return AmountsPerGpu(min(each.cpus for each in held), min(each.memory_gib for each in held))


class Cell(NamedTuple):
    """A point of the grid of a profile: the indices of its CPUs and of its memory."""

    cpus: int
    memory: int


def decreases(throughput: Sequence[Sequence[float]]) -> Iterator[tuple[Cell, Cell]]:
    """The neighbours of a grid, fewer resources first, of which the second is slower; one row for each amount of CPUs."""
    for cpus, row in enumerate(throughput):
        for memory, value in enumerate(row):
            if cpus + 1 < len(throughput) and throughput[cpus + 1][memory] < value:
                yield Cell(cpus, memory), Cell(cpus + 1, memory)
            if memory + 1 < len(row) and row[memory + 1] < value:
                yield Cell(cpus, memory), Cell(cpus, memory + 1)


@dataclass(frozen=True, slots=True)
class SensitivityProfile:
    """Throughput over a grid of CPUs and memory per GPU, in any unit: only ratios of it mean anything.

    Both axes ascend, all is finite and greater than 0, and more of a resource is never slower; ValueError otherwise.

    Between the points of the grid throughput is linear in the CPUs and linear in the memory (a convex combination of the
    points around, as in the program of Synergy-OPT). Beyond the last point of an axis it stays what it is there; below the
    first it falls linearly, to 0 at nothing.
    """

    cpus_per_gpu: tuple[float, ...]
    memory_gib_per_gpu: tuple[float, ...]
    throughput: tuple[tuple[float, ...], ...]
    """One row for each amount of CPUs, one column for each amount of memory."""

    def __post_init__(self) -> None:
        for name, axis in (("cpus_per_gpu", self.cpus_per_gpu), ("memory_gib_per_gpu", self.memory_gib_per_gpu)):
            if not axis:
                raise ValueError(f"{name} is empty; a profile has at least one point")
            if any(not low < high for low, high in pairwise((0.0, *axis, math.inf))):
                raise ValueError(f"{name} must be finite, greater than 0 and ascend, not {axis}")
        rows, columns = len(self.cpus_per_gpu), len(self.memory_gib_per_gpu)
        if len(self.throughput) != rows or any(len(row) != columns for row in self.throughput):
            raise ValueError(f"throughput must have {rows} rows of {columns} values")
        if any(not 0 < value < math.inf for row in self.throughput for value in row):
            raise ValueError("throughput must be finite and greater than 0 everywhere")
        for fewer, more in decreases(self.throughput):
            raise ValueError(f"throughput decreases from {self.amounts(fewer)} to {self.amounts(more)}")

    def amounts(self, cell: Cell) -> AmountsPerGpu:
        """What stands for a point of the grid."""
        return AmountsPerGpu(self.cpus_per_gpu[cell.cpus], self.memory_gib_per_gpu[cell.memory])

    @property
    def greatest(self) -> float:
        """The throughput with the most of both."""
        return self.throughput[-1][-1]

    def throughput_with(self, held: AmountsPerGpu) -> float:
        """Throughput with these amounts, interpolated."""
        below_cpus, above_cpus, cpus_part = _neighbours(self.cpus_per_gpu, held.cpus)
        below_memory, above_memory, memory_part = _neighbours(self.memory_gib_per_gpu, held.memory_gib)

        def at(cpus: int) -> float:
            if cpus < 0:
                return 0.0
            row = self.throughput[cpus]
            low = row[below_memory] if below_memory >= 0 else 0.0
            return low + (row[above_memory] - low) * memory_part

        low = at(below_cpus)
        return low + (at(above_cpus) - low) * cpus_part

    def speed(self, held: AmountsPerGpu, share: AmountsPerGpu) -> float:
        """How many times as fast a job is with these amounts as with its proportional share.

        Raises ValueError for a share of nothing.
        """
        reference = self.throughput_with(share)
        if reference <= 0:
            raise ValueError(f"no job runs with a proportional share of {share}")
        return self.throughput_with(held) / reference


def _neighbours(axis: Sequence[float], value: float) -> tuple[int, int, float]:
    """The points around a value, by index, and how far it is from the first to the second, in [0, 1]; -1 stands for 0."""
    above = bisect_right(axis, value)
    if above == len(axis):
        return above - 1, above - 1, 0.0
    start = axis[above - 1] if above else 0.0
    return above - 1, above, max(0.0, value - start) / (axis[above] - start)
