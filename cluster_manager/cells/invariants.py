"""What must hold of a cluster divided into cells after every change; worked out anew from what is held."""

from __future__ import annotations

from collections.abc import Hashable

from cluster_manager.cells.assignment import assigned_cells
from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.virtual_view import VirtualView
from cluster_manager.cells.work import Work


class CellsOutOfOrder(AssertionError):
    """A state that no sequence of correct changes leads to."""


def check_cells(cells: CellCluster) -> None:
    """Raises CellsOutOfOrder.

    Sharing is safe (invariant 2 of HiveD's proof); nobody has bound more cells than it owns, and each to one physical
    cell of the same level and place; all guaranteed work is within its owner's cells; no GPU has two holders unless all
    but the last are leaving; free cells, counts and bindings are what the work held implies.
    """
    for chain, buddy in zip(cells.chains, cells.buddies, strict=True):
        shortage = buddy.shortage()
        if shortage is not None:
            name = chain.name_of(shortage.level)
            raise CellsOutOfOrder(f"chain {chain.name}, level {name}: {shortage.missing} owed cells cannot be had")
    for view in cells.views.values():
        _check_view(cells, view)
    _check_free_cells(cells)
    _check_holders(cells)


def _check_view(cells: CellCluster, view: VirtualView) -> None:
    chain, binding = view.nodes.chain, view.binding
    bound: list[dict[int, int]] = [{} for _ in range(chain.top + 1)]
    if binding.pinned is not None:
        bound[view.owned_levels[0]][0] = binding.pinned
    for work in _seated(cells, view):
        for pair in (pair for task in work.tasks for pair in task.pairs):
            level, virtual, physical = pair
            top = binding.owned_level(level, virtual)
            while True:
                if bound[level].setdefault(virtual, physical) != physical:
                    raise CellsOutOfOrder(f"{view.key}: virtual cell {virtual} of level {level} is bound twice")
                if level == top:
                    break
                level += 1
                virtual, physical = virtual // chain.splits[level], physical // chain.splits[level]
    for level in range(1, chain.top + 1):
        if binding.bound_cells(level) != bound[level]:
            raise CellsOutOfOrder(f"{view.key}: level {level} is bound otherwise than its work needs")
        if len(set(bound[level].values())) != len(bound[level]):
            raise CellsOutOfOrder(f"{view.key}: two cells of level {level} are bound to one")
    if not view.counts_are_right():
        raise CellsOutOfOrder(f"{view.key}: the counts of free GPUs are wrong")
    held: dict[tuple[int, Hashable], int] = {}
    for node, use in view.uses():
        held[node, use.key] = held.get((node, use.key), 0) | use.bits
    expected: dict[tuple[int, Hashable], int] = {}
    for work in _seated(cells, view):
        for pair in (pair for task in work.tasks for pair in task.pairs):
            node, bits = view.node_of(pair)
            expected[node, work.request.key] = expected.get((node, work.request.key), 0) | bits
    if held != expected:
        raise CellsOutOfOrder(f"{view.key}: GPUs are held otherwise than its work says")


def _seated(cells: CellCluster, view: VirtualView) -> list[Work]:
    return [work for work in cells.work.values() if work.view == view.key]


def _check_free_cells(cells: CellCluster) -> None:
    fresh = assigned_cells(cells.chains, tuple(cells.virtual_clusters.values()))
    for view in cells.views.values():
        buddy = fresh[cells.chains.index(view.nodes.chain)]
        if view.binding.pinned is not None:
            continue
        for level in range(1, buddy.chain.top + 1):
            for virtual, physical in sorted(view.binding.bound_cells(level).items()):
                if view.binding.owned_level(level, virtual) == level:
                    buddy.allocate(level, physical)
                    buddy.owed[level] -= 1
    for buddy, expected in zip(cells.buddies, fresh, strict=True):
        name = buddy.chain.name
        if buddy.layout() != expected.layout() or buddy.free != expected.free:
            raise CellsOutOfOrder(f"chain {name}: {buddy.layout()} is free, and should be {expected.layout()}")
        if buddy.owed != expected.owed or min(buddy.owed) < 0:
            raise CellsOutOfOrder(f"chain {name}: {buddy.owed} cells are owed, and should be {expected.owed}")


def _check_holders(cells: CellCluster) -> None:
    holders: dict[tuple[int, int], list[tuple[int, Work]]] = {}
    for work in cells.work.values():
        for task in work.tasks:
            holders.setdefault((task.chain, task.machine), []).append((task.bits, work))
            if work.view is not None and _bits_of_pairs(cells, task.chain, task.pairs) != task.bits:
                raise CellsOutOfOrder(f"{work.request.key}: its cells are not its GPUs")
    for (chain, machine), of_machine in holders.items():
        staying = [(bits, work) for bits, work in of_machine if not work.leaving]
        for number, (bits, work) in enumerate(staying):
            if any(bits & other for other, _ in staying[:number]):
                name = cells.chains[chain].machines[machine]
                raise CellsOutOfOrder(f"machine {name}: {work.request.key} holds a GPU that another one holds")
    for chain, buddy in enumerate(cells.buddies):
        occupancy = buddy.occupancy
        full = (1 << buddy.chain.gpus_per_machine) - 1
        for machine in range(len(buddy.chain.machines)):
            held = 0
            for bits, _ in holders.get((chain, machine), []):
                held |= bits
            if occupancy.idle[machine] != full & ~held or occupancy.idle_gpus[machine] != (full & ~held).bit_count():
                raise CellsOutOfOrder(f"machine {buddy.chain.machines[machine]}: what is idle is wrong")


def _bits_of_pairs(cells: CellCluster, chain: int, pairs: tuple[tuple[int, int, int], ...]) -> int:
    bits = 0
    for level, _, physical in pairs:
        bits |= cells.chains[chain].bits_of(level, physical)
    return bits
