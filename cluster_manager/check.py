"""States the inventory's invariants: everything derived is computed anew from what is held, and compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cluster_manager.attempts import NOBODY, Live, LiveAttempts, order_key
from cluster_manager.errors import InvariantBroken
from cluster_manager.machines import (
    GPUS,
    RESOURCES,
    FleetArrays,
    Integers,
    Layout,
    summarise_clusters,
    summarise_racks,
)
from domain.fleet import MachineState


def check_inventory(layout: Layout, states: Sequence[MachineState], attempts: LiveAttempts) -> None:
    """Raises InvariantBroken when an array disagrees with the holdings, or a machine is over-committed (I1)."""
    machines = layout.arrays.machines
    up = np.array([state is MachineState.UP for state in states], np.bool_)
    _compare("takes_work", machines.takes_work, up)
    _check_charges(layout, attempts)
    _check_summaries(layout.arrays)
    _check_attempts(attempts)


def _check_charges(layout: Layout, attempts: LiveAttempts) -> None:
    machines, shapes = layout.arrays.machines, layout.arrays.shapes
    capacity = shapes.capacity[machines.shape]
    charged = np.zeros_like(machines.free)
    leaving = np.zeros_like(machines.free)
    holders = np.zeros_like(machines.holders)
    leaving_holders = np.zeros_like(machines.holders)
    for live in attempts.by_key.values():
        for placement in live.holding.placements:
            number = layout.number_of_machine[placement.machine]
            amounts = (len(placement.gpu_indices), placement.millicpus, placement.mebibytes)
            charged[number] += amounts
            gpus = [machines.first_gpu[number] + gpu for gpu in placement.gpu_indices]
            holders[gpus] += 1
            if live.leaving:
                leaving[number] += amounts
                leaving_holders[gpus] += 1
    _compare("free", machines.free, capacity - charged)
    _compare("leaving", machines.leaving, leaving)
    _compare("holders", machines.holders, holders)
    _compare("leaving_holders", machines.leaving_holders, leaving_holders)
    for number, gpus in enumerate(capacity[:, GPUS].tolist()):
        first = int(machines.first_gpu[number])
        free = sum(1 << gpu for gpu in range(gpus) if holders[first + gpu] == 0)
        if machines.free_gpus[number] != free:
            raise InvariantBroken(f"free GPUs of machine {layout.machine_ids[number]} are not {free:b}")
    staying = charged - leaving
    over = np.argwhere(staying > capacity)
    if len(over) or np.any(holders - leaving_holders > 1):
        raise InvariantBroken(f"machines are over-committed (machine, resource): {over.tolist()}")


def _check_summaries(arrays: FleetArrays) -> None:
    machines, shapes, clusters = arrays.machines, arrays.shapes, arrays.clusters
    racks = summarise_racks(machines, shapes, arrays.racks.first_machine)
    for name, old, new in zip(racks._fields, arrays.racks, racks, strict=True):
        _compare(f"racks.{name}", old, new)
    anew = summarise_clusters(machines, shapes, clusters.first_rack, clusters.first_machine, clusters.shape_count)
    for name, old, new in zip(anew._fields, clusters, anew, strict=True):
        _compare(f"clusters.{name}", old, new)


def _check_attempts(attempts: LiveAttempts) -> None:
    arrays = attempts.arrays
    expected = sorted(attempts.by_key.values(), key=lambda live: order_key(live.holding))
    _compare("order", arrays.order[: attempts.count], np.array([live.row for live in expected], np.int64))
    for live in expected:
        row = live.row
        stored = (arrays.priority[row], arrays.level[row], arrays.started_s[row], bool(arrays.evictable[row]))
        if attempts.by_row[row] is not live or stored != (
            *live.holding.standing,
            live.holding.started_s,
            not live.leaving,
        ):
            raise InvariantBroken(f"the row of {live.holding.key} says {stored}")
        _check_entries(attempts, live)
    in_use = int(np.count_nonzero(attempts.entries.row[: attempts.used_entries] != NOBODY))
    if in_use != sum(len(live.entries.machine) for live in expected):
        raise InvariantBroken(f"{in_use} entries are in use, more or fewer than the live attempts have")


def _check_entries(attempts: LiveAttempts, live: Live) -> None:
    first, end = attempts.span(live)
    stored = attempts.entries
    _compare("entry machines", stored.machine[first:end], live.entries.machine)
    _compare("entry amounts", stored.amounts[first:end].reshape(-1, RESOURCES), live.entries.amounts)
    _compare("entry GPUs", stored.gpu_bits[first:end], live.entries.gpu_bits)
    _compare("entry clusters", stored.cluster_end[first:end] - first, live.entries.cluster_end)
    _compare("entry rows", stored.row[first:end], np.full(end - first, live.row, np.int64))


def _compare(name: str, stored: Integers | np.ndarray, computed: Integers | np.ndarray) -> None:
    if not np.array_equal(stored, computed):
        where = np.argwhere(stored != computed)[:5].tolist() if stored.shape == computed.shape else "shape"
        raise InvariantBroken(f"{name} differs from what is held at {where}")
