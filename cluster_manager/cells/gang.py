"""Places for a whole gang among the free GPUs of some nodes: tasks, affinity groups, and groups within groups.

Nodes in use come before untouched ones, and the fullest cells that suffice before emptier ones, so that large cells stay
whole. Groups are tried largest first; where a later one finds no place, the earlier ones are placed otherwise, up to a
bound on the work. Groups that are alike are one part with a count: the cells for all of them are looked up once, and
which of them is in which cell does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from cluster_manager.cells.hierarchy import Chain, UnknownLevel
from cluster_manager.cells.node_gpus import cell_masks, choose_gpus, tasks_that_fit
from cluster_manager.cells.nodes import Integers, Nodes
from cluster_manager.cells.requests import AffinityGroup, Tasks
from domain.affinity import CellAffinity

# Work is counted in nodes looked at in an array, some 25 ns each; so the bound is the same in every run.
MOST_WORK = 1_000_000
"""Spent on one gang, beyond what its first try may take, before it counts as having no place: about 25 ms."""
STEP = 400
"""The work of trying a place."""
CHOICE = 20
"""The work of choosing GPUs of a node."""
FIRST_TRY = 4
"""How often the first try may look at every node for every part, and try a place for every task."""
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

    def at_most(self, most: Integers) -> FreeGpus:
        """The same where no node has more than so many: the tightest cells of those that have are kept."""
        above = np.flatnonzero(self.counts > most)
        for node in above.tolist():
            shape, count = self.nodes.shape[node], int(most[node])
            self.bits[node] = choose_gpus(shape, self.bits[node], count, len(shape.sizes)) if count > 0 else 0
        self.counts[above] = most[above]
        return self


class _Region(NamedTuple):
    """Nodes from the first up to the end; the mask is all of the GPUs unless it is a part of one node."""

    first: int
    end: int
    mask: int = -1


@dataclass(frozen=True, slots=True)
class _TaskPart:
    """Units that each stay within one cell of a level up to the machine's: tasks, or groups of tasks that are alike."""

    slot: int
    """The place of its first task in the answer, from that of the group around on."""
    count: int
    """Of units."""
    gpus: int
    """Of a unit."""
    within: int
    tasks_per_unit: int = 1

    @property
    def largest(self) -> int:
        return self.gpus

    @property
    def gpus_per_task(self) -> int:
        return self.gpus // self.tasks_per_unit


@dataclass(frozen=True, slots=True)
class _GroupPart:
    """Groups that are alike."""

    slot: int
    count: int
    parts: tuple[_TaskPart | _GroupPart, ...]
    """Of one of them, largest first."""
    gpus: int
    """Of one of them."""
    tasks: int
    """Of one of them."""
    level: int
    hard: bool
    demands: tuple[tuple[int, int], ...]
    """GPUs of a unit and number of units, of all in one of them."""

    @property
    def largest(self) -> int:
        return self.gpus if self.level else max(part.largest for part in self.parts)


_Part = _TaskPart | _GroupPart


class _GaveUp(Exception):
    """Too much work."""


def find_places(gang: AffinityGroup, free: FreeGpus) -> tuple[NodePlace, ...] | None:
    """A place for each task in the order of `AffinityGroup.all_tasks`; None where none was found."""
    if gang.gpus > int(free.counts.sum()):
        return None
    try:
        part = _compiled(gang, 1, free.nodes.chain, 0)
    except UnknownLevel:
        return None
    tasks = sum(tasks.count for tasks in gang.all_tasks())
    search = _Search(free, tasks, MOST_WORK + FIRST_TRY * (_parts_in(part) * free.nodes.count + tasks * STEP))
    try:
        for _ in search.ways(part, 0, _Region(0, free.nodes.count)):
            return tuple(search.placed)
    except _GaveUp:
        search.undo(0)
    return None


