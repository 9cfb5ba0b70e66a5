"""What a virtual cluster can count on while machines are out of use (HiveD §4).

An owned cell that is not bound is doomed where there are fewer usable free cells of its level than the virtual cluster
could still ask for: then it has no other choice than one that is out of use. Which these are is worked out from what is
free, so seeing them binds nothing and takes no cell from others.
"""

from __future__ import annotations

from typing import NamedTuple

from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.virtual_view import ViewKey, VirtualView


class OwnedCellState(NamedTuple):
    """One owned cell as its virtual cluster sees it."""

    level: str
    bound_to: int | None
    """The number of its physical cell; None while nothing uses it."""
    usable: bool
    """False: a machine of its physical cell is out of use; unbound: it is doomed to such a one."""


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


def _chain_of(cells: CellCluster, key: ViewKey) -> int:
    view: VirtualView = cells.views[key]
    return cells.chains.index(view.nodes.chain)
