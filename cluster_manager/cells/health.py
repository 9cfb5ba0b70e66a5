"""What a virtual cluster can count on while machines are out of use, and how much of its cells it uses (HiveD §4).

An owned cell that is not bound is doomed where there are fewer usable free cells of its level than the virtual cluster
could still ask for: then it has no other choice than one that is out of use. Which these are is worked out from what is
free, so seeing them binds nothing and takes no cell from others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.virtual_view import ViewKey, VirtualView
from domain.cells import virtual_cluster_of_tenant
from domain.identifiers import VirtualClusterId


class OwnedCellState(NamedTuple):
    """One owned cell as its virtual cluster sees it."""

    level: str
    bound_to: int | None
    """The number of its physical cell; None while nothing uses it."""
    usable: bool
    """False: a machine of its physical cell is out of use; unbound: it is doomed to such a one."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a virtual cluster owns and uses, in GPUs."""

    owned: int
    """Of all its cells, pinned ones among them."""
    guaranteed: int
    """Held by work in its cells."""
    opportunistic: int
    """Held by its work anywhere else."""
    downgraded: int
    """Those of the opportunistic ones that its work holds which asked for guaranteed cells."""
    doomed: int
    """In cells that it can only have on hardware that is out of use."""

    @property
    def idle(self) -> int:
        """Owned, and held by none of its guaranteed work."""
        return self.owned - self.guaranteed


def doomed_cells(cells: CellCluster, key: ViewKey) -> dict[int, int]:
    """How many of the unbound cells of each owned level have no usable physical cell left; levels with none are left out."""
    view, chain = cells.views[key], _chain_of(cells, key)
    doomed: dict[int, int] = {}
    if key.pinned is not None:
        return doomed
    for level in sorted(set(view.owned_levels)):
        missing = view.binding.unbound[level] - cells.buddies[chain].usable(level)
        if missing > 0:
            doomed[level] = missing
    return doomed


def owned_cell_states(cells: CellCluster, key: ViewKey) -> tuple[OwnedCellState, ...]:
    """Every owned cell of the view; doomed ones are the last unbound ones of their level."""
    view, chain = cells.views[key], _chain_of(cells, key)
    buddy, sizes = cells.buddies[chain], cells.chains[chain].sizes
    doomed = doomed_cells(cells, key)
    states: list[OwnedCellState] = []
    for number in range(len(view.owned_levels) - 1, -1, -1):
        level = view.owned_levels[number]
        physical = view.binding.physical_of(level, number * sizes[-1] // sizes[level])
        usable = buddy.is_usable(level, physical) if physical is not None else not doomed.get(level)
        if physical is None and not usable:
            doomed[level] -= 1
        states.append(OwnedCellState(cells.chains[chain].name_of(level), physical, usable))
    return tuple(reversed(states))


def usage_of(cells: CellCluster, name: VirtualClusterId) -> Usage:
    """The GPUs of a virtual cluster. Opportunistic use is its work's whose request names it or its tenant."""
    views = [view for key, view in cells.views.items() if key.virtual_cluster == name]
    owned = sum(int(view.nodes.sizes.sum()) for view in views)
    opportunistic = downgraded = 0
    for work in cells.work.values():
        request = work.request
        named = request.virtual_cluster or virtual_cluster_of_tenant(request.tenant)
        if work.view is None and named == name:
            gpus = sum(task.bits.bit_count() for task in work.tasks)
            opportunistic += gpus
            downgraded += gpus if work.downgraded else 0
    doomed = sum(
        view.nodes.chain.sizes[level] * count
        for view in views
        for level, count in doomed_cells(cells, view.key).items()
    )
    return Usage(owned, owned - sum(view.free_gpus for view in views), opportunistic, downgraded, doomed)


def _chain_of(cells: CellCluster, key: ViewKey) -> int:
    view: VirtualView = cells.views[key]
    return cells.chains.index(view.nodes.chain)
