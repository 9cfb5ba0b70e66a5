"""Places for opportunistic work (HiveD §3.3): idle GPUs of any owner, farthest from guaranteed work, evicting nothing."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.gang import FreeGpus, find_places
from cluster_manager.cells.nodes import Integers
from cluster_manager.cells.requests import CellRequest
from cluster_manager.cells.task_limits import TaskLimits
from cluster_manager.cells.work import Placement, TaskCells
from domain.identifiers import MachineId


def place_opportunistic(
    cells: CellCluster, request: CellRequest, barred: Collection[MachineId], limits: TaskLimits | None = None
) -> Placement | None:
    """The place on idle GPUs of usable machines that are not barred, within the limits; None where there is none.

    Raises UnknownCells. The cells are as before.
    """
    for chain in cells.chains_for(request):
        free = idle_gpus(cells, chain, barred)
        if limits is not None:
            free = limits.on_machines(chain, free)
        if request.gang.gpus > int(free.counts.sum()):
            continue
        places = find_places(request.gang, free)
        if places is not None:
            tasks = tuple(TaskCells(chain, place.node, place.bits) for place in places)
            return Placement(request, None, tasks, (), (), (), (), cells.revision)
    return None


def idle_gpus(cells: CellCluster, chain: int, barred: Collection[MachineId] = ()) -> FreeGpus:
    """What nothing holds on the machines that take new work, those farthest from guaranteed work ranking first."""
    occupancy = cells.occupancy(chain)
    bits, counts = occupancy.idle.copy(), occupancy.idle_gpus.copy()
    blocked = cells.blocked(chain, barred)
    for machine in occupancy.unusable if blocked is None else blocked:
        bits[machine] = 0
        counts[machine] = 0
    return FreeGpus(cells.machines[chain], bits, counts, closeness(cells, chain))


def closeness(cells: CellCluster, chain: int) -> Integers:
    """[machine] at how many levels from the machine on the cell around it has guaranteed work.

    Who owns the lowest such cell may want more of it: the higher it is, the less likely that is this machine.
    """
    of_chain, occupancy = cells.chains[chain], cells.occupancy(chain)
    close: Integers = np.zeros(len(of_chain.machines), np.int64)
    for level in range(of_chain.machine_level, of_chain.top + 1):
        per_cell = of_chain.sizes[level] // of_chain.gpus_per_machine
        close += np.repeat(occupancy.guaranteed_gpus(level) > 0, per_cell)
    return close
