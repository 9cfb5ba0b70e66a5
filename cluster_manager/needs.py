"""What a request takes on each shape of machine: worked out once per request, read for every machine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cluster_manager.compiled import compiled
from cluster_manager.machines import GPUS, MILLICPUS, RESOURCES, FleetArrays, Integers, Layout
from cluster_manager.requests import ANY_MODEL, PROPORTIONAL, Request

UNFIT = -1
PREFERRED = 0
LAST_RESORT = 1
"""A machine with GPUs, for a task without."""
MUCH = 1 << 62


class Needs(NamedTuple):
    """What one task of a request takes, per shape of machine. Filled by `work_out_needs`."""

    need: Integers  # [shape, resource]
    tier: Integers  # [shape] PREFERRED, LAST_RESORT or UNFIT
    whole_room: Integers  # [shape] tasks that a machine holds when nothing else is on it
    least: Integers  # [resource] the least that a task needs on any shape that fits


@compiled
def work_out_needs(fleet: FleetArrays, request: Request, needs: Needs) -> int:
    """Fills `needs`; returns the number of tiers: 1, or 2 when machines with GPUs are only a last resort."""
    shapes = fleet.shapes
    for resource in range(RESOURCES):
        needs.least[resource] = MUCH
    tiers = 1
    for shape in range(len(shapes.model)):
        capacity = shapes.capacity[shape]
        needs.need[shape, GPUS] = request.gpus
        for resource in range(MILLICPUS, RESOURCES):
            asked = request.millicpus if resource == MILLICPUS else request.mebibytes
            if asked == PROPORTIONAL:
                asked = capacity[resource] * request.gpus // capacity[GPUS] if capacity[GPUS] > 0 else 0
            needs.need[shape, resource] = asked
        room = request.tasks
        for resource in range(RESOURCES):
            if needs.need[shape, resource] > 0:
                room = min(room, capacity[resource] // needs.need[shape, resource])
        needs.whole_room[shape] = room
        right_model = request.model == ANY_MODEL or request.model == shapes.model[shape]
        if room == 0 or not right_model or (request.gpus > 0 and capacity[GPUS] == 0):
            needs.tier[shape] = UNFIT
            continue
        needs.tier[shape] = LAST_RESORT if request.gpus == 0 and capacity[GPUS] > 0 else PREFERRED
        if needs.tier[shape] == LAST_RESORT:
            tiers = 2
        for resource in range(RESOURCES):
            needs.least[resource] = min(needs.least[resource], needs.need[shape, resource])
    return tiers


def new_needs(fleet: FleetArrays) -> Needs:
    """Room for what `work_out_needs` fills in."""
    shapes = len(fleet.shapes.model)
    return Needs(
        need=np.zeros((shapes, RESOURCES), np.int64),
        tier=np.zeros(shapes, np.int64),
        whole_room=np.zeros(shapes, np.int64),
        least=np.zeros(RESOURCES, np.int64),
    )


def needs_of(layout: Layout, request: Request) -> tuple[Integers, Integers]:
    """What one task takes on each shape of machine [shape, resource], and how many tasks it holds when empty [shape].

    The room is 0 on shapes that do not fit.
    """
    needs = new_needs(layout.arrays)
    work_out_needs(layout.arrays, request, needs)
    return needs.need, np.where(needs.tier == UNFIT, 0, needs.whole_room)


def room_when_empty(layout: Layout, request: Request) -> tuple[int, ...]:
    """How many tasks each cluster could hold with nothing else on its machines and all of them up, in fleet order."""
    _, whole_room = needs_of(layout, request)
    return tuple((layout.arrays.clusters.shape_count @ whole_room).tolist())
