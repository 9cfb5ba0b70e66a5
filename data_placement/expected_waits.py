"""How long a workload would wait for hardware in each region: its tables are copied to where it can start first (MAST §4.3).

Rule: what runs in a region and what waits for room there asks for GPUs; beyond the supply every further supply of GPUs takes
one mean run. What could run in several regions asks for equal parts in each.

Ignores: GPU models, priorities, and how long what runs has run already.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from domain.fleet import Fleet
from domain.identifiers import RegionId

MOST_QUEUED = 1_000
"""So many of those that wait for room tell how long one waits in a region."""
MEAN_RUN_S = 3_600.0
"""Of which it is taken that what runs and waits in a region goes on."""


def supplied_gpus(fleet: Fleet) -> dict[RegionId, int]:
    """All GPUs of each region."""
    return {region.region: sum(machine.gpus for machine in region.machines()) for region in fleet.regions}


def expected_waits_s(
    supplied: Mapping[RegionId, int], held: Mapping[RegionId, int], waiting: Iterable[tuple[Sequence[RegionId], int]]
) -> dict[RegionId, float]:
    """Seconds by region with a supply. `held` are GPUs of what runs; `waiting` has, of each workload that waits for room,
    the regions that could run it and its GPUs.
    """
    asked: dict[RegionId, float] = {region: float(gpus) for region, gpus in held.items()}
    for regions, gpus in waiting:
        for region in regions:
            asked[region] = asked.get(region, 0.0) + gpus / len(regions)
    return {
        region: expected_wait_s(asked.get(region, 0.0), float(gpus), MEAN_RUN_S) for region, gpus in supplied.items()
    }


def expected_wait_s(asked_gpus: float, supplied_gpus: float, mean_run_s: float) -> float:
    """How long one more workload waits where so many GPUs are asked for by what runs and what is queued."""
    if supplied_gpus <= 0:
        return 0.0 if asked_gpus <= 0 else math.inf
    return max(0.0, asked_gpus / supplied_gpus - 1.0) * mean_run_s
