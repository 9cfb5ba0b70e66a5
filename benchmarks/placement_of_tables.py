"""A day's plan of homes and replicas: ``python -m benchmarks.placement_of_tables [--tables N ...] [--regions R]``.

Generated warehouses with the published statistics (seed 1), by hill climbing; the time is the processor's, compiling left
out.
"""

import argparse
import time

import numpy as np

from benchmarks.measurement import report
from data_placement.objective.goals import V2
from data_placement.placement_plan import plan_placement
from data_placement.replicas import ReplicaPolicy
from data_placement.solvers.hill_climbing import HillClimbing
from data_placement.solvers.plan import MoveLimits
from data_placement.warehouse_generator import generate_warehouse

SEED = 1
BUDGET = "Tetris: 1,000,000 tables, 20 regions, 5,000,000 pairs <= 5 min, <= 4 GiB"


def measure(tables: int, regions: int) -> None:
    """One warehouse, planned once: a line of JSON."""
    rng = np.random.default_rng(SEED)
    warehouse = generate_warehouse(tables, regions, rng)
    begun_s = time.process_time()
    plan = plan_placement(warehouse, V2, HillClimbing(), MoveLimits(), ReplicaPolicy(), rng)
    taken_s = time.process_time() - begun_s
    work = {
        "tables": tables,
        "regions": regions,
        "jobs": warehouse.jobs.count,
        "pairs": len(warehouse.jobs.tables),
        "seed": SEED,
    }
    reached = {
        "cost_before": plan.before.total,
        "cost_after": plan.after.total,
        "overload_before": plan.before.overload,
        "overload_after": plan.after.overload,
        "overload_deviation_before": plan.before.overload_deviation,
        "overload_deviation_after": plan.after.overload_deviation,
        "home_training_rate": plan.after.home_training_rate,
        "collocation_rate": plan.after.collocation_rate,
        "moves": len(plan.solution.moves.table),
    }
    report("placement_of_tables", work, [taken_s], BUDGET, reached)


def main() -> None:
    """Compiles with a small warehouse, then measures each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--regions", type=int, default=20)
    arguments = parser.parse_args()
    small = generate_warehouse(100, 3, np.random.default_rng(SEED))
    plan_placement(small, V2, HillClimbing(), MoveLimits(), ReplicaPolicy(), np.random.default_rng(SEED))
    for tables in arguments.tables:
        measure(tables, arguments.regions)


if __name__ == "__main__":
    main()
