"""A virtual cluster as its owner sees it: the nodes of its cells, and which work holds which of their GPUs.

What is decided here depends on nothing but the owner's own work and on hardware that is out of use: so it is what would
be decided in a private cluster of that shape (HiveD §3.1).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable
from typing import NamedTuple

from cluster_manager.cells.binding import Binding
from cluster_manager.cells.buddy import BuddyCells
from cluster_manager.cells.gang import FreeGpus
from cluster_manager.cells.nodes import Integers, Nodes
from domain.cells import CellPair
from domain.identifiers import VirtualClusterId


class ViewKey(NamedTuple):
    """Whose cells, and which of them."""

    virtual_cluster: VirtualClusterId
    chain: str
    pinned: str | None = None
    """The name of the pinned cell; None for all cells that are not pinned."""


class NodeUse(NamedTuple):
    """GPUs of one virtual node that a task holds."""

    key: Hashable
    bits: int


class VirtualView:
    """The cells of one virtual cluster in one chain, or one pinned cell of it."""

    __slots__ = ("_counts", "_free", "_node_levels", "_nodes_of", "_uses", "binding", "key", "nodes", "owned_levels")

    def __init__(
        self, key: ViewKey, owned_levels: tuple[int, ...], buddy: BuddyCells, pinned: int | None = None
    ) -> None:
        self.key = key
        self.owned_levels = owned_levels
        """[owned cell] its level."""
        self.nodes = Nodes(buddy.chain, owned_levels)
        self.binding = Binding(self.nodes, buddy, pinned)
        self._uses: list[list[NodeUse]] = [[] for _ in range(self.nodes.count)]
        self._nodes_of: dict[Hashable, list[int]] = {}
        """The nodes of each use, by its key, in the order in which the work came into the view."""
        self._free = list(self.nodes.full)
        self._node_levels = tuple(sorted(set(self.nodes.level)))
        self._counts: Integers = self.nodes.sizes.copy()

    @property
    def free_gpus(self) -> int:
        """GPUs of its cells that no guaranteed work holds."""
        return int(self._counts.sum())

    def hold(self, node: int, use: NodeUse) -> None:
        """The GPUs are held from now on; work that is to leave may hold them too."""
        self._uses[node].append(use)
        self._nodes_of.setdefault(use.key, []).append(node)
        self._free[node] &= ~use.bits
        self._counts[node] = self._free[node].bit_count()

    def let_go(self, node: int, use: NodeUse) -> None:
        """They are not held any more."""
        self._uses[node].remove(use)
        nodes = self._nodes_of[use.key]
        nodes.remove(node)
        if not nodes:
            del self._nodes_of[use.key]
        self._sum_up(node)

    def node_of(self, pair: CellPair) -> tuple[int, int]:
        """The node of the virtual cell, and the GPUs of it as bits of the node."""
        chain = self.nodes.chain
        gpu = pair.virtual * chain.sizes[pair.level]
        owned = gpu // chain.sizes[-1]
        node = bisect_left(self.nodes.owned, owned) + gpu % chain.sizes[-1] // chain.gpus_per_machine
        bits = ((1 << chain.sizes[pair.level]) - 1) << (gpu - self.nodes.first_gpu[node])
        return node, bits

    def free(self, gone: Collection[Hashable], blocked: Iterable[int]) -> FreeGpus:
        """What is free if this work were gone, apart from nodes that are bound to blocked machines."""
        bits, counts = self._free.copy(), self._counts.copy()
        without = dict.fromkeys(gone)
        changed = dict.fromkeys(node for key in without for node in self._nodes_of.get(key, ()))
        for node in changed:
            held = 0
            for use in self._uses[node]:
                if use.key not in without:
                    held |= use.bits
            bits[node] = self.nodes.full[node] & ~held
            counts[node] = bits[node].bit_count()
        for node in self.bound_to(blocked):
            bits[node] = 0
            counts[node] = 0
        return FreeGpus(self.nodes, bits, counts)

    def empty(self) -> FreeGpus:
        """What is free if nothing were held and all machines usable."""
        return FreeGpus(self.nodes, list(self.nodes.full), self.nodes.sizes.copy())

    def bound_to(self, machines: Iterable[int]) -> list[int]:
        """The nodes that are bound to these machines or to parts of them."""
        chain, found = self.nodes.chain, []
        for machine in machines:
            for level in self._node_levels:
                per_machine = chain.gpus_per_machine // chain.sizes[level]
                for physical in range(machine * per_machine, (machine + 1) * per_machine):
                    virtual = self.binding.virtual_of(level, physical)
                    if virtual is not None and self.nodes.level[node := self._node_at(level, virtual)] == level:
                        found.append(node)
        return found

    def users(self, node: int, bits: int) -> list[Hashable]:
        """Who holds any of these GPUs."""
        return [use.key for use in self._uses[node] if use.bits & bits]

    def holders(self) -> Iterable[Hashable]:
        """Everything that holds any of its GPUs, each once."""
        return self._nodes_of.keys()

    def uses(self) -> list[tuple[int, NodeUse]]:
        """Every use with its node."""
        return [(node, use) for node, uses in enumerate(self._uses) for use in uses]

    def counts_are_right(self) -> bool:
        """Whether the free GPUs are what the uses leave."""
        counts: list[int] = self._counts.tolist()
        return counts == [free.bit_count() for free in self._free]

    def _node_at(self, level: int, virtual: int) -> int:
        return self.node_of(CellPair(level, virtual, 0))[0]

    def _sum_up(self, node: int) -> None:
        held = 0
        for use in self._uses[node]:
            held |= use.bits
        self._free[node] = self.nodes.full[node] & ~held
        self._counts[node] = self._free[node].bit_count()
