"""The negative cache on a saturated region: ``python -m benchmarks.negative_cache [--trace FILE] [--workloads N]``.

Workloads of a trace (without one, of the generator with MAST's sizes) wait in a queue that is kept long. Each scan pass
clears the cache and passes along the queue once, as the auctions do: what the cache does not refuse is planned, and
placed if there is a plan; victims leave after their grace and wait again. In a second series a pass along the queue
down after every release as well. Every hit is checked against the planner: one that could have been placed ends the
benchmark with an error. Timed is the question to the cache.
"""

import argparse
import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.mast_region import PRIORITY_SHARES
from benchmarks.measurement import report
from domain.fleet import NO_GPU_MODEL, Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import AttemptNumber, ClusterId, GpuModel, MachineId, RackId, RegionId, TenantId, WorkloadId
from domain.placement import AttemptKey, Holding
from domain.plan import Plan
from domain.rank import Standing
from domain.workload import Emulated, Workload
from formats.trace import TraceRow, read_trace
from formats.trace_workload import greatest_gpus_per_machine, workload_of_row
from regional_scheduler.planner import Refusal, plan_workload
from regional_scheduler.refusals.memory import RefusalMemory
from regional_scheduler.region_capacity import RegionCapacity
from simulator.workload_generator import GeneratorSettings, generate_workloads

BUDGET = ">= 80 % hits, and never a placeable workload refused"
SEED = 1
CLUSTERS = 4
GPU_MACHINES = 168
CPU_MACHINES = 2_000
WAITING = 500
SCAN_PASS_S = 300.0
GRACE_S = 30.0
SIZE_FACTOR = 0.25
"""Of the generator's workloads: the region has 1,344 GPUs, MAST's largest 20,000."""


