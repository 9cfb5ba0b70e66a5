"""What a request takes on each shape of machine: worked out once per request, read for every machine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cluster_manager.compiled import compiled, constant
from cluster_manager.machines import GPUS, MILLICPUS, MODEL, RESOURCES, FleetArrays, Integers, Layout
from cluster_manager.requests import ANY_MODEL, PROPORTIONAL, Request

UNFIT = -1
PREFERRED = constant(0)
LAST_RESORT = constant(1)
"""A machine with GPUs, for a task without."""
MUCH = constant(1 << 62)


class Needs(NamedTuple):
    """What one task of a request takes, per shape of machine."""

    need: Integers  # [shape, resource]
    tier: Integers  # [shape] PREFERRED, LAST_RESORT or UNFIT
    whole_room: Integers  # [shape] tasks that an empty machine holds, at most all of them; 0 where UNFIT
    least: Integers  # [resource] the least that a task needs on any shape that fits; MUCH when none does
    tiers: int  # 1, or 2 when there are machines that are only a last resort
    most_room_first: (
        bool  # whether machines with the most room are taken first, or those left with the fewest idle GPUs
    )


@compiled
def work_out_needs(fleet: FleetArrays, request: Request) -> Needs:
    """What the request needs on each shape of machine of this fleet."""
    shapes = len(fleet.shapes)
    need = np.zeros((shapes, RESOURCES), np.int64)
    tier = np.full(shapes, UNFIT, np.int64)
    whole_room = np.zeros(shapes, np.int64)
    least = np.full(RESOURCES, MUCH, np.int64)
    tiers = 1
    for shape in range(shapes):
        capacity = fleet.shapes[shape]
        need[shape, GPUS] = request.gpus
        for resource in range(MILLICPUS, RESOURCES):
            asked = request.millicpus if resource == MILLICPUS else request.mebibytes
            if asked == PROPORTIONAL:
                asked = capacity[resource] * request.gpus // capacity[GPUS] if capacity[GPUS] > 0 else 0
            need[shape, resource] = asked
        room = request.tasks
        for resource in range(RESOURCES):
            if need[shape, resource] > 0:
                room = min(room, capacity[resource] // need[shape, resource])
        if room == 0 or request.model not in (ANY_MODEL, capacity[MODEL]) or (request.gpus > 0 and capacity[GPUS] == 0):
            continue
        whole_room[shape] = room
        tier[shape] = LAST_RESORT if request.gpus == 0 and capacity[GPUS] > 0 else PREFERRED
        if tier[shape] == LAST_RESORT:
            tiers = 2
        for resource in range(RESOURCES):
            least[resource] = min(least[resource], need[shape, resource])
    return Needs(need, tier, whole_room, least, tiers, request.consolidate or request.gpus == 0)


def needs_of(layout: Layout, request: Request) -> tuple[Integers, Integers]:
    """What one task takes on each shape of machine [shape, resource], and how many tasks it holds when empty [shape].

    The room is 0 on shapes that do not fit.
    """
    needs = work_out_needs(layout.arrays, request)
    return needs.need, needs.whole_room


def room_when_empty(layout: Layout, request: Request) -> tuple[int, ...]:
    """How many tasks each cluster could hold with nothing else on its machines and all of them up, in fleet order."""
    _, whole_room = needs_of(layout, request)
    return tuple((layout.arrays.shape_count @ whole_room).tolist())
