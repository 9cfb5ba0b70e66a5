"""Cells from what runs: after a restart, and after a change of machines or virtual clusters (HiveD §4).

What each task holds, and which virtual cells these are, is written down with the work; everything else follows. Where
the two do not agree any more, the work is downgraded: it goes on opportunistically, until its cells are free again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from cluster_manager.cells.binding import Binding, Inconsistent, Trail
from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.hierarchy import Chain, UnknownLevel
from cluster_manager.cells.requests import CellRequest
from cluster_manager.cells.virtual_view import ViewKey, VirtualView
from cluster_manager.cells.work import TaskCells, Work
from domain.cells import CellPair
from domain.identifiers import MachineId


class HeldTask(NamedTuple):
    """What one task holds, as it is written down."""

    machine: MachineId
    bits: int
    """The GPUs of the machine."""
    owned_level: str | None = None
    """The name of the level of the owned cell that it stands in, or stood in before it was downgraded; None for work that
    was never guaranteed."""
    pairs: tuple[CellPair, ...] = ()
    """The virtual cells that these are; without them, any that are alike will do."""


class CellHolding(NamedTuple):
    """What one piece of work holds."""

    request: CellRequest
    chain: str
    tasks: tuple[HeldTask, ...]
    leaving: bool = False
    downgraded: bool = False
    """It asked for guaranteed cells and does without at the moment."""


def restored(cells: CellCluster, holding: CellHolding) -> Work:
    """The work on its GPUs, opportunistic for now."""
    tasks = tuple(
        TaskCells(*cells.number_of(task.machine), task.bits)
        for task in holding.tasks
        if cells.has_machine(task.machine)
    )
    work = cells.add(holding.request, None, tasks)
    work.leaving = holding.leaving
    levels = tuple(task.owned_level for task in holding.tasks if task.owned_level is not None)
    if len(levels) == len(tasks) == len(holding.tasks):
        work.owned_levels = levels
    return work


def seat_all(cells: CellCluster, seats: Iterable[tuple[Work, CellHolding]]) -> list[tuple[Work, CellHolding]]:
    """Gives all work back the cells that it held, the best standing first, and returns it in this order."""
    in_order = sorted(seats, key=lambda seat: (seat[0].request.standing, seat[0].sequence))
    for work, holding in in_order:
        seat_as_held(cells, work, holding)
    return in_order


def seat_as_held(cells: CellCluster, work: Work, holding: CellHolding) -> bool:
    """Gives the work back the virtual cells that it held, or such as are alike; False where there are none for it.

    Virtual cells of one level are alike, and so are the cells within them: it is enough that each physical cell it
    stands in is bound to one of its virtual cluster's of the same level.
    """
    if not holding.request.guaranteed or holding.downgraded or len(work.owned_levels) < len(holding.tasks):
        return False
    view = _view_of(cells, work)
    if view is None:
        return False
    written = [task.pairs for task in holding.tasks]
    if all(written) and _are_the_same(view, work, holding):
        try:
            cells.seat(work, view.key, written)
        except Inconsistent:
            pass  # Others came first, or cells were renumbered: then such as are alike.
        else:
            return True
    return _seat_alike(cells, work, view, work.owned_levels)


def restore(cells: CellCluster) -> tuple[Hashable, ...]:
    """Gives downgraded work its cells back as far as they are free, best standing first; returns whose."""
    back: list[Hashable] = []
    downgraded = [work for work in cells.work.values() if work.downgraded and not work.leaving and work.tasks]
    for work in sorted(downgraded, key=lambda work: (work.request.standing, work.sequence)):
        view = _view_of(cells, work)
        if view is None:
            continue
        names = [view.nodes.chain.name_of(level) for level in sorted(set(view.owned_levels), reverse=True)]
        choices = [list(work.owned_levels)] if len(work.owned_levels) == len(work.tasks) else []
        choices += [[name] * len(work.tasks) for name in names]
        if any(_seat_alike(cells, work, view, levels) for levels in choices):
            back.append(work.request.key)
    return tuple(back)


def _view_of(cells: CellCluster, work: Work) -> VirtualView | None:
    """The view that the work belongs into: of its virtual cluster, in the one chain that all its tasks are in."""
    name = work.request.virtual_cluster
    chains = {task.chain for task in work.tasks}
    if name is None or len(chains) != 1:
        return None
    return cells.views.get(ViewKey(name, cells.chains[chains.pop()].name, work.request.pinned_cell))


def _are_the_same(view: VirtualView, work: Work, holding: CellHolding) -> bool:
    """Whether the cells that are written down exist, have the levels that are written down, and are these GPUs."""
    chain, owned = view.nodes.chain, len(view.owned_levels)
    for task, held in zip(work.tasks, holding.tasks, strict=True):
        bits = 0
        for level, virtual, physical in held.pairs:
            if level > chain.machine_level or virtual * chain.sizes[level] // chain.sizes[-1] >= owned:
                return False
            owned_level = view.binding.owned_level(level, virtual)
            if owned_level < level or chain.name_of(owned_level) != held.owned_level:
                return False
            if physical not in range(chain.counts[level]) or chain.machines_in(level, physical)[0] != task.machine:
                return False
            bits |= chain.bits_of(level, physical)
        if bits != task.bits:
            return False
    return True


def _seat_alike(cells: CellCluster, work: Work, view: VirtualView, levels: Sequence[str]) -> bool:
    trail = Trail()
    try:
        pairs = [
            _pairs_for(view.binding, task, view.nodes.chain.level_called(level), trail)
            for task, level in zip(work.tasks, levels, strict=True)
        ]
    except (Inconsistent, UnknownLevel):
        return False
    finally:
        view.binding.undo(trail)
    cells.seat(work, view.key, pairs)
    return True


def _pairs_for(binding: Binding, task: TaskCells, owned_level: int, trail: Trail) -> tuple[CellPair, ...]:
    """Virtual cells for the GPUs of one task. Raises Inconsistent."""
    chain = binding.buddy.chain
    pairs: list[CellPair] = []
    level = min(owned_level, chain.machine_level)
    per_machine = chain.gpus_per_machine // chain.sizes[level]
    inside = [
        cell
        for cell in range(task.machine * per_machine, (task.machine + 1) * per_machine)
        if chain.bits_of(level, cell) & task.bits
    ]
    if len(inside) > 1:
        raise Inconsistent(f"a task in {len(inside)} cells of level {chain.name_of(level)}")
    whole: list[tuple[int, int]] = []
    _whole_cells(chain, level, inside[0], task.bits, whole)
    for part, physical in whole:
        pairs.append(CellPair(part, binding.counterpart(part, physical, owned_level, trail), physical))
    return tuple(pairs)


def _whole_cells(chain: Chain, level: int, cell: int, bits: int, found: list[tuple[int, int]]) -> None:
    """The largest cells that these GPUs consist of."""
    own = chain.bits_of(level, cell)
    if not own & bits:
        return
    if own & bits == own:
        found.append((level, cell))
        return
    for child in chain.children(level, cell):
        _whole_cells(chain, level - 1, child, bits, found)
