"""Looks back at an eviction: could any one victim have stayed where it is (I15)? For checking, never for deciding.

Asked once the newcomer is charged and its victims are leaving. A victim is needless if the newcomer's machines could
give it everything with all the other victims gone and this one left. Only newcomers of one job are looked at: jobs
that share machines may need a victim although these very places do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cluster_manager.capacity.charging import MACHINE
from cluster_manager.capacity.tables import RESOURCES
from domain.placement import AttemptKey
from domain.plan import Plan
from regional_scheduler.region_capacity import RegionCapacity


def needless_victims(region: RegionCapacity, newcomer: AttemptKey, plan: Plan) -> tuple[AttemptKey, ...]:
    """The victims of the plan, which was just applied for the newcomer, without any one of which it would have fitted."""
    victims = plan.evictions
    if not victims or len({placement.job for placement in plan.placements}) != 1:
        return ()
    machines = [int(machine) for machine in region.entries_of(newcomer)[:, MACHINE]]
    row_of = {machine: row for row, machine in enumerate(machines)}
    held = np.zeros((len(victims), len(machines), RESOURCES), np.int64)
    for number, victim in enumerate(victims):
        for entry in region.entries_of(victim):
            row = row_of.get(int(entry[MACHINE]))
            if row is not None:
                held[number, row] += entry[:RESOURCES]
    # What is free when all victims are gone; negative where others are leaving whose place is promised already.
    free = region.free_on(machines) + held.sum(axis=0)
    return tuple(victim for number, victim in enumerate(victims) if (free - held[number] >= 0).all())


def needless_eviction(newcomer: AttemptKey, needless: Sequence[AttemptKey]) -> str:
    """What is told of them."""
    names = ", ".join(f"attempt {victim.attempt} of {victim.workload}" for victim in needless)
    return f"{newcomer.workload} evicts {names}, but would fit in its places with one of them left where it is"
