"""The rows that a log fills in while it is read, and the tables that they become."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from domain.events import EventKind
from domain.fleet import Fleet
from domain.tenant import LOWEST_PRIORITY
from simulator.results.run_record import (
    NO_ROW,
    AttemptEnd,
    AttemptTable,
    Integers,
    MachineTable,
    Reals,
    RunCounts,
    RunRecord,
    ShareTable,
    WorkloadEnd,
    WorkloadTable,
)
from simulator.results.table_making import table_of
from simulator.validation.record_fields import BadField


@dataclass(slots=True, eq=False)
class ShareRow:
    """GPUs of one machine, from a time until another; None: as long as the attempt."""

    machine: int
    gpus: int
    from_s: float
    until_s: float | None = None


@dataclass(slots=True, eq=False)
class WorkloadRow:
    name: str
    tenant: str
    submitted_s: float
    gpus: int
    work_s: float | None
    ranked_priority: int | None = None
    ranked_within_quota: bool = False
    within_quota: bool = False
    """At its first attempt, or as it was last ranked."""
    first_attempt: AttemptRow | None = None
    live: AttemptRow | None = None
    kept: float = 0.0
    """Progress with which the next attempt begins."""
    done_before: float = 0.0
    """What was kept when the log began."""
    first_started_s: float | None = None
    ended_s: float | None = None
    end: WorkloadEnd = WorkloadEnd.QUEUED


@dataclass(slots=True, eq=False)
class AttemptRow:
    workload: WorkloadRow
    number: int
    region: int
    priority: int
    level: int
    dispatched_s: float
    guaranteed: bool
    progress_at_start: float
    started_s: float | None = None
    ended_s: float | None = None
    end: AttemptEnd = AttemptEnd.RUNNING
    evicted_by: str | None = None
    gpus: int = 0
    progress_at_end: float | None = None
    progress_kept: float | None = None
    checkpoint: float | None = None
    speed: float | None = None
    """Seconds of work per second, when it is emulated and runs."""
    speed_since_s: float = 0.0
    progress_then: float = 0.0
    shares: list[ShareRow] = field(default_factory=list)
    changed: bool = False
    """It was resized: its shares have times of their own."""

    def hold(self, gpus_of_machines: dict[int, int], t_s: float) -> None:
        """From now on it holds this, and nothing else."""
        held = {share.machine: share.gpus for share in self.shares if share.until_s is None}
        if held == gpus_of_machines:
            return
        self.changed = self.changed or bool(self.shares)
        self._let_go(t_s)
        self.shares += [ShareRow(machine, gpus, t_s) for machine, gpus in gpus_of_machines.items()]

    def begin(self, gpus_of_machines: dict[int, int]) -> None:
        """It starts, and holds this: what it was dispatched with counts as this too."""
        held = {share.machine: share.gpus for share in self.shares}
        if held != gpus_of_machines:
            self.shares = [ShareRow(machine, gpus, self.dispatched_s) for machine, gpus in gpus_of_machines.items()]

    def works(self, t_s: float, speed: float, progress: float) -> None:
        """It is emulated, and does its work at this speed from now on."""
        self.speed, self.speed_since_s, self.progress_then = speed, t_s, progress

    def progress_at(self, t_s: float) -> float:
        """What it has reached by then: worked out when it is emulated, else what its newest checkpoint says."""
        if self.speed is not None:
            done = self.progress_then + max(0.0, t_s - self.speed_since_s) * self.speed
            return done if self.workload.work_s is None else min(done, self.workload.work_s)
        return self.progress_at_start if self.checkpoint is None else self.checkpoint

    def close(self, t_s: float) -> None:
        """It has ended."""
        self._let_go(t_s)
        self.ended_s = t_s

    def _let_go(self, t_s: float) -> None:
        for share in self.shares:
            if share.until_s is None:
                share.until_s = t_s


class LogTables:
    """All rows of a log so far."""

    def __init__(self, fleet: Fleet) -> None:
        self.workloads: dict[str, WorkloadRow] = {}
        self.attempts: list[AttemptRow] = []
        self.tenant_priority: dict[str, int] = {}
        """Of the tenants that had a workload within quota."""
        self.down_since: dict[int | None, float] = {}
        """By position of the machine; None stands for those without GPUs."""
        self.not_there_because: dict[int | None, set[EventKind]] = {}
        """`machine_down`, `reclaimed` or both: why training does not have these machines."""
        self.downs: list[tuple[int | None, float, float]] = []
        self.last_s = 0.0
        self.stalled = False
        self.not_submitted = 0
        self.demotions = 0
        self.promotions = 0
        self.inference_machines: set[int] = set()
        self.with_cells = frozenset(str(cluster.cluster) for cluster in fleet.clusters_with_cells())
        self._regions = {str(region.region): position for position, region in enumerate(fleet.regions)}
        named = [
            (str(machine.machine), position, machine.gpus)
            for position, region in enumerate(fleet.regions)
            for machine in region.machines()
        ]
        with_gpus = [machine for machine in named if machine[2] > 0]
        self._machines: dict[str, int | None] = dict.fromkeys(name for name, _, _ in named)
        self._machines.update({name: position for position, (name, _, _) in enumerate(with_gpus)})
        self._machine_table = MachineTable(
            names=tuple(name for name, _, _ in with_gpus),
            region=_whole(region for _, region, _ in with_gpus),
            gpus=_whole(gpus for _, _, gpus in with_gpus),
        )

    def region(self, name: str) -> int:
        """Its position; raises BadField when the fleet has none of that name."""
        position = self._regions.get(name)
        if position is None:
            raise BadField(f"names region {name}, which this fleet does not have; is it the fleet file of the run?")
        return position

    def machine(self, name: str) -> int | None:
        """Its position, None when it has no GPUs; raises BadField when the fleet has none of that name."""
        if name not in self._machines:
            raise BadField(f"names machine {name}, which this fleet does not have; is it the fleet file of the run?")
        return self._machines[name]

    def record(self, *, policy: str, trace: str, seed: int) -> RunRecord:
        """The tables. There must be a workload."""
        workloads = sorted(self.workloads.values(), key=lambda row: (row.submitted_s, row.name))
        broken_off = self.not_submitted > 0 or any(row.ended_s is None for row in workloads)
        ended_s = self.last_s if broken_off else max(row.ended_s for row in workloads if row.ended_s is not None)
        tenants = tuple(sorted({row.tenant for row in workloads}))
        positions = {row.name: position for position, row in enumerate(workloads)}
        attempts = sorted(self.attempts, key=lambda row: (row.dispatched_s, positions[row.workload.name], row.number))
        regions = len(self._regions)
        region_gpus = np.bincount(self._machine_table.region, weights=self._machine_table.gpus, minlength=regions)
        downs = self.downs + [(machine, since_s, ended_s) for machine, since_s in self.down_since.items()]
        return RunRecord(
            policy=policy,
            trace=trace,
            seed=seed,
            tenants=tenants,
            regions=tuple(self._regions),
            region_gpus=tuple(int(gpus) for gpus in region_gpus),
            machines=self._machine_table,
            workloads=self._workload_table(workloads, tenants),
            attempts=_attempt_table(attempts, positions, ended_s),
            shares=_share_table(attempts),
            machine_down=_machine_down(downs, ended_s),
            started_s=workloads[0].submitted_s,
            ended_s=ended_s,
            broken_off=broken_off,
            counts=RunCounts(demotions=self.demotions, promotions=self.promotions),
            inference_machines=tuple(sorted(self.inference_machines)),
            stalled=broken_off and self.stalled,
            not_submitted=self.not_submitted,
        )

    def _workload_table(self, rows: Sequence[WorkloadRow], tenants: tuple[str, ...]) -> WorkloadTable:
        places = {tenant: position for position, tenant in enumerate(tenants)}
        return table_of(
            WorkloadTable,
            rows,
            ids=tuple(row.name for row in rows),
            tenant=_whole(places[row.tenant] for row in rows),
            priority=_whole(self._priority(row) for row in rows),
            end=_whole(WorkloadEnd.RUNNING if row.live is not None else row.end for row in rows),
            done_before=_real(row.done_before for row in rows) if any(row.done_before for row in rows) else None,
        )

    def _priority(self, row: WorkloadRow) -> int:
        """Of its first attempt; else its tenant's, as far as the log says; else as it was last ranked."""
        if row.first_attempt is not None:
            return row.first_attempt.priority
        ranked = LOWEST_PRIORITY if row.ranked_priority is None else row.ranked_priority
        return self.tenant_priority.get(row.tenant, ranked)