def _compiled(group: AffinityGroup, count: int, chain: Chain, slot: int) -> _Part:
    """So many such groups with levels as numbers. Raises UnknownLevel if a hard one is missing."""
    level, hard = _level_of(group.within, chain)
    if hard and 0 < level <= chain.machine_level and len(group.tasks) == 1 and not group.groups:
        tasks = group.tasks[0]
        if _task_level(tasks, chain) >= level:
            # Its GPUs are those of one cell, like those of a task.
            return _TaskPart(slot, count, group.gpus, level, tasks.count)
    parts: list[_Part] = []
    inner = 0
    for tasks in group.tasks:
        parts.append(_TaskPart(inner, tasks.count, tasks.gpus, _task_level(tasks, chain)))
        inner += tasks.count
    for one, alike in groupby(group.groups):
        number = sum(1 for _ in alike)
        parts.append(_compiled(one, number, chain, inner))
        inner += number * sum(tasks.count for tasks in one.all_tasks())
    parts.sort(key=lambda part: -part.largest)
    return _GroupPart(slot, count, tuple(parts), group.gpus, inner, level, hard, _demands(parts))


def _demands(parts: Sequence[_Part]) -> tuple[tuple[int, int], ...]:
    demands: dict[int, int] = {}
    for part in parts:
        of_one = ((part.gpus, 1),) if isinstance(part, _TaskPart) else part.demands
        for gpus, units in of_one:
            demands[gpus] = demands.get(gpus, 0) + part.count * units
    return tuple(sorted(demands.items()))


def _parts_in(part: _Part) -> int:
    return 1 if isinstance(part, _TaskPart) else 1 + sum(_parts_in(inner) for inner in part.parts)


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


def _one_after_another(count: int, ways: Callable[[int, int], Iterator[int]], first: int) -> Iterator[None]:
    """Places things that are alike in every way, apart from which of them goes where.

    `ways(number, position)` places that one in one way after the other, at this position or a later one, and says where.
    """
    placing = [ways(0, first)]
    while placing:
        position = next(placing[-1], None)
        if position is None:
            placing.pop()
        elif len(placing) == count:
            yield
        else:
            placing.append(ways(len(placing), position))


