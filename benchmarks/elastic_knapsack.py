"""Flexible tasks of elastic jobs by Lyra's knapsack: ``python -m benchmarks.elastic_knapsack``.

354 items and 245 GPUs, the largest instance of Lyra's evaluation (§5.2); and, for growth, ten times as many of both,
and a cluster of thousands of jobs.
Measured are the dynamic program alone and the whole allocation, with the items' values worked out from the demands.
"""

import time

import numpy as np

from benchmarks.measurement import report
from cluster_manager.elastic.allocation import MostReduction
from cluster_manager.elastic.demand import ElasticDemand
from cluster_manager.elastic.knapsack import best_choice
from domain.identifiers import AttemptNumber, WorkloadId
from domain.placement import AttemptKey

ITEMS, GPUS = 354, 245
LARGE_ITEMS, LARGE_GPUS = 22_000, 40_000
"""Of some 4,400 jobs in one cluster."""
REPEATS = 200
BUDGET = "<= 1 ms for 354 items, 245 GPUs"


def demands_of(items: int, rng: np.random.Generator) -> list[ElasticDemand]:
    """Jobs of 2 to 8 base tasks of 1, 2, 4 or 8 GPUs that may double, with so many items beside their base tasks."""
    found: list[ElasticDemand] = []
    left = items
    while left > 0:
        base = min(int(rng.integers(2, 9)), left)
        key = AttemptKey(WorkloadId(f"w{len(found):04d}"), AttemptNumber(1))
        tasks = base + int(rng.integers(0, base + 1))
        remaining_s = float(10 ** rng.uniform(2, 5))
        found.append(ElasticDemand(key, int(rng.choice((1, 2, 4, 8))), base, 2 * base, tasks, remaining_s))
        left -= base
    return found


def measure(items: int, gpus: int, repeats: int) -> None:
    rng = np.random.default_rng(1)
    worlds = [demands_of(items, rng) for _ in range(repeats + 1)]
    knapsack_s: list[float] = []
    whole_s: list[float] = []
    for demands in worlds:
        groups = [demand.items(1.0) for demand in demands]
        began = time.process_time()
        best_choice(groups, gpus)
        knapsack_s.append(time.process_time() - began)
        began = time.process_time()
        MostReduction(1.0)(demands, gpus)
        whole_s.append(time.process_time() - began)
    work = {"items": items, "gpus": gpus, "jobs": len(worlds[0])}
    # The first world is only there to load the kernel.
    report("elastic_knapsack", work, knapsack_s[1:], BUDGET)
    report("elastic_allocation", work, whole_s[1:], BUDGET)


def main() -> None:
    measure(ITEMS, GPUS, REPEATS)
    measure(10 * ITEMS, 10 * GPUS, REPEATS // 10)
    measure(LARGE_ITEMS, LARGE_GPUS, REPEATS // 40)


if __name__ == "__main__":
    main()
