"""Places for a whole gang among the free GPUs of some nodes: tasks, affinity groups, and groups within groups.

Nodes in use come before untouched ones, and the fullest cells that suffice before emptier ones, so that large cells stay
whole. Groups are tried largest first; where a later one finds no place, the earlier ones are placed otherwise, up to a
bound on the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cluster_manager.cells.hierarchy import Chain, UnknownLevel
from cluster_manager.cells.node_gpus import cell_masks, choose_gpus, tasks_that_fit
from cluster_manager.cells.nodes import Integers, Nodes
from cluster_manager.cells.requests import AffinityGroup, Tasks
from domain.affinity import CellAffinity

MOST_STEPS = 20_000
"""Places tried for one gang before it counts as having none."""
_ANY = 0
"""The level of an affinity that any place meets."""


class NodePlace(NamedTuple):
    """Where one task goes: GPUs of one node, as bits."""

    node: int
    bits: int


@dataclass(slots=True, eq=False)
class FreeGpus:
    """What a search may use; the search works on it and leaves it as it was unless it finds a place."""

    nodes: Nodes
    bits: list[int]
    """[node] the free GPUs."""
    counts: Integers
    """[node] how many these are."""
    rank: Integers | None = None
    """[node] nodes of a smaller rank are better; None where all are alike."""

    @staticmethod
    def of(nodes: Nodes, bits: list[int], rank: Integers | None = None) -> FreeGpus:
        return FreeGpus(nodes, bits, np.array([free.bit_count() for free in bits], np.int64), rank)


class _Region(NamedTuple):
    """Nodes from the first up to the end; the mask is all of the GPUs unless it is a part of one node."""

    first: int
    end: int
    mask: int = -1


@dataclass(frozen=True, slots=True)
class _TaskPart:
    slot: int
    """The place of its first task in the answer."""
    count: int
    gpus: int
    within: int

    @property
    def unit(self) -> int:
        return self.gpus


@dataclass(frozen=True, slots=True)
class _GroupPart:
    parts: tuple[_TaskPart | _GroupPart, ...]
    """Largest first."""
    gpus: int
    level: int
    hard: bool
    demands: tuple[tuple[int, int], ...]
    """GPUs of a task and number of tasks, of all tasks in it."""

    @property
    def unit(self) -> int:
        return self.gpus if self.level else max(part.unit for part in self.parts)


class _GaveUp(Exception):
    """Too many steps."""


def find_places(gang: AffinityGroup, free: FreeGpus) -> tuple[NodePlace, ...] | None:
    """A place for each task in the order of `AffinityGroup.all_tasks`; None where none was found."""
    if gang.gpus > int(free.counts.sum()):
        return None
    try:
        part, tasks = _compiled(gang, free.nodes.chain, 0)
    except UnknownLevel:
        return None
    search = _Search(free, tasks)
    try:
        for _ in search.places(part, _Region(0, free.nodes.count)):
            return tuple(search.placed)
    except _GaveUp:
        search.undo(0)
    return None


def _compiled(group: AffinityGroup, chain: Chain, slot: int) -> tuple[_GroupPart, int]:
    """The group with levels as numbers, and the slot behind its last task. Raises UnknownLevel if a hard one is missing."""
    parts: list[_TaskPart | _GroupPart] = []
    demands: dict[int, int] = {}
    for tasks in group.tasks:
        parts.append(_TaskPart(slot, tasks.count, tasks.gpus, _task_level(tasks, chain)))
        demands[tasks.gpus] = demands.get(tasks.gpus, 0) + tasks.count
        slot += tasks.count
    for inner in group.groups:
        part, slot = _compiled(inner, chain, slot)
        parts.append(part)
        for gpus, count in part.demands:
            demands[gpus] = demands.get(gpus, 0) + count
    level, hard = _level_of(group.within, chain)
    parts.sort(key=lambda part: -part.unit)
    return _GroupPart(tuple(parts), group.gpus, level, hard, tuple(sorted(demands.items()))), slot


def _level_of(affinity: CellAffinity | None, chain: Chain) -> tuple[int, bool]:
    if affinity is None:
        return _ANY, False
    try:
        return chain.level_called(affinity.level), affinity.hard
    except UnknownLevel:
        if affinity.hard:
            raise
        return _ANY, False


def _task_level(tasks: Tasks, chain: Chain) -> int:
    """A task is on one machine in any case; the closest cell that suffices is chosen, so a preference asks for no more."""
    level, hard = _level_of(tasks.within, chain)
    return min(level, chain.machine_level) if level and hard else chain.machine_level


class _Search:
    """One search: the free GPUs as they are with what is placed so far, and the way back."""

    __slots__ = ("_bits", "_counts", "_nodes", "_rank", "_steps", "_trail", "placed")

    def __init__(self, free: FreeGpus, tasks: int) -> None:
        self._nodes = free.nodes
        self._bits = free.bits
        self._counts = free.counts
        self._rank = free.rank
        self._trail: list[tuple[int, int]] = []
        self._steps = 0
        self.placed: list[NodePlace] = [NodePlace(-1, 0)] * tasks

    def places(self, group: _GroupPart, region: _Region) -> Iterator[None]:
        """Places the group in the region, one way after the other; what was placed is undone when the next is asked."""
        if group.level:
            for cell in self._cells(group, region):
                yield from self._parts(group.parts, 0, cell)
            if group.hard:
                return
        yield from self._parts(group.parts, 0, region)

    def undo(self, mark: int) -> None:
        """Takes back what was placed since the trail was so long."""
        while len(self._trail) > mark:
            node, bits = self._trail.pop()
            self._bits[node] |= bits
            self._counts[node] += bits.bit_count()

    def _parts(self, parts: Sequence[_TaskPart | _GroupPart], number: int, region: _Region) -> Iterator[None]:
        if number == len(parts):
            yield
            return
        part = parts[number]
        if isinstance(part, _GroupPart):
            for _ in self.places(part, region):
                yield from self._parts(parts, number + 1, region)
            return
        mark = len(self._trail)
        if not self._fill(part, region):
            return
        yield from self._parts(parts, number + 1, region)
        self.undo(mark)
        for _ in self._one_by_one(part, 0, region, region.first):
            yield from self._parts(parts, number + 1, region)

    def _take(self, slot: int, node: int, bits: int) -> None:
        self._steps += 1
        self._bits[node] &= ~bits
        self._counts[node] -= bits.bit_count()
        self._trail.append((node, bits))
        self.placed[slot] = NodePlace(node, bits)

    def _fits(self, node: int, part: _TaskPart, mask: int) -> int:
        return tasks_that_fit(self._nodes.shape[node], self._bits[node] & mask, part.gpus, part.within)

    def _choose(self, node: int, part: _TaskPart, mask: int) -> int:
        return choose_gpus(self._nodes.shape[node], self._bits[node] & mask, part.gpus, part.within)

    def _fill(self, part: _TaskPart, region: _Region) -> bool:
        """Places all tasks of the part on the fullest nodes; False, with nothing placed, where they do not fit."""
        nodes = np.arange(region.first, region.end)
        if region.mask == -1 and part.within == self._nodes.chain.machine_level:
            fit = self._counts[region.first : region.end] // part.gpus
        else:
            fit = np.array([self._fits(node, part, region.mask) for node in range(region.first, region.end)], np.int64)
        if int(fit.sum()) < part.count:
            return False
        candidates = nodes[fit > 0]
        slot, end = part.slot, part.slot + part.count
        for node in [self._fullest(candidates)] if part.count == 1 else self._fullest_first(candidates):
            while slot < end and (bits := self._choose(node, part, region.mask)):
                self._take(slot, node, bits)
                slot += 1
            if slot == end:
                break
        return True

    def _fullness(self, nodes: Integers) -> Iterator[Integers]:
        """What nodes are compared by, the smaller the better: rank and own free GPUs, then those of each cell around."""
        yield self._counts[nodes] if self._rank is None else self._counts[nodes] + (self._rank[nodes] << 6)
        chain = self._nodes.chain
        for level in range(chain.machine_level + 1, chain.top + 1):
            firsts, _ = self._nodes.cells(level)
            free = np.add.reduceat(self._counts, firsts)
            yield free[np.searchsorted(firsts, nodes, "right") - 1]

    def _fullest(self, nodes: Integers) -> int:
        """The first of the fullest of these nodes."""
        left = np.arange(len(nodes))
        for fullness in self._fullness(nodes):
            of_these = fullness[left]
            left = left[of_these == of_these.min()]
            if len(left) == 1:
                break
        return int(nodes[left[0]])

    def _fullest_first(self, nodes: Integers) -> list[int]:
        """These nodes in the order in which they are used."""
        order: list[int] = nodes[np.lexsort((nodes, *reversed(tuple(self._fullness(nodes)))))].tolist()
        return order

    def _one_by_one(self, part: _TaskPart, task: int, region: _Region, first: int) -> Iterator[None]:
        """The tasks of a part placed in every other way, apart from which of them goes where."""
        if task == part.count:
            yield
            return
        seen: set[tuple[tuple[int, int], int]] = set()
        for node in range(first, region.end):
            bits = self._choose(node, part, region.mask)
            alike = self._nodes.around[node], self._bits[node]
            if not bits or alike in seen:
                continue
            seen.add(alike)
            if self._steps > MOST_STEPS:
                raise _GaveUp
            mark = len(self._trail)
            self._take(part.slot + task, node, bits)
            yield from self._one_by_one(part, task + 1, region, node)
            self.undo(mark)

    def _cells(self, group: _GroupPart, region: _Region) -> Iterator[_Region]:
        """The cells of the group's level within the region that may hold it, the fullest first."""
        chain = self._nodes.chain
        if group.level < chain.machine_level:
            yield from self._parts_of_nodes(group, region)
            return
        firsts, ends = self._nodes.cells(group.level)
        inside = (firsts >= region.first) & (ends <= region.end)
        if not inside.any():
            yield region
            return
        firsts, ends = firsts[inside], ends[inside]
        may_hold = np.ones(len(firsts), np.bool_)
        for gpus, count in ((1, group.gpus), *group.demands):
            sums = np.concatenate(([0], np.cumsum(self._counts // gpus)))
            may_hold &= sums[ends] - sums[firsts] >= count
        free = np.concatenate(([0], np.cumsum(self._counts)))
        fullness = free[ends] - free[firsts]
        if self._rank is not None:
            ranks = np.concatenate(([0], np.cumsum(self._rank)))
            fullness = fullness + ((ranks[ends] - ranks[firsts]) * 64 // (ends - firsts) << 20)
        order = np.flatnonzero(may_hold)
        order = order[fullness[order].argsort(kind="stable")]
        for first, end in zip(firsts[order].tolist(), ends[order].tolist(), strict=True):
            self._step()
            yield _Region(first, end, region.mask)

    def _parts_of_nodes(self, group: _GroupPart, region: _Region) -> Iterator[_Region]:
        """The same for levels below the machine."""
        nodes = np.flatnonzero(self._counts[region.first : region.end] >= group.gpus) + region.first
        for node in self._fullest_first(nodes):
            masks = [mask & region.mask for mask in cell_masks(self._nodes.shape[node], group.level)]
            free = [((self._bits[node] & mask).bit_count(), mask) for mask in masks]
            for count, mask in sorted(free):
                if count >= group.gpus:
                    self._step()
                    yield _Region(node, node + 1, mask)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise _GaveUp
