"""Runs to make figures of, without a simulator: a few lines of list scheduling that fill the tables themselves.

Workloads need GPUs of one machine. In the order of the policy each gets the first machine with room; under `urgent`
those of better priority evict worse ones, which keep their work up to the last whole checkpoint.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from simulator.results.run_record import (
    NO_ROW,
    AttemptEnd,
    AttemptTable,
    MachineTable,
    RunCounts,
    RunRecord,
    ShareTable,
    WorkloadEnd,
    WorkloadTable,
)

TENANTS = ("ads", "research", "vision")
REGIONS = ("east", "west")


@dataclass
class SmallRequest:
    """One workload: what is wanted, and how far it is."""

    submitted_s: float
    work_s: float
    gpus: int
    priority: int = 3
    kept: float = 0.0
    attempts: list[dict[str, float]] = field(default_factory=list)
    ended_s: float | None = None


def asked_at_random(
    generator: np.random.Generator, count: int, *, load: float, gpus: int, greatest: int
) -> list[SmallRequest]:
    """A Poisson process of workloads that ask for `load` times those GPUs on average."""
    sizes = np.minimum(2 ** generator.geometric(0.5, count) // 2, greatest)
    works = generator.lognormal(7.0, 1.5, count)
    rate = load * gpus / float((sizes * works).mean())
    submitted = np.cumsum(generator.exponential(1 / rate, count))
    priorities = generator.choice([0, 1, 3, 6], count, p=[0.05, 0.25, 0.4, 0.3])
    return [
        SmallRequest(float(submit), float(work), int(size), int(priority))
        for submit, work, size, priority in zip(submitted, works, sizes, priorities, strict=True)
    ]


def run_of(
    asked: list[SmallRequest],
    *,
    policy: str = "fifo",
    machines: int = 4,
    gpus_per_machine: int = 8,
    seed: int = 0,
    checkpoint_s: float = 100.0,
    until_s: float = float("inf"),
) -> RunRecord:
    """The tables of a run under `fifo`, `sjf` (shortest first) or `urgent` (best priority first, evicting)."""
    return _Run(asked, policy, machines, gpus_per_machine, checkpoint_s).record(seed, until_s)


class _Run:
    def __init__(self, asked: list[SmallRequest], policy: str, machines: int, gpus: int, checkpoint_s: float) -> None:
        self.asked = sorted(asked, key=lambda one: one.submitted_s)
        self.policy, self.gpus, self.checkpoint_s = policy, gpus, checkpoint_s
        self.free = [gpus] * machines
        self.running: list[dict[int, dict[str, float]]] = [{} for _ in range(machines)]
        self.queue: list[tuple[float, int]] = []
        self.ends: list[tuple[float, int, int]] = []
        self.attempts: list[dict[str, float]] = []

    def key(self, position: int) -> float:
        one = self.asked[position]
        return {"fifo": float(position), "sjf": one.work_s, "urgent": float(one.priority)}[self.policy]

    def record(self, seed: int, until_s: float) -> RunRecord:
        arriving, now = 0, self.asked[0].submitted_s
        while arriving < len(self.asked) or self.ends:
            next_s = self.asked[arriving].submitted_s if arriving < len(self.asked) else float("inf")
            now = min(next_s, self.ends[0][0] if self.ends else float("inf"))
            if now > until_s:
                break
            if now == next_s:
                heapq.heappush(self.queue, (self.key(arriving), arriving))
                arriving += 1
            while self.ends and self.ends[0][0] <= now:
                _, position, number = heapq.heappop(self.ends)
                attempt = self.asked[position].attempts[-1]
                if attempt["number"] == number and np.isnan(attempt["ended"]):
                    self.stop(position, now, AttemptEnd.COMPLETED)
                    self.asked[position].ended_s = now
            while self.queue and self.start(self.queue[0][1], now):
                heapq.heappop(self.queue)
        return self.tables(seed, min(until_s, now), arriving)

    def start(self, position: int, now: float) -> bool:
        """On the first machine with room, if need be after evictions."""
        one = self.asked[position]
        machine = next((m for m, free in enumerate(self.free) if free >= one.gpus), None)
        if machine is None and self.policy == "urgent":
            machine = self.make_room(position, now)
        if machine is None:
            return False
        attempt: dict[str, float] = {
            "workload": position, "number": len(one.attempts) + 1, "machine": machine, "dispatched": now,
            "ended": float("nan"), "end": AttemptEnd.RUNNING, "by": NO_ROW, "at_start": one.kept,
            "at_end": float("nan"), "kept": one.kept,
        }  # fmt: skip
        one.attempts.append(attempt)
        self.attempts.append(attempt)
        self.free[machine] -= one.gpus
        self.running[machine][position] = attempt
        heapq.heappush(self.ends, (now + one.work_s - one.kept, position, len(one.attempts)))
        return True

    def make_room(self, position: int, now: float) -> int | None:
        one = self.asked[position]
        for machine, running in enumerate(self.running):
            worse = [other for other in running if self.asked[other].priority > one.priority]
            if self.free[machine] + sum(self.asked[other].gpus for other in worse) < one.gpus:
                continue
            for victim in sorted(worse, key=lambda other: (-self.asked[other].priority, other)):
                if self.free[machine] >= one.gpus:
                    break
                self.stop(victim, now, AttemptEnd.PREEMPTED, position)
                heapq.heappush(self.queue, (self.key(victim), victim))
            return machine
        return None

    def stop(self, position: int, now: float, end: AttemptEnd, by: int = NO_ROW) -> None:
        one = self.asked[position]
        attempt = one.attempts[-1]
        reached = one.work_s if end == AttemptEnd.COMPLETED else attempt["at_start"] + now - attempt["dispatched"]
        since = reached - attempt["at_start"]
        kept = reached if end == AttemptEnd.COMPLETED else reached - since % self.checkpoint_s
        attempt.update(ended=now, end=end, by=by, at_end=reached, kept=kept)
        one.kept = kept
        machine = int(attempt["machine"])
        self.free[machine] += one.gpus
        del self.running[machine][position]

    def tables(self, seed: int, ended_s: float, arrived: int) -> RunRecord:
        asked, attempts, machines = self.asked[:arrived], self.attempts, len(self.free)
        for attempt in attempts:
            if np.isnan(attempt["ended"]):
                attempt["at_end"] = attempt["at_start"] + ended_s - attempt["dispatched"]
        attempts.sort(key=lambda attempt: (attempt["dispatched"], attempt["workload"], attempt["number"]))

        def whole(name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            return np.array([int(attempt[name]) for attempt in attempts], dtype=np.int64)

        def real(name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
            return np.array([attempt[name] for attempt in attempts], dtype=np.float64)

        region = np.arange(machines) % len(REGIONS)
        owner, held = whole("workload"), np.array([one.gpus for one in asked], dtype=np.int64)
        broken_off = any(one.ended_s is None for one in asked)
        return RunRecord(
            policy=self.policy,
            trace="small",
            seed=seed,
            tenants=TENANTS,
            regions=REGIONS,
            region_gpus=tuple(int((region == r).sum()) * self.gpus for r in range(len(REGIONS))),
            machines=MachineTable(
                tuple(f"m{m:03}" for m in range(machines)), region, np.full(machines, self.gpus, dtype=np.int64)
            ),
            workloads=_workload_table(asked),
            attempts=AttemptTable(
                workload=owner,
                number=whole("number"),
                region=region[whole("machine")],
                priority=np.array([asked[w].priority for w in owner], dtype=np.int64),
                level=np.zeros(len(attempts), dtype=np.int64),
                dispatched_s=real("dispatched"),
                started_s=real("dispatched"),
                ended_s=real("ended"),
                end=whole("end"),
                evicted_by=whole("by"),
                gpus=held[owner],
                guaranteed=np.ones(len(attempts), dtype=np.bool_),
                progress_at_start=real("at_start"),
                progress_at_end=real("at_end"),
                progress_kept=real("kept"),
                first_share=np.arange(len(attempts) + 1, dtype=np.int64),
            ),
            shares=ShareTable(whole("machine"), held[owner]),
            machine_down=(),
            started_s=asked[0].submitted_s,
            ended_s=ended_s,
            broken_off=broken_off,
            counts=RunCounts(events=2 * len(attempts), cache_lookups=10, cache_hits=8),
        )


def _workload_table(asked: list[SmallRequest]) -> WorkloadTable:
    nan = float("nan")
    return WorkloadTable(
        ids=tuple(f"w{position:06}" for position in range(len(asked))),
        tenant=np.arange(len(asked)) % len(TENANTS),
        priority=np.array([one.priority for one in asked], dtype=np.int64),
        within_quota=np.array([one.priority < 6 for one in asked], dtype=np.bool_),
        gpus=np.array([one.gpus for one in asked], dtype=np.int64),
        submitted_s=np.array([one.submitted_s for one in asked]),
        work_s=np.array([one.work_s for one in asked]),
        first_started_s=np.array([one.attempts[0]["dispatched"] if one.attempts else nan for one in asked]),
        ended_s=np.array([nan if one.ended_s is None else one.ended_s for one in asked]),
        end=np.array([_end(one) for one in asked], dtype=np.int64),
    )


def _end(one: SmallRequest) -> WorkloadEnd:
    if one.ended_s is not None:
        return WorkloadEnd.COMPLETED
    live = one.attempts and np.isnan(one.attempts[-1]["ended"])
    return WorkloadEnd.RUNNING if live else WorkloadEnd.QUEUED
