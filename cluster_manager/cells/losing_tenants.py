"""Whose opportunistic work goes where an owner takes its cells (HiveD §3.3: weighted max-min between tenants).

Rule: of cells that hold equally much opportunistic work the one is taken whose GPUs belong to the tenants with the most
such use for their weights. So what is left comes as close to weighted max-min shares as whole cells allow.
Invariant: it chooses between cells that are equally good for the owner, and so changes nothing for owners.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cluster_manager.cells.occupancy import Occupancy, TenantGpus
from domain.identifiers import TenantId


class LosingTenants:
    """The choices of one search in one chain: each takes into account what was taken by those before."""

    __slots__ = ("_alike", "_occupancy", "_use", "_weights", "matters")

    def __init__(self, occupancy: Occupancy, weights: Mapping[TenantId, float]) -> None:
        self._occupancy = occupancy
        self._weights = weights
        self._use = dict(occupancy.opportunistic_use)
        self._alike: dict[int, tuple[tuple[int, int], int, dict[TenantGpus, list[int]]]] = {}
        """[level] cells of one cost by what they hold, the lowest number last; that cost; and how many cells were free."""
        self.matters = len(self._use) > 1
        """Whether there are several tenants to choose between."""

    def use_over_weight(self, level: int, cell: int) -> float:
        """The sum, over the opportunistic GPUs of the cell, of what their tenants use for their weights: the greater,
        the rather the cell is taken. 0 where there is nothing to choose between."""
        return self._sum(self._occupancy.opportunistic_in(level, cell)) if self.matters else 0.0

    def choose(self, level: int, cost: tuple[int, int], free: int, free_cells: Iterable[int]) -> int:
        """Of the cells of this level that are free the one of that cost to take. There is at least one.

        `free` is how many are free. `free_cells` are looked at only when others are free than those that were left.
        """
        known = self._alike.get(level)
        if known is None or known[:2] != (cost, free):
            known = cost, free, self._by_holders(level, cost, free_cells)
        groups = known[2]
        holders = max(sorted(groups), key=lambda gpus: (self._sum(gpus), -groups[gpus][-1]))
        cell = groups[holders].pop()
        if not groups[holders]:
            del groups[holders]
        if groups:
            self._alike[level] = cost, free - 1, groups
        else:
            self._alike.pop(level, None)
        return cell

    def take(self, level: int, cell: int) -> None:
        """The cell is taken: its tenants use so much less."""
        if self.matters:
            for tenant, gpus in self._occupancy.opportunistic_in(level, cell):
                self._use[tenant] = max(0, self._use.get(tenant, 0) - gpus)

    def _by_holders(self, level: int, cost: tuple[int, int], free_cells: Iterable[int]) -> dict[TenantGpus, list[int]]:
        occupancy = self._occupancy
        groups: dict[TenantGpus, list[int]] = {}
        for cell in sorted(free_cells, reverse=True):
            if occupancy.cost(level, cell) == cost:
                groups.setdefault(occupancy.opportunistic_in(level, cell), []).append(cell)
        return groups

    def _sum(self, gpus: TenantGpus) -> float:
        use, weights = self._use, self._weights
        return sum(count * use.get(tenant, 0) / weights.get(tenant, 1.0) for tenant, count in gpus)
