"""What a request takes on each shape of machine: worked out once per request, read for every machine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.machines import GPUS, MILLICPUS, MODEL, RESOURCES, FleetArrays, Integers, Layout
from cluster_manager.capacity.requests import ANY_MODEL, PROPORTIONAL, REQUESTS_REMEMBERED, Request
from cluster_manager.kernels.compiled import compiled, compiled_part, constant

UNFIT = -1
PREFERRED = constant(0)
LAST_RESORT = constant(1)
"""A machine with GPUs, for a task without."""
MUCH = constant(1 << 62)


class Needs(NamedTuple):
    """What one task of a request takes, per shape of machine. Filled by `work_out_needs`."""

    need: Integers  # [shape, resource]
    tier: Integers  # [shape] PREFERRED, LAST_RESORT or UNFIT
    whole_room: Integers  # [shape] tasks that an empty machine holds, at most all of them; 0 where UNFIT
    least: Integers  # [resource] the least that a task needs on any shape that fits; MUCH when none does


@compiled
def new_needs(fleet: FleetArrays) -> Needs:
    """Space for the needs of one request."""
    shapes = len(fleet.shapes)
    return Needs(
        np.empty((shapes, RESOURCES), np.int64),
        np.empty(shapes, np.int64),
        np.empty(shapes, np.int64),
        np.empty(RESOURCES, np.int64),
    )


@compiled_part
def work_out_needs(fleet: FleetArrays, request: Request, needs: Needs) -> int:
    """Fills in the needs; returns the number of tiers: 1, or 2 when there are machines that are only a last resort."""
    for resource in range(RESOURCES):
        needs.least[resource] = MUCH
    tiers = 1
    for shape in range(len(fleet.shapes)):
        room = request.tasks
        for resource in range(RESOURCES):
            capacity = fleet.shapes[shape, resource]
            needs.need[shape, resource] = need_of(fleet, request, shape, resource)
            if needs.need[shape, resource] > 0:
                room = min(room, capacity // needs.need[shape, resource])
        gpus = fleet.shapes[shape, GPUS]
        right_model = request.model in (ANY_MODEL, fleet.shapes[shape, MODEL])
        needs.tier[shape] = UNFIT
        needs.whole_room[shape] = 0
        if room > 0 and right_model and (request.gpus == 0 or gpus > 0):
            needs.whole_room[shape] = room
            needs.tier[shape] = LAST_RESORT if request.gpus == 0 and gpus > 0 else PREFERRED
            tiers = max(tiers, 1 + needs.tier[shape])
            for resource in range(RESOURCES):
                needs.least[resource] = min(needs.least[resource], needs.need[shape, resource])
    return tiers


@compiled_part
def need_of(fleet: FleetArrays, request: Request, shape: int, resource: int) -> int:
    """What one task takes of a resource on a machine of that shape."""
    if resource == GPUS:
        return request.gpus
    asked = request.millicpus if resource == MILLICPUS else request.mebibytes
    if asked != PROPORTIONAL:
        return asked
    gpus = fleet.shapes[shape, GPUS]
    return int(fleet.shapes[shape, resource] * request.gpus // gpus) if gpus > 0 else 0


@compiled
def needs_of_request(fleet: FleetArrays, request: Request) -> Needs:
    """The needs of a request."""
    needs = new_needs(fleet)
    work_out_needs(fleet, request, needs)
    return needs


def needs_of(layout: Layout, request: Request) -> tuple[Integers, Integers]:
    """What one task takes on each shape of machine [shape, resource], and how many tasks it holds when empty [shape].

    The room is 0 on shapes that do not fit.
    """
    needs = needs_of_request(layout.arrays, request)
    return needs.need, needs.whole_room


def room_when_empty(layout: Layout, request: Request) -> tuple[int, ...]:
    """How many tasks each cluster could hold with nothing else on its machines and all of them up, in fleet order."""
    room = layout.empty_rooms.get(request)
    if room is None:
        if len(layout.empty_rooms) >= REQUESTS_REMEMBERED:
            layout.empty_rooms.clear()
        _, whole_room = needs_of(layout, request)
        room = layout.empty_rooms[request] = tuple((layout.arrays.shape_count @ whole_room).tolist())
    return room
