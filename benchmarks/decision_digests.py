"""Digests of everything that is decided, to compare two versions: `python -m benchmarks.decision_digests [case ...]`.

One JSON line per run: the SHA-256 over every decision of its event log (which workload starts where on which GPUs, is evicted by
which, is ranked how, ends when), how many there were, and the time taken. Two versions that decide alike print the
same digests. Cases that need a public trace are left out, and say so, where TOPMAST_TRACES has none.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.simulate import NO_COSTS, TRACES, WITH_COSTS, gpus, regions_at_load, tenants_for
from domain.events import Event, EventKind, JsonValue
from domain.fleet import Fleet
from formats.trace import TraceRow
from regional_scheduler.reclaiming.fewest_workloads import FewestWorkloadsFirst
from regional_scheduler.reclaiming.policy import ReclaimingPolicy
from regional_scheduler.reclaiming.random_machines import RandomMachines
from simulator.engine.settings import FailureSettings, SimulationSettings
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.fleets import FleetSource, fleet_from
from simulator.inputs.loans import LoanSchedule, LoanStep
from simulator.inputs.regions import anywhere
from simulator.inputs.trace_files import TraceOptions, read_trace_file
from simulator.policies.registry import policies, policy_called
from simulator.workload_generator import GeneratorSettings, generate_workloads

DECISIONS = frozenset(
    {
        EventKind.RANKED,
        EventKind.RECLASSIFIED,
        EventKind.DISPATCHED,
        EventKind.STARTED,
        EventKind.EVICTING,
        EventKind.EVICTED,
        EventKind.COMPLETED,
        EventKind.FAILED,
        EventKind.LOANED,
        EventKind.RECLAIMED,
    }
)
DETAILS = ("placement", "credit", "within_quota", "cause", "by", "evicts")
LOANS = frozenset({EventKind.LOANED, EventKind.RECLAIMED})
SLOW = ("gandiva",)
"""An attempt per time slice: half a million decisions for 800 workloads."""


class DecisionDigest:
    """Takes events in, keeps a running hash over the decisions among them."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.decisions = 0

    def take(self, event: Event) -> None:
        """One event of the log."""
        if event.event not in DECISIONS:
            return
        fields: list[JsonValue] = [event.t, event.event.value, event.workload, event.attempt]
        fields += [event.priority, event.level, event.region]
        fields += [event.details.get(name) for name in DETAILS]
        if event.event in LOANS:
            fields.append(event.details["machine"])
        self._hash.update(json.dumps(fields, sort_keys=True).encode())
        self.decisions += 1

    def __str__(self) -> str:
        return self._hash.hexdigest()[:24]


@dataclass(frozen=True)
class DigestCase:
    """Rows on a fleet, under some policies; no policies: under all but SLOW."""

    name: str
    rows: Callable[[], Sequence[TraceRow]]
    fleet: Callable[[Sequence[TraceRow]], Fleet]
    policies: tuple[str, ...]
    settings: SimulationSettings
    trace: str = ""
    loans: Callable[[Fleet], LoanSchedule] | None = None
    reclaiming: ReclaimingPolicy = FewestWorkloadsFirst()


def trace_rows(name: str) -> Callable[[], Sequence[TraceRow]]:
    """The rows of a public trace, each with its GPUs alone."""
    return lambda: read_trace_file(TRACES / name, TraceOptions(gpus_only=True)).rows


def made_rows(workloads: int, days: float) -> Callable[[], Sequence[TraceRow]]:
    """A made trace, the same each time."""
    settings = GeneratorSettings(workloads=workloads, span_s=days * 86_400.0)
    return lambda: tuple(generate_workloads(settings, np.random.default_rng(7)))


def three_regions(_rows: Sequence[TraceRow]) -> Fleet:
    """Three regions of different sizes, with machines without GPUs."""
    return fleet_from(FleetSource(region_gpus=(("east", 512), ("north", 256), ("west", 128)), cpu_machines=24))


def tides(fleet: Fleet) -> LoanSchedule:
    """Every cluster of the regions north and west serves inference; what each lends changes every 20 minutes."""
    rng = np.random.default_rng(11)
    steps = []
    for number in range(600):
        for region in fleet.regions[1:]:
            for cluster in region.clusters:
                machines = sum(1 for _ in cluster.machines())
                steps.append(LoanStep(1200.0 * number, cluster.cluster, int(rng.integers(0, machines + 1))))
    everything = [
        LoanStep(720_000.0, cluster.cluster, sum(1 for _ in cluster.machines()))
        for region in fleet.regions[1:]
        for cluster in region.clusters
    ]
    return LoanSchedule((*steps, *everything))


WITH_FAILURES = SimulationSettings(failures=FailureSettings(machine_mtbf_s=20 * 86_400.0))

CASES = (
    DigestCase("made", made_rows(800, 4.0), three_regions, (), WITH_COSTS),
    DigestCase("made_with_failures", made_rows(400, 4.0), three_regions, ("mast", "las", "fifo"), WITH_FAILURES),
    DigestCase(
        "made_with_loans", made_rows(400, 4.0), three_regions, ("mast", "las", "fifo"), WITH_FAILURES, loans=tides
    ),
    DigestCase(
        "made_with_loans_at_random",
        made_rows(400, 4.0),
        three_regions,
        ("mast", "fifo"),
        WITH_FAILURES,
        loans=tides,
        reclaiming=RandomMachines(),
    ),
    DigestCase(
        "chronus_5k",
        trace_rows("peers/chronus_philly5k.csv.gz"),
        gpus(800),
        ("fifo", "srtf", "las", "mast"),
        NO_COSTS,
        "peers/chronus_philly5k.csv.gz",
    ),
    DigestCase(
        "philly", trace_rows("philly_jobs.csv.gz"), gpus(1344), ("fifo", "mast"), WITH_COSTS, "philly_jobs.csv.gz"
    ),
    DigestCase("itp", trace_rows("itp_jobs.csv.gz"), regions_at_load(1.0), ("mast",), WITH_COSTS, "itp_jobs.csv.gz"),
    DigestCase(
        "venus",
        trace_rows("venus_jobs.csv.gz"),
        gpus(744),
        ("best_effort", "las", "yarn_cs"),
        WITH_COSTS,
        "venus_jobs.csv.gz",
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
        if case.trace and not (TRACES / case.trace).exists():
            print(f"{case.name}: left out, {case.trace} is not in TOPMAST_TRACES", file=sys.stderr)
            continue
        run(case)


def run(case: DigestCase) -> None:
    """Prints one line per policy."""
    rows = case.rows()
    fleet = case.fleet(rows)
    workloads = anywhere(rows)
    for name in case.policies or tuple(name for name in policies() if name not in SLOW):
        policy = replace(policy_called(name), reclaiming=case.reclaiming)
        digest = DecisionDigest()
        started_s, processor_s = time.perf_counter(), time.process_time()
        loans = case.loans(fleet) if case.loans is not None else None
        tenants = tenants_for(workloads, fleet, scans=policy.scans)
        given = SimulationInput(case.name, workloads, fleet, tenants, loans)
        simulate(given, policy, case.settings, seed=1, sink=digest.take)
        line = {
            "case": case.name,
            "policy": name,
            "digest": str(digest),
            "decisions": digest.decisions,
            "wall_s": round(time.perf_counter() - started_s, 1),
            "processor_s": round(time.process_time() - processor_s, 2),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
