"""Who leaves so that owners have the CPUs and the memory that come with their GPUs.

Rule: of the attempts that are guaranteed nothing on these machines those of the worst standing leave first, of one standing those
without GPUs, then in the order of eviction, each only where something is lacking still and no later one makes up for it. Whatever an owner takes beyond the share of the machine that its GPUs
are, only those leave for it that it may evict by standing. Standing goes before GPUs: where a better one left for what a worse one holds, it
could push the owner out elsewhere, by standing, and all three would go on like that without end.
Invariant: work in cells of a virtual cluster never leaves for what it holds on their machines, and for guests not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.attempts import OrderKey, order_key
from cluster_manager.capacity.charging import MACHINE
from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.tables import MEBIBYTES, MILLICPUS, RESOURCES, Integers
from domain.placement import AttemptKey, Holding


class Candidate(NamedTuple):
    """An attempt that is guaranteed nothing on some machines."""

    holding: Holding
    entries: Integers
    """[machine, as in AttemptArrays] what it takes of these."""
    evictable: bool
    """Whether the owner's job may evict it by standing."""
    of_others: bool
    """Whether it is another tenant's than the owner's job."""


def is_guaranteed(holding: Holding) -> bool:
    """Whether any job of the attempt is in cells of a virtual cluster."""
    return any(not use.downgraded for _, use in holding.cells)


def not_in_its_cells(holding: Holding, capacity: ClusterCapacity) -> Integers:
    """What the attempt takes of machines on which none of its jobs is in cells of a virtual cluster: so it is guaranteed nothing there."""
    entries = capacity.entries_of(holding.key)
    in_cells = {job for job, use in holding.cells if not use.downgraded}
    if not in_cells:
        return entries
    rows = capacity.layout.number_of_machine
    own = {
        row
        for placement in holding.placements
        if placement.job in in_cells and (row := rows.get(placement.machine)) is not None
    }
    return entries[~np.isin(entries[:, MACHINE], sorted(own))]


def attempts_making_room(
    lacking: Mapping[int, Integers], candidates: Sequence[Candidate], owned: Collection[int]
) -> tuple[AttemptKey, ...]:
    """Those that leave so that these machines, by row, lack nothing: as far as there are any.

    On the `owned` machines work of other tenants leaves for the owner, whatever its standing.
    """
    lack = {row: still.copy() for row, still in lacking.items()}
    going: list[tuple[AttemptKey, list[Integers]]] = []
    for holding, entries, evictable, of_others in sorted(candidates, key=_worst_first):
        there = [entry for entry in entries if int(entry[MACHINE]) in lack]
        helps = any(
            (lack[int(entry[MACHINE])][[MILLICPUS, MEBIBYTES]] > 0).any()
            for entry in there
            if evictable or (of_others and int(entry[MACHINE]) in owned)
        )
        if helps:
            going.append((holding.key, there))
            for entry in there:
                lack[int(entry[MACHINE])] -= entry[:RESOURCES]
    return _without_needless(going, lack)


def _without_needless(
    going: Sequence[tuple[AttemptKey, list[Integers]]], lack: dict[int, Integers]
) -> tuple[AttemptKey, ...]:
    """Without those that can stay because others leave, the first to leave first; `lack`: by row, with all of them gone."""
    needed: list[AttemptKey] = []
    for key, there in going:
        for entry in there:
            lack[int(entry[MACHINE])] += entry[:RESOURCES]
        if any((lack[int(entry[MACHINE])][[MILLICPUS, MEBIBYTES]] > 0).any() for entry in there):
            needed.append(key)
            for entry in there:
                lack[int(entry[MACHINE])] -= entry[:RESOURCES]
    return tuple(needed)


def _worst_first(candidate: Candidate) -> tuple[int, int, bool, OrderKey]:
    holding = candidate.holding
    has_gpus = any(placement.gpu_indices for placement in holding.placements)
    return -holding.standing.priority, -holding.standing.level, has_gpus, order_key(holding)
