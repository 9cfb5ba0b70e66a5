"""States the inventory's invariants: everything derived is computed anew from what is held, and compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cluster_manager.capacity.attempts import EVICTABLE, LEVEL, NOBODY, PRIORITY, SPARED, Live, LiveAttempts, order_key
from cluster_manager.capacity.charging import CLUSTER_END, ROW
from cluster_manager.capacity.errors import InvariantBroken
from cluster_manager.capacity.machines import (
    ALL_HOLDERS,
    FIRST_GPU,
    GPUS,
    LEAVING_HOLDERS,
    NO_WORK,
    RESOURCES,
    SHAPE,
    WORKS_AS,
    FleetArrays,
    Integers,
    Layout,
    summarise_clusters,
    summarise_racks,
)
from domain.fleet import MachineState


def check_inventory(layout: Layout, states: Sequence[MachineState], attempts: LiveAttempts) -> None:
    """Raises InvariantBroken when an array disagrees with the holdings, or a machine is over-committed (I1)."""
    arrays = layout.arrays
    takes_work = np.array([state.takes_work for state in states], np.bool_)
    expected = np.where(takes_work, arrays.fixed[:, SHAPE], NO_WORK)
    _compare("the machines that take work", arrays.state[:, WORKS_AS], expected)
    _check_charges(layout, attempts)
    racks, clusters = len(arrays.rack_room), len(arrays.cluster_room)
    _compare("rack_room", arrays.rack_room, summarise_racks(arrays.state, arrays.fixed, arrays.shapes, racks))
    anew = summarise_clusters(arrays.state, arrays.fixed, arrays.shapes, clusters)
    _compare("cluster_room", arrays.cluster_room, anew)
    _check_attempts(attempts)


def _check_charges(layout: Layout, attempts: LiveAttempts) -> None:
    arrays = layout.arrays
    capacity = arrays.shapes[arrays.fixed[:, SHAPE], :RESOURCES]
    charged = np.zeros_like(capacity)
    leaving = np.zeros_like(capacity)
    holders = np.zeros_like(arrays.holders)
    for live in attempts.by_key.values():
        for placement in live.holding.placements:
            number = layout.number_of_machine[placement.machine]
            amounts = (len(placement.gpu_indices), placement.millicpus, placement.mebibytes)
            gpus = [arrays.fixed[number, FIRST_GPU] + gpu for gpu in placement.gpu_indices]
            charged[number] += amounts
            holders[gpus, ALL_HOLDERS] += 1
            if live.leaving:
                leaving[number] += amounts
                holders[gpus, LEAVING_HOLDERS] += 1
    _compare("what is free", arrays.state[:, :RESOURCES], capacity - charged)
    _compare("what is leaving", arrays.leaving, leaving)
    _compare("holders", arrays.holders, holders)
    _check_free_gpus(arrays, capacity[:, GPUS], holders[:, ALL_HOLDERS])
    over = np.argwhere(charged - leaving > capacity)
    if len(over) or np.any(holders[:, ALL_HOLDERS] - holders[:, LEAVING_HOLDERS] > 1):
        raise InvariantBroken(f"machines are over-committed (machine, resource): {over.tolist()}")


def _check_free_gpus(arrays: FleetArrays, gpus_of: Integers, holders: Integers) -> None:
    for number, (gpus, first) in enumerate(zip(gpus_of.tolist(), arrays.fixed[:, FIRST_GPU].tolist(), strict=True)):
        free = sum(1 << gpu for gpu in range(gpus) if holders[first + gpu] == 0)
        if arrays.free_gpus[number] != free:
            raise InvariantBroken(f"the free GPUs of machine number {number} are not {free:b}")


def _check_attempts(attempts: LiveAttempts) -> None:
    arrays = attempts.arrays
    expected = sorted(attempts.by_key.values(), key=lambda live: order_key(live.holding))
    _compare("order", arrays.order[: arrays.live], np.array([live.row for live in expected], np.int64))
    for live in expected:
        stored = (
            *arrays.rows[live.row, PRIORITY : LEVEL + 1].tolist(),
            float(arrays.started_s[live.row]),
            float(arrays.evictable_from_s[live.row]),
            bool(arrays.rows[live.row, SPARED]),
            bool(arrays.rows[live.row, EVICTABLE]),
        )
        if attempts.by_row[live.row] is not live or stored != (
            *live.holding.standing,
            live.holding.started_s,
            live.holding.evictable_from_s,
            live.holding.spared,
            not live.leaving,
        ):
            raise InvariantBroken(f"the row of {live.holding.key} says {stored}")
        _check_entries(attempts, live)
    in_use = int(np.count_nonzero(arrays.entries[: attempts.used_entries, ROW] != NOBODY))
    if in_use != sum(len(live.entries) for live in expected):
        raise InvariantBroken(f"{in_use} entries are in use, more or fewer than the live attempts have")


def _check_entries(attempts: LiveAttempts, live: Live) -> None:
    first, end = attempts.span(live)
    expected = live.entries.copy()
    expected[:, CLUSTER_END] += first
    expected[:, ROW] = live.row
    _compare(f"entries of {live.holding.key}", attempts.arrays.entries[first:end], expected)


def _compare(name: str, stored: Integers, computed: Integers) -> None:
    if not np.array_equal(stored, computed):
        where = np.argwhere(stored != computed)[:5].tolist() if stored.shape == computed.shape else "all of it"
        raise InvariantBroken(f"{name}: the arrays differ from what is held at {where}")
