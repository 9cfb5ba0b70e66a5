"""Kernels for the locality part of a plan's score: spread and fragmentation of one job's place."""

from __future__ import annotations

import numpy as np

from cluster_manager.compiled import compiled
from cluster_manager.machines import GPUS, MILLICPUS, FleetArrays
from cluster_manager.needs import Needs
from cluster_manager.packing import Choice
from cluster_manager.requests import Request

RACK_WEIGHT = 1_000_000
"""Of a rack in the spread: more than any number of machines, so that racks count first."""


@compiled
def sort_choice(choice: Choice, count: int) -> None:
    """Puts the chosen machines into machine order."""
    order = np.argsort(choice.machine[:count], kind="mergesort")
    choice.machine[:count] = choice.machine[:count][order]
    choice.tasks[:count] = choice.tasks[:count][order]


@compiled
def spread_of(fleet: FleetArrays, request: Request, choice: Choice, count: int) -> int:
    """For a job to be consolidated: RACK_WEIGHT for every rack beyond one, 1 for every machine beyond one; else 0.

    The machines must be in machine order.
    """
    if not request.consolidate:
        return 0
    racks = 1
    for position in range(1, count):
        if fleet.machines.rack[choice.machine[position]] != fleet.machines.rack[choice.machine[position - 1]]:
            racks += 1
    return (racks - 1) * RACK_WEIGHT + count - 1


@compiled
def fragmentation_of(fleet: FleetArrays, needs: Needs, request: Request, choice: Choice, count: int) -> float:
    """What the place would leave in pieces; nothing of it is charged yet.

    For a job with GPUs: the GPUs left idle on the machines that it uses. For a job without: the share of CPUs left
    idle on the machines that it uses, on average over them, in whole millionths (below 1, or 1 when it takes none),
    plus all GPUs of the machines with GPUs among them (at least 1 each).
    """
    gpus = 0
    millionths = 0
    for position in range(count):
        machine = choice.machine[position]
        shape = fleet.machines.shape[machine]
        tasks = choice.tasks[position]
        if request.gpus > 0:
            gpus += fleet.machines.free[machine, GPUS] - tasks * request.gpus
            continue
        capacity = fleet.shapes.capacity[shape]
        gpus += capacity[GPUS]
        if capacity[MILLICPUS] > 0:
            left = fleet.machines.free[machine, MILLICPUS] - tasks * needs.need[shape, MILLICPUS]
            # Integers, so that the order of the machines cannot show in the last digits.
            millionths += max(left, 0) * 1_000_000 // capacity[MILLICPUS]
    return gpus + millionths // count / 1_000_000
