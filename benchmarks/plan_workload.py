"""Planning one workload in a region as large as MAST's: ``python -m benchmarks.plan_workload [--plans N]``.

A workload is a GPU job and a CPU job of MAST's sizes. Each plan is made and thrown away, so that every one of a series
sees the same region. Timed is the call that the regional scheduler makes, from the workload to the finished plan.
"""

import argparse
import time
from collections import Counter

import numpy as np

from benchmarks.mast_region import NOW_S, RunningRegion, WorkloadSource, mast_region
from benchmarks.measurement import report, summary_of
from domain.eviction import DEFAULT_RULE, EvictionRule, VictimChoice
from domain.plan import Plan
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity

FREE_BUDGET = "p50 <= 0.1 ms, p99 <= 0.5 ms with nothing to evict"
EVICTING_BUDGET = "p50 <= 0.2 ms, p99 <= 1 ms with preemption, 3,000 running workloads"
RUNNING = 3_000
SEED = 1


def measure(
    name: str,
    gpu_share: float,
    cpu_share: float,
    budget: str,
    plans: int,
    *,
    evicting: bool,
    rule: EvictionRule = DEFAULT_RULE,
) -> None:
    """Fills a region to these shares and plans so many workloads there, counting those with (without) evictions."""
    source = WorkloadSource(np.random.default_rng(SEED))
    region = RunningRegion(RegionCapacity(mast_region(), rule=rule), source)
    if cpu_share > 0:
        region.fill_to(gpu_share, cpu_share, round(RUNNING * cpu_share))
    region.inventory.check()
    durations_s: list[float] = []
    processor_s: list[float] = []
    seen: Counter[str] = Counter()
    evictions: list[int] = []
    tasks: list[int] = []
    plan_workload(region.inventory, source.as_in_mast(), source.standing(3), NOW_S, within_quota=False)
    while len(durations_s) < plans and sum(seen.values()) < 20 * plans:
        workload, standing = source.as_in_mast(), source.standing(3)
        began_s, started_s = time.thread_time(), time.perf_counter()
        plan = plan_workload(region.inventory, workload, standing, NOW_S, within_quota=False)
        took_s, worked_s = time.perf_counter() - started_s, time.thread_time() - began_s
        if isinstance(plan, Plan) and bool(plan.evictions) == evicting:
            durations_s.append(took_s)
            processor_s.append(worked_s)
            evictions.append(len(plan.evictions))
            tasks.append(len(plan.placements))
        seen["refused" if not isinstance(plan, Plan) else "evicting" if plan.evictions else "free"] += 1
    gpus_in_use, cpus_in_use = region.shares_in_use()
    work = {
        "clusters": 20,
        "gpu_machines": 2_500,
        "cpu_machines": 64_000,
        "running": region.running,
        "gpus_in_use": round(gpus_in_use, 4),
        "cpus_in_use": round(cpus_in_use, 4),
        "tasks_p50": float(np.median(tasks)),
        "tasks_max": max(tasks),
        "seed": SEED,
    }
    processor = summary_of(processor_s)
    extra = {
        "planned": dict(seen),
        "evictions_mean": round(float(np.mean(evictions)), 2),
        # On a machine that does other things too, the waiting for a processor is not the planner's.
        "processor_p50_s": processor["p50_s"],
        "processor_p99_s": processor["p99_s"],
    }
    report(name, work, durations_s, budget, extra)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the planning of one workload.")
    parser.add_argument("--plans", type=int, default=2_000, help="plans per series")
    plans = parser.parse_args().plans
    measure("plan_workload_idle_region", 0.0, 0.0, FREE_BUDGET, plans, evicting=False)
    measure("plan_workload_half_full", 0.5, 0.5, FREE_BUDGET, plans, evicting=False)
    measure("plan_workload_nearly_full", 0.85, 0.85, FREE_BUDGET, plans, evicting=False)
    for choice in VictimChoice:
        name, rule = f"plan_workload_with_preemption_{choice}", EvictionRule(victims=choice)
        measure(name, 1.0, 1.0, EVICTING_BUDGET, plans, evicting=True, rule=rule)


if __name__ == "__main__":
    main()
