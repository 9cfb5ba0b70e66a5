"""Which physical cell each virtual cell in use stands for (HiveD §3.1, §3.3): bound by use, unbound when unused.

Binding goes down the levels: a virtual cell within a bound one is bound to a cell within its physical one. So every use
of a virtual cluster has the topology in the physical cluster that it has in the virtual one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from cluster_manager.cells.buddy import BuddyCells
from cluster_manager.cells.losing_tenants import LosingTenants
from cluster_manager.cells.nodes import Nodes
from cluster_manager.cells.safety import stays_safe
from domain.cells import CellPair


@dataclass(slots=True, eq=False)
class Trail:
    """What was bound for a trial, to be undone at its end."""

    bound: list[tuple[int, int]] = field(default_factory=list)
    """Levels and virtual cells, in the order of binding."""
    ranked: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """The cells within a physical one, the best last: for a large gang they are put in order only once."""
    alike: set[tuple[int, int]] = field(default_factory=set)
    """Levels and physical cells within which all cells of that level are usable and without opportunistic work."""
    losing: LosingTenants | None = None
    """Whose opportunistic work goes where cells are equally good; None: it does not matter."""


class Inconsistent(ValueError):
    """Physical cells that cannot stand for the virtual ones: they are not free, or not owned, or bound otherwise."""


class Binding:
    """The bindings of a virtual cluster's cells in one chain, or of one pinned cell."""

    __slots__ = ("_for_good", "_physical", "_uses", "_virtual", "buddy", "nodes", "pinned", "unbound")

    def __init__(self, nodes: Nodes, buddy: BuddyCells, pinned: int | None = None) -> None:
        """Nothing is bound, except the only cell of these nodes if it is pinned to a physical one."""
        self.nodes = nodes
        self.buddy = buddy
        self.pinned = pinned
        self._for_good = pinned is not None
        """Owned cells are never unbound."""
        levels = buddy.chain.top + 1
        self._physical: list[dict[int, int]] = [{} for _ in range(levels)]
        self._virtual: list[dict[int, int]] = [{} for _ in range(levels)]
        self._uses: list[dict[int, int]] = [{} for _ in range(levels)]
        self.unbound = [nodes.owned_levels.count(level) for level in range(levels)]
        """[level] how many cells of the level are owned and not bound."""
        if pinned is not None:
            self.unbound = [0] * levels
            self._physical[nodes.owned_levels[0]][0] = pinned
            self._virtual[nodes.owned_levels[0]][pinned] = 0

    def bind_for_good(self, level: int) -> None:
        """Binds every owned cell of the level, and leaves them bound."""
        chain = self.buddy.chain
        for number, owned_level in enumerate(self.nodes.owned_levels):
            if owned_level == level:
                self._bind(
                    level, number * chain.sizes[-1] // chain.sizes[level], self.buddy.choose(level, None), owned=True
                )
        self._for_good = True

    def physical_of(self, level: int, virtual: int) -> int | None:
        """The physical cell that the virtual one is bound to."""
        return self._physical[level].get(virtual)

    def virtual_of(self, level: int, physical: int) -> int | None:
        """The virtual cell that is bound to this physical one."""
        return self._virtual[level].get(physical)

    def bound_cells(self, level: int) -> dict[int, int]:
        """The bound virtual cells of the level with their physical ones, owned cells and cells within them."""
        return dict(self._physical[level])

    def owned_level(self, level: int, virtual: int) -> int:
        """The level of the owned cell that the virtual cell is or is part of."""
        sizes = self.buddy.chain.sizes
        return self.nodes.owned_levels[virtual * sizes[level] // sizes[-1]]

    # Trying out.

    def choose(self, node: int, bits: int, blocked: Collection[int] | None, trail: Trail) -> tuple[CellPair, ...]:
        """Physical cells for these GPUs of a virtual node; what is not bound yet is bound to the best that is free.

        What is bound is noted in the trail, to be undone with `undo`. Blocked machines are avoided where possible; None
        stands for the unusable ones.
        """
        level = self.nodes.level[node]
        pairs: list[CellPair] = []
        self._choose_in(level, self.nodes.cell(level, node), bits, blocked, trail, pairs)
        return tuple(pairs)

    def _choose_in(
        self,
        level: int,
        virtual: int,
        bits: int,
        blocked: Collection[int] | None,
        trail: Trail,
        pairs: list[CellPair],
    ) -> None:
        """`bits` are those of the virtual cell."""
        chain = self.buddy.chain
        if bits == (1 << chain.sizes[level]) - 1:
            pairs.append(CellPair(level, virtual, self._reach(level, virtual, blocked, trail)))
            return
        size = chain.sizes[level - 1]
        for child in chain.children(level, virtual):
            part = bits & ((1 << size) - 1)
            bits >>= size
            if part:
                self._choose_in(level - 1, child, part, blocked, trail, pairs)

    def _reach(self, level: int, virtual: int, blocked: Collection[int] | None, trail: Trail) -> int:
        physical = self._physical[level].get(virtual)
        if physical is not None:
            return physical
        return self._bind_to_best(level, virtual, self.owned_level(level, virtual), blocked, trail)

    def _bind_to_best(
        self, level: int, virtual: int, owned_level: int, blocked: Collection[int] | None, trail: Trail
    ) -> int:
        """Binds a cell that is not bound, and those around it up to the owned one; returns its physical cell."""
        if level == owned_level:
            physical = self._choose_owned(level, blocked, trail.losing)
        else:
            around = virtual // self.buddy.chain.splits[level + 1]
            parent = self._physical[level + 1].get(around)
            if parent is None:
                parent = self._bind_to_best(level + 1, around, owned_level, blocked, trail)
            physical = self._free_child(level, parent, virtual, blocked, trail)
        self._bind(level, virtual, physical, owned=level == owned_level)
        trail.bound.append((level, virtual))
        return physical

    def _choose_owned(self, level: int, blocked: Collection[int] | None, losing: LosingTenants | None) -> int:
        """A free cell for an owned one. Who cannot have usable ones for all its cells uses the rest of the others first.

        So those stay whole for larger work and for other owners.
        """
        buddy = self.buddy
        if buddy.occupancy.unusable and level > buddy.chain.machine_level and self.unbound[level] > buddy.usable(level):
            partly = buddy.partly_usable(level, blocked)
            if partly is not None:
                return partly
        cell = buddy.choose(level, blocked, losing)
        if losing is not None:
            losing.take(level, cell)
        return cell

    def _free_child(self, level: int, parent: int, virtual: int, blocked: Collection[int] | None, trail: Trail) -> int:
        """The best cell within the physical parent that no virtual one is bound to; its counterpart if all are equal."""
        chain, occupancy, taken = self.buddy.chain, self.buddy.occupancy, self._virtual[level]
        if (level, parent) in trail.alike:
            split = chain.splits[level + 1]
            counterpart = parent * split + virtual % split
            return counterpart if counterpart not in taken else self._first_free(level, parent)
        ranked = trail.ranked.get((level, parent))
        if ranked is None:
            out_of_use = occupancy.unusable if blocked is None else blocked
            children = chain.children(level + 1, parent)
            all_usable = not out_of_use or occupancy.whole_usable(level + 1, parent, level, out_of_use) == len(children)
            if all_usable and not occupancy.cost(level + 1, parent)[1]:
                trail.alike.add((level, parent))
                counterpart = children[virtual % len(children)]
                return counterpart if counterpart not in taken else self._first_free(level, parent)
            merits = {
                child: (
                    occupancy.whole_usable(level, child, min(level, chain.machine_level), out_of_use),
                    -occupancy.cost(level, child)[1],
                    trail.losing.use_over_weight(level, child) if trail.losing is not None else 0.0,
                    -child,
                )
                for child in children
                if child not in taken
            }
            ranked = trail.ranked[level, parent] = sorted(merits, key=merits.__getitem__)
        while ranked[-1] in taken:
            ranked.pop()
        return ranked.pop()

    def _first_free(self, level: int, parent: int) -> int:
        taken = self._virtual[level]
        return next(child for child in self.buddy.chain.children(level + 1, parent) if child not in taken)

    def undo(self, trail: Trail) -> None:
        """Unbinds what was bound for a trial."""
        for level, virtual in reversed(trail.bound):
            self._unbind(level, virtual)
        trail.bound.clear()
        trail.ranked.clear()
        trail.alike.clear()

    # Using cells.

    def use(self, pairs: Iterable[CellPair]) -> None:
        """These cells are in use from now on; they and the cells around them are bound as far as they are not.

        Raises Inconsistent, with nothing changed, where a cell cannot be bound like that.
        """
        done: list[CellPair] = []
        try:
            for pair in pairs:
                self._use_path(pair)
                done.append(pair)
        except Inconsistent:
            self.stop_using(done)
            raise

    def stop_using(self, pairs: Iterable[CellPair]) -> None:
        """They are not in use any more; what nothing uses is unbound."""
        for pair in pairs:
            for level, virtual, _ in self._path(pair):
                uses = self._uses[level]
                uses[virtual] -= 1
                if not uses[virtual]:
                    del uses[virtual]
                    self._unbind(level, virtual)

    def counterpart(self, level: int, physical: int, owned_level: int, trail: Trail) -> int:
        """The virtual cell for a physical one in use whose owned cell has this level: bound to it, or the first that is
        not bound. Raises Inconsistent."""
        virtual = self._virtual[level].get(physical)
        if virtual is not None:
            return virtual
        chain = self.buddy.chain
        if level == owned_level:
            virtual = self._unbound_owned(level)
            self._check_bindable(level, physical)
        else:
            split = chain.splits[level + 1]
            parent = self.counterpart(level + 1, physical // split, owned_level, trail)
            children = chain.children(level + 1, parent)
            same = children[physical % split]
            bound = self._physical[level]
            virtual = same if same not in bound else next((child for child in children if child not in bound), None)
            if virtual is None:
                raise Inconsistent(f"all cells of level {chain.name_of(level)} in virtual cell {parent} are bound")
        self._bind(level, virtual, physical, owned=level == owned_level)
        trail.bound.append((level, virtual))
        return virtual

    def _unbound_owned(self, level: int) -> int:
        chain, bound = self.buddy.chain, self._physical[level]
        for number, owned_level in enumerate(self.nodes.owned_levels):
            virtual = number * chain.sizes[-1] // chain.sizes[level]
            if owned_level == level and virtual not in bound:
                return virtual
        raise Inconsistent(
            f"no cell of level {chain.name_of(level)} of chain {chain.name} is left to the virtual cluster"
        )

    def _path(self, pair: CellPair) -> Iterable[CellPair]:
        """The pair and the cells around it, up to the owned cell."""
        splits = self.buddy.chain.splits
        top = self.owned_level(pair.level, pair.virtual)
        level, virtual, physical = pair
        while True:
            yield CellPair(level, virtual, physical)
            if level == top:
                return
            level += 1
            virtual, physical = virtual // splits[level], physical // splits[level]

    def _use_path(self, pair: CellPair) -> None:
        splits, top = self.buddy.chain.splits, self.owned_level(pair.level, pair.virtual)
        level, virtual, physical = pair
        while True:
            known = self._physical[level].get(virtual)
            if known != physical and (known is not None or physical in self._virtual[level]):
                raise Inconsistent(
                    f"virtual cell {virtual} of level {level} and physical cell {physical} are bound otherwise"
                )
            # The cells around one that is in use are in use, too: bound, and to those around its physical one.
            if level == top or virtual in self._uses[level]:
                break
            level += 1
            virtual, physical = virtual // splits[level], physical // splits[level]
        if level == top and virtual not in self._physical[top]:
            self._check_bindable(top, physical)
        level, virtual, physical = pair
        while True:
            if virtual not in self._physical[level]:
                self._bind(level, virtual, physical, owned=level == top)
            uses = self._uses[level]
            uses[virtual] = uses.get(virtual, 0) + 1
            if level == top:
                return
            level += 1
            virtual, physical = virtual // splits[level], physical // splits[level]

    def _check_bindable(self, level: int, physical: int) -> None:
        """Raises Inconsistent unless the physical cell is free and may be bound without taking what others own."""
        buddy, chain = self.buddy, self.buddy.chain
        what = f"cell {physical} of level {chain.name_of(level)} of chain {chain.name}"
        source = buddy.free_level(level, physical)
        if not source:
            raise Inconsistent(f"{what} is not free")
        if not buddy.owed[level] or not stays_safe(buddy.free, buddy.owed, chain.splits, level, source):
            raise Inconsistent(f"{what} is owed to other virtual clusters")

    def _bind(self, level: int, virtual: int, physical: int, *, owned: bool) -> None:
        if owned:
            self.buddy.allocate(level, physical)
            self.buddy.owed[level] -= 1
            self.unbound[level] -= 1
        self._physical[level][virtual] = physical
        self._virtual[level][physical] = virtual

    def _unbind(self, level: int, virtual: int) -> None:
        owned = level == self.owned_level(level, virtual)
        if owned and self._for_good:
            return
        physical = self._physical[level].pop(virtual)
        del self._virtual[level][physical]
        if owned:
            self.buddy.release(level, physical)
            self.buddy.owed[level] += 1
            self.unbound[level] += 1
