"""A day of a fleet as large as MAST's (§5.1): 20 regions of 20 clusters, 400,000 GPUs, 1,280,000 CPU machines.

The workloads are drawn from MAST's percentiles; each reads tables that two or more regions hold (§5.3), and the
demand is scaled so that there are about 100,000 scheduling attempts in the day: "on average, each workload gets
preempted once". Budget: 10 minutes and 12 GiB on one core.
"""

import sys
import time

import numpy as np

from benchmarks.mast_region import GPU_MACHINES, MODELS, mast_region
from benchmarks.measurement import report
from data_placement.catalog import Catalog
from domain.fleet import Fleet
from simulator.baselines.mast import MAST
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import RunProgress, simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.tables import synthesize_tables
from simulator.results.figures import figures_of
from simulator.workload_generator import GeneratorSettings, Offer, Profile, generate_workloads, tenants_of_profile

REGIONS = 20
WORKLOADS = 120_000
SIZE_FACTOR = 3.0
"""MAST has a quarter of these GPUs: its workloads, three times as large, are more than this fleet can hold."""
DAY_S = 86_400.0


def a_day(regions: int, workloads: int) -> SimulationInput:
    """So many regions, and so many workloads that are submitted within a day."""
    rng = np.random.default_rng(1)
    fleet = Fleet(tuple(mast_region(f"region{number:02}") for number in range(regions)))
    tenants = tenants_of_profile(Profile.MAST, regions * GPU_MACHINES * 8)
    settings = GeneratorSettings(
        workloads,
        DAY_S,
        tenants=tenants,
        offers=tuple(Offer(1.0, model, 512, 400) for model in MODELS),
        checkpoint_s=1800.0,
        greatest_duration_s=3 * DAY_S,
        size_factor=SIZE_FACTOR,
    )
    sizes = [(region.region, GPU_MACHINES * 8) for region in fleet.regions]
    rows, tables = synthesize_tables(list(generate_workloads(settings, rng)), sizes, rng)
    return SimulationInput("mast percentiles", rows, fleet, tenants, catalog=Catalog(tables))


def say(progress: RunProgress) -> bool:
    """Says on standard error how far the day has come."""
    said = f"hour {progress.now_s / 3600:5.1f}  submitted {progress.submitted}  ended {progress.ended}  "
    print(said, file=sys.stderr, end="\r", flush=True)
    return True


def main(regions: int, workloads: int) -> None:
    """Simulates the day."""
    made_s = time.perf_counter()
    given = a_day(regions, workloads)
    made_s = time.perf_counter() - made_s
    started_s = time.perf_counter()
    record = simulate(given, MAST, SimulationSettings(scan_period_s=300.0, stop_after_s=DAY_S), seed=1, watcher=say)
    wall_s = time.perf_counter() - started_s
    figures = figures_of(record)
    report(
        "simulate_hyperscale",
        {
            "regions": regions,
            "clusters": regions * 20,
            "gpus": regions * GPU_MACHINES * 8,
            "machines": regions * 66_500,
            "workloads": workloads,
            "attempts": len(record.attempts),
            "policy": "mast",
            "scan_period_s": 300,
        },
        [wall_s],
        "a day with 100,000 scheduling attempts in 10 minutes and 12 GiB, on one core",
        {
            "inputs_s": round(made_s, 1),
            "events": record.counts.events,
            "scan_passes": record.counts.scan_passes,
            "plans": record.counts.plans,
            "negative_cache_hit_rate": figures.negative_cache_hit_rate,
            "gpu_allocation_rate": figures.gpu_allocation_rate,
            "preemptions": figures.preemptions,
            "completed": figures.completed,
        },
    )


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else REGIONS,
        int(sys.argv[2]) if len(sys.argv) > 2 else WORKLOADS,
    )