class _Search:
    """One search: the free GPUs as they are with what is placed so far, and the way back."""

    __slots__ = ("_bits", "_counts", "_nodes", "_rank", "_trail", "_work_left", "placed")

    def __init__(self, free: FreeGpus, tasks: int, most_work: int) -> None:
        self._nodes = free.nodes
        self._bits = free.bits
        self._counts = free.counts
        self._rank = free.rank
        self._trail: list[tuple[int, int]] = []
        self._work_left = most_work
        self.placed: list[NodePlace] = [NodePlace(-1, 0)] * tasks

    def ways(self, part: _Part, slot: int, region: _Region) -> Iterator[None]:
        """Places the part in the region, one way after the other; what was placed is undone when the next is asked.

        `slot` is that of the group around.
        """
        if isinstance(part, _TaskPart):
            return self._ways_of_tasks(part, slot + part.slot, region)
        return self._ways_of_groups(part, slot + part.slot, region)

    def undo(self, mark: int) -> None:
        """Takes back what was placed since the trail was so long."""
        while len(self._trail) > mark:
            node, bits = self._trail.pop()
            self._bits[node] |= bits
            self._counts[node] += bits.bit_count()

    # Groups.

    def _ways_of_groups(self, group: _GroupPart, slot: int, region: _Region) -> Iterator[None]:
        cells = self._cells(group, region) if group.level else []
        whole_region = not (group.level and group.hard)

        def ways_of_one(number: int, position: int) -> Iterator[int]:
            first_slot = slot + number * group.tasks
            for cell in range(position, len(cells)):
                self._spend(STEP)
                if self._may_hold(group, cells[cell]):
                    for _ in self._ways_of_all(group.parts, first_slot, cells[cell]):
                        yield cell
            if whole_region:
                for _ in self._ways_of_all(group.parts, first_slot, region):
                    yield len(cells)

        return _one_after_another(group.count, ways_of_one, 0)

    def _ways_of_all(self, parts: Sequence[_Part], slot: int, region: _Region) -> Iterator[None]:
        """Places these parts, of which the later ones depend on the earlier ones."""
        placing = [self.ways(parts[0], slot, region)]
        while placing:
            if next(placing[-1], False) is False:
                placing.pop()
            elif len(placing) == len(parts):
                yield
            else:
                placing.append(self.ways(parts[len(placing)], slot, region))

    def _cells(self, group: _GroupPart, region: _Region) -> list[_Region]:
        """The cells of the groups' level within the region that may hold one of them, the fullest first.

        None where these groups are to be in such cells and surely do not all find one.
        """
        chain = self._nodes.chain
        if group.level < chain.machine_level:
            return self._parts_of_nodes(group, region)
        firsts, ends = self._nodes.cells(group.level)
        inside = (firsts >= region.first) & (ends <= region.end)
        if not inside.any():
            return [region]
        firsts, ends = firsts[inside], ends[inside]
        counts = self._counts[region.first : region.end]
        self._spend((2 + len(group.demands)) * len(counts))
        fitting = np.full(len(firsts), group.count, np.int64)
        for gpus, number in ((1, group.gpus), *group.demands):
            fitting = np.minimum(fitting, _sums(counts // gpus, firsts, ends, region.first) // number)
        if group.hard and int(fitting.sum()) < group.count:
            return []
        fullness = _sums(counts, firsts, ends, region.first)
        if self._rank is not None:
            ranks = _sums(self._rank[region.first : region.end], firsts, ends, region.first)
            fullness = fullness + (ranks * 64 // (ends - firsts) << 20)
        order = np.flatnonzero(fitting)
        order = order[fullness[order].argsort(kind="stable")]
        return [
            _Region(first, end, region.mask)
            for first, end in zip(firsts[order].tolist(), ends[order].tolist(), strict=True)
        ]

    def _parts_of_nodes(self, group: _GroupPart, region: _Region) -> list[_Region]:
        """The same for levels below the machine."""
        nodes = np.flatnonzero(self._counts[region.first : region.end] >= group.gpus) + region.first
        self._spend(CHOICE * len(nodes))
        found: list[_Region] = []
        for node in self._fullest_first(nodes, region):
            masks = [mask & region.mask for mask in cell_masks(self._nodes.shape[node], group.level)]
            free = sorted(((self._bits[node] & mask).bit_count(), mask) for mask in masks)
            found += [_Region(node, node + 1, mask) for count, mask in free if count >= group.gpus]
        return found

    def _may_hold(self, group: _GroupPart, cell: _Region) -> bool:
        """Whether there are as many free GPUs as one of the groups needs, with what is placed by now."""
        if cell.mask != -1:
            return (self._bits[cell.first] & cell.mask).bit_count() >= group.gpus
        counts = self._counts[cell.first : cell.end]
        self._spend(len(counts))
        return all(int((counts // gpus).sum()) >= number for gpus, number in ((1, group.gpus), *group.demands))

    # Tasks.

    def _ways_of_tasks(self, part: _TaskPart, slot: int, region: _Region) -> Iterator[None]:
        mark = len(self._trail)
        if not self._fill(part, slot, region):
            return
        yield
        self.undo(mark)

        def ways_of_one(number: int, first: int) -> Iterator[int]:
            seen: set[tuple[tuple[int, int], int]] = set()
            for node in range(first, region.end):
                self._spend(CHOICE)
                bits = self._choose(node, part, region.mask)
                alike = self._nodes.around[node], self._bits[node]
                if not bits or alike in seen:
                    continue
                seen.add(alike)
                before = len(self._trail)
                self._take(part, slot, number, node, bits)
                yield node
                self.undo(before)

        yield from _one_after_another(part.count, ways_of_one, region.first)

    def _fill(self, part: _TaskPart, slot: int, region: _Region) -> bool:
        """Places all units of the part on the fullest nodes; False, with nothing placed, where they do not fit."""
        nodes = np.arange(region.first, region.end)
        if region.mask == -1 and part.within == self._nodes.chain.machine_level:
            self._spend(2 * len(nodes))
            fit = self._counts[region.first : region.end] // part.gpus
        else:
            self._spend(CHOICE * len(nodes))
            fit = np.array([self._fits(node, part, region.mask) for node in range(region.first, region.end)], np.int64)
        if int(fit.sum()) < part.count:
            return False
        candidates = nodes[fit > 0]
        number = 0
        order = [self._fullest(candidates, region)] if part.count == 1 else self._fullest_first(candidates, region)
        for node in order:
            while number < part.count and (bits := self._choose(node, part, region.mask)):
                self._take(part, slot, number, node, bits)
                number += 1
            if number == part.count:
                break
        return True

    def _take(self, part: _TaskPart, slot: int, number: int, node: int, bits: int) -> None:
        """One unit of the part takes these GPUs."""
        self._spend(STEP)
        self._bits[node] &= ~bits
        self._counts[node] -= bits.bit_count()
        self._trail.append((node, bits))
        first = slot + number * part.tasks_per_unit
        for task in range(first, first + part.tasks_per_unit - 1):
            own = choose_gpus(self._nodes.shape[node], bits, part.gpus_per_task, part.within)
            self.placed[task] = NodePlace(node, own)
            bits &= ~own
        self.placed[first + part.tasks_per_unit - 1] = NodePlace(node, bits)

    def _fits(self, node: int, part: _TaskPart, mask: int) -> int:
        return tasks_that_fit(self._nodes.shape[node], self._bits[node] & mask, part.gpus, part.within)

    def _choose(self, node: int, part: _TaskPart, mask: int) -> int:
        return choose_gpus(self._nodes.shape[node], self._bits[node] & mask, part.gpus, part.within)

    # Which nodes come first.

    def _fullness(self, nodes: Integers, region: _Region) -> Iterator[Integers]:
        """What nodes are compared by, the smaller the better: rank and own free GPUs, then those of each cell around."""
        yield self._counts[nodes] if self._rank is None else self._counts[nodes] + (self._rank[nodes] << 6)
        chain = self._nodes.chain
        for level in range(chain.machine_level + 1, chain.top + 1):
            firsts, ends = self._nodes.cells(level)
            lowest = int(np.searchsorted(firsts, region.first, "right")) - 1
            highest = int(np.searchsorted(firsts, region.end - 1, "right"))
            # Where all are in one cell of a level, they are in one of every higher level.
            if highest - lowest == 1:
                return
            first, end = int(firsts[lowest]), int(ends[highest - 1])
            self._spend(end - first)
            free = np.add.reduceat(self._counts[first:end], firsts[lowest:highest] - first)
            yield free[np.searchsorted(firsts[lowest:highest], nodes, "right") - 1]

    def _fullest(self, nodes: Integers, region: _Region) -> int:
        """The first of the fullest of these nodes of the region."""
        left = np.arange(len(nodes))
        for fullness in self._fullness(nodes, region):
            of_these = fullness[left]
            left = left[of_these == of_these.min()]
            if len(left) == 1:
                break
        return int(nodes[left[0]])

    def _fullest_first(self, nodes: Integers, region: _Region) -> list[int]:
        """These nodes of the region in the order in which they are used."""
        keys = (nodes, *reversed(tuple(self._fullness(nodes, region))))
        self._spend(2 * len(keys) * len(nodes))
        order: list[int] = nodes[np.lexsort(keys)].tolist()
        return order

    def _spend(self, work: int) -> None:
        self._work_left -= work
        if self._work_left < 0:
            raise _GaveUp


def _sums(counts: Integers, firsts: Integers, ends: Integers, origin: int) -> Integers:
    """Of the counts, which begin at the node `origin`, those between each first and its end."""
    sums = np.concatenate(([0], np.cumsum(counts)))
    between: Integers = sums[ends - origin] - sums[firsts - origin]
    return between
