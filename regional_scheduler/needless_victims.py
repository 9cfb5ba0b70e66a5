"""Looks back at an eviction: could any one victim have stayed where it is (I15)? For checking, never for deciding.

Asked once the newcomer is charged and its victims are leaving. A victim is needless if the newcomer's machines could
give it everything with all the other victims gone and this one left. Only newcomers of one job are looked at: jobs
that share machines may need a victim although these very places do not. In cells of a virtual cluster a place is its
very GPUs, for those beside them are other cells; and a victim in the same chain of the
same virtual cluster may leave for its cells, wherever these are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cluster_manager.capacity.charging import GPU_BITS, MACHINE
from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.tables import RESOURCES, Integers
from domain.identifiers import VirtualClusterId
from domain.placement import AttemptKey, Holding
from domain.plan import Plan
from regional_scheduler.region_capacity import RegionCapacity


def needless_victims(region: RegionCapacity, newcomer: AttemptKey, plan: Plan) -> tuple[AttemptKey, ...]:
    """The victims of the plan, which was just applied for the newcomer, without any one of which it would have fitted."""
    victims = plan.evictions
    if not victims or len({placement.job for placement in plan.placements}) != 1:
        return ()
    needless = np.ones(len(victims), np.bool_)
    for cluster in region.clusters:
        if cluster.holding(newcomer) is not None:
            needless &= _left_enough(cluster, newcomer, victims)
    return tuple(victim for victim, alone in zip(victims, needless.tolist(), strict=True) if alone)


def _left_enough(cluster: ClusterCapacity, newcomer: AttemptKey, victims: Sequence[AttemptKey]) -> NDArray[np.bool_]:
    """For each victim, whether the newcomer would have enough on its machines here with that one left and the others gone."""
    machines = cluster.entries_of(newcomer)[:, MACHINE]
    held = np.zeros((len(victims), len(machines), RESOURCES), np.int64)
    for number, victim in enumerate(victims):
        if cluster.holding(victim) is not None:
            entries = cluster.entries_of(victim)
            rows, places = np.nonzero(machines[:, None] == entries[:, MACHINE])
            held[number, rows] = entries[places, :RESOURCES]
    # What is free when all victims are gone; negative where others are leaving whose place is promised already.
    free = cluster.arrays.state[machines, :RESOURCES] + held.sum(axis=0)
    enough: NDArray[np.bool_] = (free - held >= 0).all(axis=(1, 2))
    holding = cluster.holding(newcomer)
    if holding is not None and holding.cells:
        entries, owned = cluster.entries_of(newcomer), _owned_chains(holding)
        enough &= [
            not (_holds_any(cluster, victim, entries) or owned & _owned_chains(cluster.holding(victim)))
            for victim in victims
        ]
    return enough


def _owned_chains(holding: Holding | None) -> set[tuple[VirtualClusterId, str]]:
    """The virtual clusters of which the attempt uses cells, with the chains that these are in."""
    cells = () if holding is None else holding.cells
    return {(use.virtual_cluster, use.chain) for _, use in cells if not use.downgraded}


def _holds_any(cluster: ClusterCapacity, attempt: AttemptKey, entries: Integers) -> bool:
    """Whether the attempt holds any of the GPUs in these entries."""
    if cluster.holding(attempt) is None:
        return False
    bits_on = {int(entry[MACHINE]): int(entry[GPU_BITS]) for entry in entries}
    return any(bits_on.get(int(entry[MACHINE]), 0) & int(entry[GPU_BITS]) for entry in cluster.entries_of(attempt))


def needless_eviction(newcomer: AttemptKey, needless: Sequence[AttemptKey]) -> str:
    """The sentence about them."""
    names = ", ".join(f"attempt {victim.attempt} of {victim.workload}" for victim in needless)
    return f"{newcomer.workload} evicts {names}, but would fit in its places with one of them left where it is"