def region() -> Region:
    """1,344 GPUs of one model on 8-GPU machines, and machines without; in four clusters."""
    return Region(
        RegionId("region"),
        tuple(
            Cluster(
                ClusterId(f"c{number}"),
                (
                    *_racks(f"c{number}-gpu", GPU_MACHINES // CLUSTERS, 14, (GpuModel("A100"), 8, 96.0, 1024.0)),
                    *_racks(f"c{number}-cpu", CPU_MACHINES // CLUSTERS, 40, (NO_GPU_MODEL, 0, 64.0, 256.0)),
                ),
            )
            for number in range(CLUSTERS)
        ),
    )


def _racks(name: str, machines: int, size: int, shape: tuple[GpuModel, int, float, float]) -> Iterator[Rack]:
    for first in range(0, machines, size):
        numbers = range(first, min(first + size, machines))
        yield Rack(RackId(f"{name}-{first // size}"), tuple(Machine(MachineId(f"{name}-{n}"), *shape) for n in numbers))


@dataclass(order=True)
class WaitingLots:
    """A workload in the queue, in the order of the queue."""

    standing: Standing
    arrival: int
    workload: Workload = field(compare=False)
    duration_s: float = field(compare=False)
    attempts: int = field(compare=False, default=0)


@dataclass
class Replay:
    """A region that is kept full, on a clock of its own. Counts from when it is full on."""

    arrivals: Iterator[WaitingLots]
    after_every_release: bool
    check_every: int
    inventory: RegionCapacity = field(default_factory=lambda: RegionCapacity(region()))
    cache: RefusalMemory = field(init=False)
    queue: list[WaitingLots] = field(default_factory=list)
    ends: list[tuple[float, int, AttemptKey, WaitingLots]] = field(default_factory=list)
    saturated: bool = False
    lookup_s: list[float] = field(default_factory=list)
    hits: int = 0
    hits_checked: int = 0
    sequence: int = 0
    placed: int = 0
    evicted: int = 0
    refused_by_planner: int = 0
    most_entries: int = 0

    def __post_init__(self) -> None:
        self.cache = RefusalMemory(self.inventory)

    def run(self, workloads: int) -> None:
        """Goes on until so many have been placed."""
        now_s = 0.0
        next_pass_s = 0.0
        while self.placed < workloads:
            if not self.ends or next_pass_s <= self.ends[0][0]:
                now_s, next_pass_s = next_pass_s, next_pass_s + SCAN_PASS_S
                self.queue.extend(islice(self.arrivals, WAITING - len(self.queue)))
                self.cache.clear()
                self._walk(now_s)
                self.saturated = self.saturated or 2 * len(self.queue) > WAITING
                continue
            now_s, _, key, waiting = heapq.heappop(self.ends)
            if self.inventory.holding(key) is None:
                continue
            left = self.inventory.is_leaving(key)
            self.inventory.release(key)
            if left:
                self.queue.append(waiting)
            if self.after_every_release:
                self._walk(now_s)
        self.inventory.check()

    def _walk(self, now_s: float) -> None:
        """Down the queue once."""
        self.queue.sort()
        staying: list[WaitingLots] = []
        for waiting in self.queue:
            started_s = time.perf_counter()
            refused = self.cache.fails(waiting.workload, waiting.standing, within_quota=False)
            took_s = time.perf_counter() - started_s
            if self.saturated:
                self.lookup_s.append(took_s)
                self.hits += refused
            if refused and self.cache.hits % self.check_every:
                staying.append(waiting)
                continue
            self.hits_checked += refused
            plan = plan_workload(self.inventory, waiting.workload, waiting.standing, now_s, within_quota=False)
            if isinstance(plan, Refusal):
                staying.append(waiting)
                if not refused:
                    self._remember(waiting, plan, now_s)
            elif refused:
                raise AssertionError(f"{waiting.workload.workload} could be placed, and the cache refused it")
            else:
                self._carry_out(waiting, plan, now_s)
        self.queue = staying

    def _remember(self, waiting: WaitingLots, refusal: Refusal, now_s: float) -> None:
        self.refused_by_planner += self.saturated
        self.cache.remember(waiting.workload, waiting.standing, refusal, now_s, within_quota=False)
        self.most_entries = max(self.most_entries, len(self.cache))

    def _carry_out(self, waiting: WaitingLots, plan: Plan, now_s: float) -> None:
        by_key = {key: other for _, _, key, other in self.ends}
        for victim in plan.evictions:
            self.inventory.begin_eviction(victim)
            self._end_at(now_s + GRACE_S, victim, by_key[victim])
        waiting.attempts += 1
        key = AttemptKey(waiting.workload.workload, AttemptNumber(waiting.attempts))
        self.inventory.hold(Holding(key, waiting.standing, now_s, plan.placements))
        self._end_at(now_s + waiting.duration_s, key, waiting)
        self.placed += self.saturated
        self.evicted += len(plan.evictions) if self.saturated else 0

    def _end_at(self, end_s: float, key: AttemptKey, waiting: WaitingLots) -> None:
        self.sequence += 1
        heapq.heappush(self.ends, (end_s, self.sequence, key, waiting))


def arrivals(rows: Iterator[TraceRow]) -> Iterator[WaitingLots]:
    """The rows as workloads, one after the other, with priorities by MAST's shares (§4.2)."""
    generator = np.random.default_rng(SEED)
    shares = np.array(PRIORITY_SHARES) / sum(PRIORITY_SHARES)
    gpus_per_machine = greatest_gpus_per_machine(Fleet((region(),)))
    for arrival, row in enumerate(rows):
        specification = workload_of_row(row, gpus_per_machine, tenant=TenantId("tenant"))
        entry_point = specification.jobs[0].entry_point
        if not isinstance(entry_point, Emulated):
            raise TypeError(f"{row.workload_id} is not emulated")
        workload = Workload(WorkloadId(f"{arrival:07}"), specification, 0.0)
        priority = int(generator.choice(len(shares), p=shares))
        yield WaitingLots(Standing(priority, 0), arrival, workload, entry_point.duration_s)


def measure(name: str, trace: Path | None, workloads: int, *, after_every_release: bool) -> None:
    """One series."""
    if trace is None:
        settings = GeneratorSettings(workloads=50 * workloads, span_s=1.0, size_factor=SIZE_FACTOR)
        rows: Iterator[TraceRow] = generate_workloads(settings, np.random.default_rng(SEED))
    else:
        rows = iter(read_trace(trace))
    replay = Replay(arrivals(rows), after_every_release, check_every=20 if after_every_release else 1)
    replay.run(workloads)
    work = {
        "trace": trace.name if trace else f"generated with MAST's sizes times {SIZE_FACTOR}",
        "gpus": 8 * GPU_MACHINES,
        "cpu_machines": CPU_MACHINES,
        "waiting": WAITING,
        "placed": replay.placed,
        "seed": SEED,
    }
    extra = {
        "hits_of_all_asked": round(replay.hits / len(replay.lookup_s), 4),
        "hits_of_all_refused": round(replay.hits / (replay.hits + replay.refused_by_planner), 4),
        "hits_checked_against_the_planner": replay.hits_checked,
        "hits_that_could_have_been_placed": 0,
        "evicted": replay.evicted,
        "most_entries": replay.most_entries,
    }
    report(name, work, replay.lookup_s, BUDGET, extra)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the negative cache.")
    parser.add_argument("--trace", type=Path, help="a trace to replay (CSV, packed or not)")
    parser.add_argument("--workloads", type=int, default=1_000, help="placements per series")
    arguments = parser.parse_args()
    measure("negative_cache_by_scan_pass", arguments.trace, arguments.workloads, after_every_release=False)
    measure("negative_cache_by_release", arguments.trace, arguments.workloads, after_every_release=True)


if __name__ == "__main__":
    main()
