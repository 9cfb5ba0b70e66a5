"""How long starts wait by how long an auction round takes, in simulated time: ``python -m benchmarks.auction_latency``.

Two works. A made trace in three regions, where passes follow every change: how long workloads wait until they first work, by the
latency of rounds. And the tail of the queue: thousands of many kinds wait for one GPU model, those that run there last as long
as said, so that room for every kind comes free again and again; timed is until one for an idle model, behind them all, works.
A probe that has not started when the run is broken off counts with the time until then, and is counted apart.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.decision_digests import made_rows, three_regions
from benchmarks.measurement import report
from benchmarks.simulate import NO_COSTS, tenants_for
from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ANY_GPU_MODEL, ClusterId, GpuModel, MachineId, RackId, RegionId, TenantId, WorkloadId
from domain.resources import Quota
from domain.tenant import LOWEST_PRIORITY, Tenant
from formats.trace import TraceRow
from simulator.engine.settings import AuctionRoundSettings, SimulationSettings
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.regions import anywhere
from simulator.policies.registry import policy_called
from simulator.results.run_record import RunRecord

BUDGET = "<= 5 s until a workload with room works, whatever waits before it (design 7)"
BUSY, IDLE = GpuModel("H100"), GpuModel("A100")
MANY, LAST = TenantId("many"), TenantId("last")
LATENCIES_S = (0.05, 0.1, 0.5, 1.0, 5.0)
FOR_GOOD_S = 1e6
PROBES = 20
BETWEEN_PROBES_S = 7.25
END_S = 10.0 + PROBES * BETWEEN_PROBES_S + 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=800, help="of the made trace")
    parser.add_argument("--pending", type=int, default=3_000, help="in front of the tail of the queue")
    parser.add_argument("--kinds", type=int, default=200, help="of what they ask for")
    parser.add_argument("--window", type=int, default=64)
    arguments = parser.parse_args()
    trace_by_latency(arguments.workloads, arguments.window)
    for runs_s in (None, 10.0, 3.0, 1.0, 0.35):
        tail(arguments, runs_s, 0.1)
    tail(arguments, 0.35, 0.25)
    tail(arguments, 3.0, 1.0)


def in_rounds(window: int, latency_s: float | None, stop_after_s: float = 0.0) -> SimulationSettings:
    """Passes after every change; None: not in rounds."""
    rounds = AuctionRoundSettings()
    if latency_s is not None:
        rounds = AuctionRoundSettings(window=window, round_latency_s=latency_s)
    update = {"scan_period_s": 0.0, "auction_rounds": rounds, "stop_after_s": stop_after_s}
    return NO_COSTS.model_copy(update=update)


def trace_by_latency(workloads: int, window: int) -> None:
    """A made trace, at each latency."""
    rows = anywhere(made_rows(workloads, workloads / 200.0)())
    fleet = three_regions(rows)
    tenants = tenants_for(rows, fleet, scans=True)
    for latency_s in (None, 0.0, *LATENCIES_S):
        began_s = time.process_time()
        given = SimulationInput("made", rows, fleet, tenants)
        record = simulate(given, policy_called("mast"), in_rounds(window, latency_s), seed=1)
        report(
            "auction_latency",
            {"trace": "made", "workloads": workloads, "window": window, "round_latency_s": latency_s},
            waits_of(record, record.workloads.ids),
            "none",
            {"processor_s": round(time.process_time() - began_s, 2)},
        )


def tail(arguments: argparse.Namespace, runs_s: float | None, latency_s: float) -> None:
    """The tail of the queue, where what runs before it lasts so long (None: for good)."""
    rows = queue_with_a_tail(arguments.pending, arguments.kinds, runs_s)
    tenants = (Tenant(LAST, LOWEST_PRIORITY, Quota.of({})), Tenant(MANY, 1, Quota.of({ANY_GPU_MODEL: 1_000_000})))
    settings = in_rounds(arguments.window, latency_s, END_S)
    began_s = time.process_time()
    given = SimulationInput("tail", rows, two_regions(), tenants)
    record = simulate(given, policy_called("mast"), settings, seed=1)
    waits = waits_of(record, [f"probe-{number:02}" for number in range(PROBES)])
    started = [
        name
        for name, start in zip(record.workloads.ids, record.workloads.first_started_s, strict=True)
        if start <= END_S
    ]
    report(
        "auction_latency",
        {
            "trace": "tail of the queue",
            "pending": arguments.pending,
            "kinds": arguments.kinds,
            "window": arguments.window,
            "round_latency_s": latency_s,
            "those_before_it_run_s": runs_s,
        },
        waits,
        BUDGET,
        {
            "never_started": PROBES - sum(name.startswith("probe") for name in started),
            "others_started_per_s": round(sum(not name.startswith("probe") for name in started) / END_S, 2),
            "processor_s": round(time.process_time() - began_s, 2),
        },
    )


def queue_with_a_tail(pending: int, kinds: int, runs_s: float | None) -> list[TraceRow]:
    """One of the eight machines of the busy model is for those that last `runs_s`; all others are taken for good."""
    lasts_s = FOR_GOOD_S if runs_s is None else runs_s
    rows = [asks(f"holder-{number}", 0.0, 7, FOR_GOOD_S if number else lasts_s) for number in range(8)]
    rows += [asks(f"pending-{number:05}", 1.0, number % kinds, lasts_s) for number in range(pending)]
    rows += [
        asks(f"further-{number:04}", 2.0 + number / 2, number % kinds, lasts_s) for number in range(int(2 * END_S))
    ]
    for number in range(PROBES):
        at_s = 10.0 + BETWEEN_PROBES_S * number
        rows.append(TraceRow(WorkloadId(f"probe-{number:02}"), LAST, at_s, 1.0, 1, gpu_model=IDLE))
    return rows


def asks(name: str, at_s: float, kind: int, lasts_s: float) -> TraceRow:
    """One of a kind: so many GPUs, CPUs and GiB."""
    gpus, cpus, memory_gib = 1 + kind % 8, 1 + kind // 8 % 12, 1 + kind // 96
    return TraceRow(
        WorkloadId(name),
        MANY,
        at_s,
        lasts_s,
        gpus,
        gpu_model=BUSY,
        cpus=float(cpus * gpus),
        memory_gib=float(memory_gib * gpus),
    )


def two_regions() -> Fleet:
    """Four machines of the busy model in each, and one of the idle one."""

    def cluster(region: str, machines: Sequence[Machine]) -> Region:
        return Region(
            RegionId(region), (Cluster(ClusterId(f"{region}-c"), (Rack(RackId(f"{region}-k"), tuple(machines)),)),)
        )

    east, west = (
        [Machine(MachineId(f"{region}-{number}"), BUSY, 8, 96.0, 512.0) for number in range(4)] for region in ("e", "w")
    )
    return Fleet((cluster("east", east), cluster("west", [*west, Machine(MachineId("idle"), IDLE, 8, 96.0, 512.0)])))


def waits_of(record: RunRecord, names: Sequence[str]) -> list[float]:
    """From the submission of each to its first work, or to the end of the run."""
    rows = [record.workloads.ids.index(name) for name in names]
    starts = np.nan_to_num(record.workloads.first_started_s[rows], nan=record.ended_s, posinf=record.ended_s)
    return [float(wait) for wait in starts - record.workloads.submitted_s[rows]]


if __name__ == "__main__":
    main()
