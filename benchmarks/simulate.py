"""The simulator on public traces, one core: `python -m benchmarks.simulate [case ...]`; without cases, all of them.

Traces are found in the folder that TOPMAST_TRACES names, else in ../shared/traces beside the checkout. A case whose trace
is not there is left out, and says so. Times are of the run alone: reading the trace and importing are not in them.
Peers' lists run without costs of starting and preempting, as their simulators do.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.measurement import report
from domain.fleet import Fleet
from domain.identifiers import WorkloadId
from domain.tenant import Tenant
from formats.trace import TraceRow
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.fleets import FleetSource, fleet_from, gpus_of_fleet
from simulator.inputs.regions import anywhere, region_gpus_for_load
from simulator.inputs.tenants import tenants_of_trace, unlimited_tenants
from simulator.inputs.trace_files import TraceOptions, read_trace_file
from simulator.policies.policy import Policy
from simulator.policies.registry import policy_called
from simulator.results.figures import figures_of
from simulator.results.run_record import RunRecord

TRACES = Path(os.environ.get("TOPMAST_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
NO_COSTS = SimulationSettings(costs=CostSettings(container_start_s=0.0, checkpoint_save_s=0.0, restore_s=0.0))
WITH_COSTS = SimulationSettings()
BASIC = ("fifo", "srtf", "las")


@dataclass(frozen=True)
class SimulationCase:
    """A trace on a fleet, under one policy after the other."""

    name: str
    trace: str
    fleet: Callable[[Sequence[TraceRow]], Fleet]
    policies: tuple[str, ...]
    settings: SimulationSettings
    budget: str
    repeats: int = 3
    times: int = 1
    """Every workload of the trace so often, a second apart."""


def gpus(count: int) -> Callable[[Sequence[TraceRow]], Fleet]:
    """So many GPUs in one region, eight per machine."""
    return lambda rows: fleet_from(FleetSource(gpus=count))


def regions_at_load(load: float) -> Callable[[Sequence[TraceRow]], Fleet]:
    """The regions of the trace, each as large as its own demand divided by the load."""

    def fleet(rows: Sequence[TraceRow]) -> Fleet:
        sizes = region_gpus_for_load(rows, load, gpus_per_machine=8)
        return fleet_from(FleetSource(region_gpus=tuple((str(name), count) for name, count in sizes)))

    return fleet


CASES = (
    SimulationCase("chronus_5k", "peers/chronus_philly5k.csv.gz", gpus(800), BASIC, NO_COSTS, "5,000 jobs in 0.7 s"),
    SimulationCase(
        "chronus_all", "peers/chronus_philly_all.csv.gz", gpus(1200), BASIC, NO_COSTS, "30,756 jobs in 4 s", 2
    ),
    SimulationCase("philly_fifo", "philly_jobs.csv.gz", gpus(1344), ("fifo",), WITH_COSTS, "77,375 jobs in 10 s", 1),
    SimulationCase(
        "philly_mast", "philly_jobs.csv.gz", gpus(1344), ("mast",), WITH_COSTS, "77,375 jobs in 40 s and 2 GiB", 1
    ),
    SimulationCase(
        "itp_mast", "itp_jobs.csv.gz", regions_at_load(1.0), ("mast",), WITH_COSTS, "42,507 jobs in 40 s", 1
    ),
    *(
        SimulationCase(
            f"scaling_jobs_x{jobs}_fleet_x{fleet}",
            "peers/chronus_philly5k.csv.gz",
            gpus(800 * fleet),
            ("fifo", "las"),
            NO_COSTS,
            "cost grows with events",
            2,
            jobs,
        )
        for jobs, fleet in ((1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (2, 2), (4, 4))
    ),
)


def main(names: Sequence[str]) -> None:
    """Runs the cases of these names, or all."""
    unknown = sorted(set(names) - {case.name for case in CASES})
    if unknown:
        sys.exit(f"no such case: {', '.join(unknown)}; there are {', '.join(case.name for case in CASES)}")
    for case in CASES:
        if names and case.name not in names:
            continue
        if not (TRACES / case.trace).exists():
            print(f"{case.name}: left out, {case.trace} is not in TOPMAST_TRACES", file=sys.stderr)
            continue
        run(case)


def run(case: SimulationCase) -> None:
    """Measures one case, policy by policy."""
    read_s = time.perf_counter()
    rows = read_trace_file(TRACES / case.trace, TraceOptions(gpus_only=True)).rows
    read_s = time.perf_counter() - read_s
    fleet = case.fleet(rows)
    workloads = repeated(anywhere(rows), case.times)
    for name in case.policies:
        policy = policy_called(name)
        tenants = tenants_for(workloads, fleet, scans=policy.scans)
        given = SimulationInput(case.trace, workloads, fleet, tenants)
        simulate(replace(given, rows=workloads[:50]), policy, case.settings, seed=1)  # kernels are loaded
        runs = [timed(given, policy, case.settings) for _ in range(case.repeats)]
        record = runs[-1].record
        least_s = min(run.wall_s for run in runs)
        figures = figures_of(record)
        report(
            f"simulate_{case.name}_{name}",
            {
                "trace": case.trace,
                "workloads": len(workloads),
                "gpus": gpus_of_fleet(fleet),
                "regions": len(fleet.regions),
                "policy": name,
                "attempts": len(record.attempts),
                "events": record.counts.events,
            },
            [run.wall_s for run in runs],
            case.budget,
            {
                "least_s": least_s,
                "least_processor_s": min(run.processor_s for run in runs),
                "events_per_s": round(record.counts.events / least_s),
                "microseconds_per_attempt": round(1e6 * least_s / len(record.attempts), 1),
                "read_s": round(read_s, 3),
                "mean_jct_s": figures.jct_s.mean,
                "preemptions": figures.preemptions,
                "plans": record.counts.plans,
                "scan_passes": record.counts.scan_passes,
            },
        )


@dataclass(frozen=True)
class TimedRun:
    """A run, and how long it took on the wall clock and on the processor."""

    wall_s: float
    processor_s: float
    record: RunRecord


def timed(given: SimulationInput, policy: Policy, settings: SimulationSettings) -> TimedRun:
    """One run."""
    started_s, processor_s = time.perf_counter(), time.process_time()
    record = simulate(given, policy, settings, seed=1)
    return TimedRun(time.perf_counter() - started_s, time.process_time() - processor_s, record)


def tenants_for(rows: Sequence[TraceRow], fleet: Fleet, *, scans: bool) -> tuple[Tenant, ...]:
    """Those of the trace, each with its share of the fleet; without limits under policies that make no scan passes."""
    return tenants_of_trace(rows, gpus_of_fleet(fleet)) if scans else unlimited_tenants(rows)


def repeated(rows: Sequence[TraceRow], times: int) -> tuple[TraceRow, ...]:
    """Every row so often, a second apart, under names of their own."""
    if times == 1:
        return tuple(rows)
    return tuple(
        replace(row, workload_id=WorkloadId(f"{row.workload_id}.{copy}"), submit_s=row.submit_s + copy)
        for row in rows
        for copy in range(times)
    )


if __name__ == "__main__":
    main(sys.argv[1:])
