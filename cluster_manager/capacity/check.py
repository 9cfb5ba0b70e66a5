"""States the invariants of a cluster's capacity: everything derived is computed anew from what is held, and compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cluster_manager.capacity.attempts import (
    END_ENTRY,
    EVICTABLE,
    FIRST_ENTRY,
    LEVEL,
    NO_ATTEMPT,
    PRIORITY,
    SPARED,
    WEIGHT,
    HeldAttempt,
    HeldAttempts,
    order_key,
)
from cluster_manager.capacity.charging import ROW
from cluster_manager.capacity.errors import InvariantBroken
from cluster_manager.capacity.machines import ClusterLayout
from cluster_manager.capacity.tables import (
    ALL_HOLDERS,
    FIRST_GPU,
    GPUS,
    LEAVING_HOLDERS,
    NO_WORK,
    RESOURCES,
    SHAPE,
    WORKS_AS,
    ClusterArrays,
    Integers,
    summarise_racks,
    summarise_totals,
)
from domain.fleet import MachineState


def check_capacity(layout: ClusterLayout, states: Sequence[MachineState], attempts: HeldAttempts) -> None:
    """Raises InvariantBroken when an array disagrees with the holdings, or a machine is over-committed (I1)."""
    arrays = layout.arrays
    takes_work = np.array([state.takes_work for state in states], np.bool_)
    expected = np.where(takes_work, arrays.fixed[:, SHAPE], NO_WORK)
    _compare("the machines that take work", arrays.state[:, WORKS_AS], expected)
    _check_charges(layout, attempts)
    racks = summarise_racks(arrays.state, arrays.fixed, arrays.shapes, len(arrays.rack_free))
    _compare("rack_free", arrays.rack_free, racks)
    _compare("totals", arrays.totals, summarise_totals(arrays.state, arrays.fixed, arrays.shapes))
    _check_attempts(attempts)


def _check_charges(layout: ClusterLayout, attempts: HeldAttempts) -> None:
    arrays = layout.arrays
    capacity = arrays.shapes[arrays.fixed[:, SHAPE]]
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


def _check_free_gpus(arrays: ClusterArrays, gpus_of: Integers, holders: Integers) -> None:
    for number, (gpus, first) in enumerate(zip(gpus_of.tolist(), arrays.fixed[:, FIRST_GPU].tolist(), strict=True)):
        free = sum(1 << gpu for gpu in range(gpus) if holders[first + gpu] == 0)
        if arrays.free_gpus[number] != free:
            raise InvariantBroken(f"the free GPUs of machine number {number} are not {free:b}")


def _check_attempts(attempts: HeldAttempts) -> None:
    arrays = attempts.arrays
    expected = sorted(attempts.by_key.values(), key=lambda live: order_key(live.holding))
    _compare("order", arrays.order[: arrays.live[0]], np.array([live.row for live in expected], np.int64))
    for live in expected:
        stored = (
            *arrays.rows[live.row, PRIORITY : LEVEL + 1].tolist(),
            float(arrays.evictable_from_s[live.row]),
            float(arrays.started_s[live.row]),
            bool(arrays.rows[live.row, SPARED]),
            bool(arrays.rows[live.row, EVICTABLE]),
            int(arrays.rows[live.row, WEIGHT]),
            float(arrays.saved_s[live.row]),
            float(arrays.checkpoint_interval_s[live.row]),
        )
        if attempts.by_row[live.row] is not live or stored != (
            *live.holding.standing,
            live.holding.evictable_from_s,
            live.holding.started_s,
            live.holding.spared,
            not live.leaving,
            live.holding.weight,
            live.holding.unsaved_since_s,
            live.holding.checkpoint_interval_s,
        ):
            raise InvariantBroken(f"the row of {live.holding.key} says {stored}")
        _check_entries(attempts, live)
    in_use = int(np.count_nonzero(arrays.entries[: attempts.used_entries, ROW] != NO_ATTEMPT))
    if in_use != sum(len(live.entries) for live in expected):
        raise InvariantBroken(f"{in_use} entries are in use, more or fewer than the live attempts have")


def _check_entries(attempts: HeldAttempts, live: HeldAttempt) -> None:
    first, end = attempts.span(live)
    if attempts.arrays.rows[live.row, FIRST_ENTRY : END_ENTRY + 1].tolist() != [first, end]:
        raise InvariantBroken(f"the row of {live.holding.key} has its entries elsewhere than at {first} to {end}")
    expected = live.entries.copy()
    expected[:, ROW] = live.row
    _compare(f"entries of {live.holding.key}", attempts.arrays.entries[first:end], expected)


def _compare(name: str, stored: Integers, computed: Integers) -> None:
    if not np.array_equal(stored, computed):
        where = np.argwhere(stored != computed)[:5].tolist() if stored.shape == computed.shape else "all of it"
        raise InvariantBroken(f"{name}: the arrays differ from what is held at {where}")