def _attempt_table(rows: Sequence[AttemptRow], positions: dict[str, int], run_ended_s: float) -> AttemptTable:
    ends = [row.progress_at(run_ended_s) if row.progress_at_end is None else row.progress_at_end for row in rows]
    counts = [len(row.shares) for row in rows]
    return table_of(
        AttemptTable,
        rows,
        workload=_whole(positions[row.workload.name] for row in rows),
        evicted_by=_whole(NO_ROW if row.evicted_by is None else positions.get(row.evicted_by, NO_ROW) for row in rows),
        progress_at_end=_real(ends),
        progress_kept=_real(_kept(row) for row in rows),
        first_share=np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int64),
    )


def _kept(row: AttemptRow) -> float:
    """Of an attempt that still runs: its newest checkpoint."""
    if row.progress_kept is not None:
        return row.progress_kept
    return row.progress_at_start if row.checkpoint is None else row.checkpoint


def _share_table(attempts: Sequence[AttemptRow]) -> ShareTable:
    shares = [(attempt, share) for attempt in attempts for share in attempt.shares]
    machine, gpus = _whole(share.machine for _, share in shares), _whole(share.gpus for _, share in shares)
    if not any(attempt.changed for attempt in attempts):
        return ShareTable(machine, gpus)
    # A share that was there at dispatch, or at the end, is there as long as the attempt holds anything.
    from_s = (None if share.from_s == attempt.dispatched_s else share.from_s for attempt, share in shares)
    until_s = (None if share.until_s == attempt.ended_s else share.until_s for attempt, share in shares)
    return ShareTable(machine, gpus, _real(from_s), _real(until_s))


def _machine_down(
    downs: Iterable[tuple[int | None, float, float]], run_ended_s: float
) -> tuple[tuple[int, float, float], ...]:
    known = [
        (machine, from_s, min(until_s, run_ended_s))
        for machine, from_s, until_s in downs
        if machine is not None and from_s < run_ended_s
    ]
    return tuple(sorted(known, key=lambda down: (down[1], down[0])))


def _whole(values: Iterable[int]) -> Integers:
    return np.fromiter(values, dtype=np.int64)


def _real(values: Iterable[float | None]) -> Reals:
    """None becomes not a number."""
    return np.fromiter((np.nan if value is None else value for value in values), dtype=np.float64)
