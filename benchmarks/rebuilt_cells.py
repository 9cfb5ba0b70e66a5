"""A whole cluster of cells written down and rebuilt from that, in one piece: mechanisms do it attempt by attempt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.hierarchy import Chain
from cluster_manager.cells.rebuild import CellHolding, HeldTask, restored, seat_all
from cluster_manager.cells.work import Work
from domain.cells import VirtualCluster
from domain.identifiers import MachineId


def holdings(cells: CellCluster) -> tuple[CellHolding, ...]:
    """What is to be written down, in the order in which it came."""
    return tuple(_holding(cells, work) for work in cells.work.values())


def _holding(cells: CellCluster, work: Work) -> CellHolding:
    seated = work.view is not None
    known = len(work.owned_levels) == len(work.tasks)
    levels: Sequence[str | None] = work.owned_levels if known else [None] * len(work.tasks)
    tasks = tuple(
        HeldTask(cells.chains[task.chain].machines[task.machine], task.bits, level, task.pairs if seated else ())
        for task, level in zip(work.tasks, levels, strict=True)
    )
    chain = cells.chains[work.tasks[0].chain].name if work.tasks else ""
    return CellHolding(work.request, chain, tasks, work.leaving, work.downgraded)


def rebuilt(
    chains: Sequence[Chain],
    virtual_clusters: Sequence[VirtualCluster],
    held: Iterable[CellHolding],
    unusable: Iterable[MachineId] = (),
) -> CellCluster:
    """The cluster in which all this is held. Work whose cells are not there any more is downgraded, never left out.

    Tasks on machines that are in no chain hold nothing. Raises AssignmentProblem.
    """
    cells = CellCluster(chains, virtual_clusters)
    seats = [(restored(cells, holding), holding) for holding in held]
    seat_all(cells, seats)
    for machine in unusable:
        cells.set_usable(machine, usable=False)
    return cells
