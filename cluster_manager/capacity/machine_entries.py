"""What placements hold, summed up machine by machine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cluster_manager.capacity.charging import NO_ENTRIES
from cluster_manager.capacity.errors import GpuTaken, UnknownMachine
from cluster_manager.capacity.machine_shapes import MOST_GPUS
from cluster_manager.capacity.tables import GPUS, MEBIBYTES, MILLICPUS, RESOURCES, Integers
from domain.identifiers import ClusterId, MachineId
from domain.placement import TaskPlacement


def entries_of_placements(
    placements: tuple[TaskPlacement, ...], cluster: ClusterId, number_of: Callable[[MachineId], int]
) -> Integers:
    """The placements summed up per machine, in machine order, as in `AttemptArrays`.

    `number_of` gives the row of a machine, or raises UnknownMachine. Raises UnknownMachine for a placement in another
    cluster, and GpuTaken for a GPU that is asked for twice or does not exist.
    """
    if len(placements) == 1:
        return _entry_of(placements[0], cluster, number_of)
    held: dict[int, list[int]] = {}
    for placement in placements:
        number = number_of(placement.machine)
        if placement.cluster != cluster:
            raise UnknownMachine(placement.machine, f"is in cluster {cluster}, not in {placement.cluster}")
        sums = held.setdefault(number, [0] * (RESOURCES + 1))
        sums[GPUS] += len(placement.gpu_indices)
        sums[MILLICPUS] += placement.millicpus
        sums[MEBIBYTES] += placement.mebibytes
        for gpu in placement.gpu_indices:
            if not 0 <= gpu < MOST_GPUS or sums[RESOURCES] >> gpu & 1:
                raise GpuTaken(placement.machine, gpu, "is asked for twice or does not exist")
            sums[RESOURCES] |= 1 << gpu
    if not held:
        return NO_ENTRIES
    rows = [(*held[number][:RESOURCES], number, held[number][RESOURCES], 0) for number in sorted(held)]
    return np.array(rows, np.int64)


def _entry_of(placement: TaskPlacement, cluster: ClusterId, number_of: Callable[[MachineId], int]) -> Integers:
    """The same for one task, which most attempts have."""
    number = number_of(placement.machine)
    if placement.cluster != cluster:
        raise UnknownMachine(placement.machine, f"is in cluster {cluster}, not in {placement.cluster}")
    gpu_bits = 0
    for gpu in placement.gpu_indices:
        if not 0 <= gpu < MOST_GPUS or gpu_bits >> gpu & 1:
            raise GpuTaken(placement.machine, gpu, "is asked for twice or does not exist")
        gpu_bits |= 1 << gpu
    gpus = len(placement.gpu_indices)
    return np.array([(gpus, placement.millicpus, placement.mebibytes, number, gpu_bits, 0)], np.int64)
