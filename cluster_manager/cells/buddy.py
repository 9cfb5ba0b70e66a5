"""Buddy cell allocation (HiveD §3.3, Algorithm 1): the cells that no virtual cluster has bound.

Free cells are always kept at the highest possible level: allocating splits the lowest cell that suffices, releasing
merges buddies. Splitting and merging cost O(1) however many buddies there are, for only what differs from its siblings
is written down. Among free cells the choice is: usable ones first, then the fewest GPUs of opportunistic work, then those of the
tenants that use the most for their weights (`losing_tenants`), then the lowest number (§3.3, §4).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import TypeAlias

from cluster_manager.cells.hierarchy import Chain
from cluster_manager.cells.losing_tenants import LosingTenants
from cluster_manager.cells.occupancy import UNUSABLE, Occupancy
from cluster_manager.cells.safety import Shortage, first_shortage, stays_safe

_WHOLE, _SPLIT, _ALLOCATED = 0, 1, 2
_FEWEST_CANDIDATES = 256
_CLEAN = (0, 0)

_Candidates: TypeAlias = tuple[int, int, int, int]
"""Unusable machines and opportunistic GPUs of each of the cells from the third number up to the fourth."""


class NotFree(ValueError):
    """The cell is allocated, or a part of it is."""


class BuddyCells:
    """The free cells of one chain, and how many cells of each level are still owed to virtual clusters."""

    __slots__ = ("_candidates", "_compact_at", "_free_children", "_state", "chain", "free", "occupancy", "owed")

    def __init__(self, occupancy: Occupancy) -> None:
        chain = occupancy.chain
        self.chain: Chain = chain
        self.occupancy = occupancy
        levels = chain.top + 1
        self.free = [0] * levels
        """[level] f_k: how many free cells there are."""
        self.owed = [0] * levels
        """[level] r_k - a_k: how many cells virtual clusters own and have not bound."""
        self._state = [bytearray(count) for count in chain.counts]
        self._free_children: list[dict[int, int]] = [{} for _ in range(levels)]
        self._candidates: list[list[_Candidates]] = [[] for _ in range(levels)]
        self._compact_at = [_FEWEST_CANDIDATES] * levels
        self.free[chain.top] = chain.counts[chain.top]
        self._offer(chain.top, range(chain.counts[chain.top]))

    # What is free.

    def is_free(self, level: int, cell: int) -> bool:
        """Whether this very cell is free and not part of a larger free one."""
        if self._state[level][cell] != _WHOLE:
            return False
        return level == self.chain.top or self._state[level + 1][cell // self.chain.splits[level + 1]] == _SPLIT

    def free_level(self, level: int, cell: int) -> int:
        """The level of the free cell that is or contains this one; 0 where there is none."""
        for higher in range(level, self.chain.top + 1):
            if self.is_free(higher, self.chain.above(level, cell, higher)):
                return higher
        return 0

    def free_cells(self, level: int) -> Iterator[int]:
        """The free cells of a level, those of one parent together. O(cells within split parents)."""
        state, chain = self._state[level], self.chain
        if level == chain.top:
            return (cell for cell in range(chain.counts[level]) if state[cell] == _WHOLE)
        split_parents = (parent for parent, free in self._free_children[level + 1].items() if free)
        return (cell for parent in split_parents for cell in chain.children(level + 1, parent) if state[cell] == _WHOLE)

    def shortage(self) -> Shortage | None:
        """Where more cells are owed than there can be; None as long as sharing is safe (invariant 2)."""
        return first_shortage(self.free, self.owed, self.chain.splits)

    def usable(self, level: int) -> int:
        """How many cells of the level, all of whose machines are usable, are free or can be had by splitting free ones."""
        chain, size = self.chain, self.chain.sizes[level]
        count = sum(self.free[k] * (chain.sizes[k] // size) for k in range(level, chain.top + 1))
        out_of_use: dict[int, None] = {}
        for machine in self.occupancy.unusable:
            if level >= chain.machine_level:
                cells = [chain.above(chain.machine_level, machine, level)]
            else:
                per_machine = chain.gpus_per_machine // size
                cells = list(range(machine * per_machine, (machine + 1) * per_machine))
            out_of_use |= {cell: None for cell in cells if self.free_level(level, cell)}
        return count - len(out_of_use)

    # The choice of a cell.

    def choose(self, level: int, blocked: Collection[int] | None = None, losing: LosingTenants | None = None) -> int:
        """The cell of this level to bind for a virtual cluster that is owed one, without allocating it.

        A cell with usable machines may be split off higher than the lowest free one, but never where another virtual
        cluster could then not get what it owns. `blocked` are the machines that are of no use to who asks; None stands
        for the unusable ones. `losing` chooses whose opportunistic work goes; None: the lowest number.

        Raises NotFree where nothing is owed at that level and nothing is free.
        """
        out_of_use = self.occupancy.unusable if blocked is None else blocked
        fallback: tuple[int, int] | None = None
        for source in range(level, self.chain.top + 1):
            if not self.free[source]:
                continue
            if fallback is not None and not stays_safe(self.free, self.owed, self.chain.splits, level, source):
                continue
            if blocked is None:
                cell = self._best_for_all(source, losing)
            else:
                cell = self._least_blocked(source, level, blocked, losing)
            if not out_of_use or self.occupancy.whole_usable(source, cell, level, out_of_use):
                return self._within(source, cell, level, out_of_use, losing)
            if fallback is None:
                fallback = source, cell
        if fallback is None:
            raise NotFree(f"chain {self.chain.name}: no cell of level {self.chain.name_of(level)} is free")
        return self._within(*fallback, level, out_of_use, losing)

    def partly_usable(self, level: int, blocked: Collection[int] | None = None) -> int | None:
        """The free cell of this level, above the machine's, with the most usable machines among those that do
        not have all of them usable; None where there is none."""
        out_of_use, occupancy = self.occupancy.unusable if blocked is None else blocked, self.occupancy
        parent_of, machine_level = self.chain.above, self.chain.machine_level
        candidates = {parent_of(machine_level, machine, level): None for machine in out_of_use}
        usable = {
            cell: occupancy.whole_usable(level, cell, machine_level, out_of_use)
            for cell in candidates
            if self.is_free(level, cell)
        }
        return min((cell for cell in usable if usable[cell]), key=lambda cell: (-usable[cell], cell), default=None)

    def _best_for_all(self, level: int, losing: LosingTenants | None) -> int:
        """The best free cell of the level, of equally good ones that which takes least from whom has least."""
        cell = self._best(level)
        cost = self.occupancy.cost(level, cell)
        if losing is None or not losing.matters or not cost[1]:
            return cell
        return losing.choose(level, cost, self.free[level], self.free_cells(level))

    def _best(self, level: int) -> int:
        """The best free cell of the level, of which there is one."""
        candidates = self._candidates[level]
        while True:
            unusable, opportunistic, cell, end = candidates[0]
            is_split = level == self.chain.top or self._state[level + 1][cell // self.chain.splits[level + 1]] == _SPLIT
            if is_split:
                if self._state[level][cell] == _WHOLE and self.occupancy.cost(level, cell) == (unusable, opportunistic):
                    return cell
                if cell + 1 < end:
                    heapreplace(candidates, (unusable, opportunistic, cell + 1, end))
                    continue
            heappop(candidates)

    def _least_blocked(self, source: int, level: int, blocked: Collection[int], losing: LosingTenants | None) -> int:
        """The best free cell of level `source`, to split a cell of the level off, for who cannot use those machines."""
        return min(self.free_cells(source), key=lambda cell: self._merit(source, cell, level, blocked, losing))

    def _within(
        self, source: int, cell: int, level: int, blocked: Collection[int], losing: LosingTenants | None
    ) -> int:
        """The best cell of the level within a free one of level `source`."""
        for higher in range(source, level, -1):
            children = self.chain.children(higher, cell)
            if blocked is self.occupancy.unusable and self.occupancy.cost(higher, cell) == _CLEAN:
                cell = children[0]
            else:
                merits = {child: self._merit(higher - 1, child, level, blocked, losing) for child in children}
                cell = min(children, key=merits.__getitem__)
        return cell

    def _merit(
        self, at: int, cell: int, level: int, blocked: Collection[int], losing: LosingTenants | None
    ) -> tuple[bool, int, int, float, int]:
        """The smaller, the better to split a cell of the level off: whether there is one without blocked machines, how
        much of it is not blocked, opportunistic GPUs, what their tenants use for their weights, number."""
        occupancy = self.occupancy
        parts = occupancy.whole_usable(at, cell, min(at, self.chain.machine_level), blocked)
        opportunistic = occupancy.cost(at, cell)[1]
        use = losing.use_over_weight(at, cell) if losing is not None and opportunistic else 0.0
        return not occupancy.whole_usable(at, cell, level, blocked), -parts, opportunistic, -use, cell

    # Allocating and releasing.

    def allocate(self, level: int, cell: int) -> None:
        """This very cell is free no longer; larger cells are split for it. Raises NotFree."""
        source = self.free_level(level, cell)
        if not source:
            raise NotFree(f"chain {self.chain.name}: cell {cell} of level {self.chain.name_of(level)} is not free")
        higher = self.chain.above(level, cell, source)
        self.free[source] -= 1
        if source < self.chain.top:
            self._free_children[source + 1][higher // self.chain.splits[source + 1]] -= 1
        for split_level in range(source, level, -1):
            whole = self.chain.above(level, cell, split_level)
            split = self.chain.splits[split_level]
            self._state[split_level][whole] = _SPLIT
            self._free_children[split_level][whole] = split - 1
            self.free[split_level - 1] += split - 1
            clean = self.occupancy.cost(split_level, whole) == _CLEAN
            self._offer(split_level - 1, self.chain.children(split_level, whole), clean=clean)
        self._state[level][cell] = _ALLOCATED

    def release(self, level: int, cell: int) -> None:
        """The cell is free again and merges with its buddies as far as these are free. Raises NotFree if it was not
        allocated."""
        if self._state[level][cell] != _ALLOCATED:
            raise NotFree(f"chain {self.chain.name}: cell {cell} of level {self.chain.name_of(level)} is not allocated")
        self._state[level][cell] = _WHOLE
        self.free[level] += 1
        while level < self.chain.top:
            split = self.chain.splits[level + 1]
            parent = cell // split
            self._free_children[level + 1][parent] += 1
            if self._free_children[level + 1][parent] < split:
                break
            del self._free_children[level + 1][parent]
            self.free[level] -= split
            level, cell = level + 1, parent
            self._state[level][cell] = _WHOLE
            self.free[level] += 1
        self._offer(level, range(cell, cell + 1))

    def machine_changed(self, machine: int) -> None:
        """What is on the machine, or whether it is usable, has changed: its free cells are worth something else."""
        chain = self.chain
        level = self.free_level(chain.machine_level, machine)
        if level:
            cell = chain.above(chain.machine_level, machine, level)
            self._offer(level, range(cell, cell + 1))
        elif self._state[chain.machine_level][machine] == _SPLIT:
            self._offer_parts(chain.machine_level, machine)

    def _offer_parts(self, level: int, cell: int) -> None:
        children = self.chain.children(level, cell)
        self._offer(level - 1, range(children[0], children[-1] + 1))
        for child in children:
            if self._state[level - 1][child] == _SPLIT:
                self._offer_parts(level - 1, child)

    def _offer(self, level: int, cells: range, *, clean: bool = False) -> None:
        """Makes these cells candidates, as far as they are free: what was offered before at another cost is void."""
        candidates = self._candidates[level]
        if clean:
            heappush(candidates, (0, 0, cells.start, cells.stop))
        else:
            first = cells.start
            while first < cells.stop:
                cost, end = self.occupancy.cost(level, first), first + 1
                while end < cells.stop and self.occupancy.cost(level, end) == cost:
                    end += 1
                heappush(candidates, (*cost, first, end))
                first = end
        if len(candidates) > self._compact_at[level]:
            self._compact(level)

    def _compact(self, level: int) -> None:
        """Drops what is void and what is there twice."""
        kept = sorted({entry for entry in self._candidates[level] if self._may_hold(level, entry)})
        heapify(kept)
        self._candidates[level] = kept
        self._compact_at[level] = max(_FEWEST_CANDIDATES, 2 * len(kept))

    def _may_hold(self, level: int, entry: _Candidates) -> bool:
        unusable, opportunistic, first, end = entry
        if level < self.chain.top and self._state[level + 1][first // self.chain.splits[level + 1]] != _SPLIT:
            return False
        return end - first > 1 or (
            self._state[level][first] == _WHOLE and self.occupancy.cost(level, first) == (unusable, opportunistic)
        )

    # For checks.

    def layout(self) -> tuple[tuple[int, ...], ...]:
        """[level] the free cells; what a test compares."""
        return tuple(tuple(sorted(self.free_cells(level))) if level else () for level in range(self.chain.top + 1))

    def is_usable(self, level: int, cell: int) -> bool:
        """Whether all machines of the cell are usable."""
        return self.occupancy.cost(level, cell)[UNUSABLE] == 0
