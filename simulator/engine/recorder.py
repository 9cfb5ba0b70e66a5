"""Fills the tables of a run while it goes on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from cluster_manager.attempt_run.actions import RecordEnd
from cluster_manager.capacity.charging import MACHINE
from cluster_manager.capacity.tables import GPUS
from domain.events import EvictionCause
from domain.fleet import Fleet, MachineState
from domain.life_cycle import State
from simulator.engine.workloads import SimulatedWorkload
from simulator.results.guaranteed_use import clusters_with_cells, is_guaranteed
from simulator.results.run_record import (
    END_OF_CAUSE,
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

_WORKLOAD_ENDS = MappingProxyType(
    {
        State.PENDING: WorkloadEnd.QUEUED,
        State.WAITING: WorkloadEnd.QUEUED,
        State.AWAITING_DATA: WorkloadEnd.QUEUED,
        State.DISPATCHED: WorkloadEnd.RUNNING,
        State.RUNNING: WorkloadEnd.RUNNING,
        State.PREEMPTING: WorkloadEnd.RUNNING,
        State.COMPLETED: WorkloadEnd.COMPLETED,
        State.FAILED: WorkloadEnd.FAILED,
        State.CANCELLED: WorkloadEnd.CANCELLED,
    }
)


@dataclass(slots=True)
class _AttemptRow:
    """An attempt, as far as it has come."""

    workload: int
    number: int
    region: int
    priority: int
    level: int
    dispatched_s: float
    gpus: int
    progress_at_start: float
    guaranteed: bool
    entries: Integers
    """The inventory's: per machine, what it holds."""
    since_s: float
    """Since when it holds that."""
    before: tuple[tuple[Integers, float, float], ...] = ()
    """If it was resized: what it held, from when, until when."""
    started_s: float = math.nan
    ended_s: float = math.nan
    end: int = AttemptEnd.RUNNING
    evicted_by: int = NO_ROW
    progress_at_end: float = math.nan
    progress_kept: float = math.nan


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run is about."""

    policy: str
    trace: str
    seed: int
    tenants: tuple[str, ...]


class Recorder:
    """Takes note of everything that `RunRecord` holds. Machines are known by region and place in it."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._rows: list[_AttemptRow] = []
        self._refused: list[SimulatedWorkload] = []
        self._first_priority: dict[int, tuple[int, bool]] = {}
        self._first_started_s: dict[int, float] = {}
        self._ended_s: dict[int, float] = {}
        self._down_since: dict[int, float] = {}
        self._down: list[tuple[int, float, float]] = []
        self._tables = _MachineNumbers(fleet)
        self._with_cells = clusters_with_cells(fleet)
        self.demotions = 0
        """How often an attempt came to a worse level."""
        self.promotions = 0
        """How often one that waited was promoted."""

    def dispatched(self, work: SimulatedWorkload, entries: Integers, now: float) -> None:
        """A new attempt. `entries` are the inventory's: per machine, what it holds."""
        work.row = len(self._rows)
        self._first_priority.setdefault(work.index, (work.standing.priority, work.within_quota))
        self._rows.append(
            _AttemptRow(
                work.index,
                work.attempts,
                work.region,
                work.standing.priority,
                work.standing.level,
                now,
                work.gpus,
                work.progress,
                self._is_guaranteed(work),
                entries,
                now,
            )
        )

    def _is_guaranteed(self, work: SimulatedWorkload) -> bool:
        if not self._with_cells:
            return work.guaranteed
        clusters = [str(placement.cluster) for placement in work.placements if placement.gpu_indices]
        return is_guaranteed(work.guaranteed, work.virtual_cluster, clusters, self._with_cells)

    def changed(self, work: SimulatedWorkload, entries: Integers, now: float) -> None:
        """The attempt was resized or retuned: it holds this from now on."""
        row = self._rows[work.row]
        if not np.array_equal(row.entries[:, (MACHINE, GPUS)], entries[:, (MACHINE, GPUS)]):
            row.before = (*row.before, (row.entries, row.since_s, now))
            row.since_s = now
        row.entries = entries

    def started(self, work: SimulatedWorkload, now: float) -> None:
        self._rows[work.row].started_s = now
        self._first_started_s.setdefault(work.index, now)

    def evicted(self, work: SimulatedWorkload, cause: EvictionCause, end: RecordEnd, by: int) -> None:
        """`by`: the workload, by index, that its place was for; NO_ROW when it was for none."""
        row = self._rows[work.row]
        row.ended_s, row.end, row.evicted_by = end.ended_s, END_OF_CAUSE[cause], by
        row.progress_at_end, row.progress_kept = end.progress, end.checkpoint_progress

    def cancelled(self, work: SimulatedWorkload, end: RecordEnd) -> None:
        row = self._rows[work.row]
        row.ended_s, row.end = end.ended_s, AttemptEnd.CANCELLED
        row.progress_at_end = row.progress_kept = end.progress
        self._ended_s[work.index] = end.ended_s

    def completed(self, work: SimulatedWorkload, now: float) -> None:
        row = self._rows[work.row]
        row.ended_s, row.end = now, AttemptEnd.COMPLETED
        row.progress_at_end = row.progress_kept = work.work_s
        self._ended_s[work.index] = now

    def machine_changed(self, region: int, machine: int, state: MachineState, now: float) -> None:
        """The machine at that place of the region is in this state from now on."""
        number = self._tables.number(region, machine)
        if number == NO_ROW:
            return
        if not state.counts_for_training:
            self._down_since.setdefault(number, now)
        elif number in self._down_since:
            self._down.append((number, self._down_since.pop(number), now))

    def record(
        self,
        facts: RunFacts,
        workloads: Sequence[SimulatedWorkload],
        refused: Sequence[bool],
        tenant_priorities: Sequence[int],
        *,
        started_s: float,
        ended_s: float,
        broken_off: bool,
        counts: RunCounts,
    ) -> RunRecord:
        """The tables, after the run. `refused` and `workloads` are by index; those never submitted are left out."""
        for work in workloads:
            if work.row >= 0 and self._rows[work.row].end == AttemptEnd.RUNNING:
                self._rows[work.row].progress_at_end = work.progress_at(ended_s)
                self._rows[work.row].progress_kept = work.checkpoint_at(ended_s)
        attempts, shares = self._attempt_tables()
        down = [*self._down, *((number, since, ended_s) for number, since in self._down_since.items())]
        return RunRecord(
            policy=facts.policy,
            trace=facts.trace,
            seed=facts.seed,
            tenants=facts.tenants,
            regions=tuple(str(region.region) for region in self._fleet.regions),
            region_gpus=tuple(sum(m.gpus for m in region.machines()) for region in self._fleet.regions),
            machines=self._tables.table,
            workloads=self._workload_table(workloads, refused, tenant_priorities),
            attempts=attempts,
            shares=shares,
            machine_down=tuple(sorted(down, key=lambda time: (time[1], time[0]))),
            started_s=started_s,
            ended_s=ended_s,
            broken_off=broken_off,
            counts=counts,
        )

    def _workload_table(
        self, workloads: Sequence[SimulatedWorkload], refused: Sequence[bool], tenant_priorities: Sequence[int]
    ) -> WorkloadTable:
        firsts = [self._first_priority.get(work.index, (tenant_priorities[work.tenant], True)) for work in workloads]
        return table_of(
            WorkloadTable,
            workloads,
            ids=tuple(str(work.workload.workload) for work in workloads),
            priority=_integers([priority for priority, _ in firsts]),
            within_quota=np.array([within for _, within in firsts], dtype=np.bool_),
            gpus=_integers([work.base_gpus for work in workloads]),
            done_before=_reals([work.done_before for work in workloads])
            if any(work.done_before for work in workloads)
            else None,
            first_started_s=_reals([self._first_started_s.get(work.index, math.nan) for work in workloads]),
            ended_s=_reals([self._ended_s.get(work.index, math.nan) for work in workloads]),
            end=_integers(
                [
                    WorkloadEnd.REFUSED if turned_away else _WORKLOAD_ENDS[work.state]
                    for work, turned_away in zip(workloads, refused, strict=True)
                ]
            ),
        )

    def _attempt_tables(self) -> tuple[AttemptTable, ShareTable]:
        rows = self._rows
        spans = [
            (number, *span)
            for number, row in enumerate(rows)
            for span in (*row.before, (row.entries, row.since_s, row.ended_s))
        ]
        held = np.concatenate(
            [entries for _, entries, _, _ in spans] or [np.zeros((0, max(MACHINE, GPUS) + 1), np.int64)]
        )[:, (MACHINE, GPUS)]
        span = np.repeat(np.arange(len(spans)), [len(entries) for _, entries, _, _ in spans])
        with_gpus = held[:, 1] > 0
        held, span = held[with_gpus], span[with_gpus]
        attempt = _integers([number for number, _, _, _ in spans])[span]
        regions = _integers([row.region for row in rows])
        numbers = self._tables.numbers(regions[attempt], held[:, 0])
        lengths = np.bincount(attempt, minlength=len(rows))
        first_share = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        attempts = table_of(AttemptTable, rows, region=regions, first_share=first_share)
        shares = ShareTable(numbers, held[:, 1].copy())
        if len(spans) == len(rows):
            return attempts, shares
        since_s, until_s = _reals([since_s for _, _, since_s, _ in spans]), _reals([end_s for _, _, _, end_s in spans])
        return attempts, replace(shares, from_s=since_s[span], until_s=until_s[span])


class _MachineNumbers:
    """Which row of the table of machines a machine of a region has; those without GPUs have none."""

    def __init__(self, fleet: Fleet) -> None:
        names: list[str] = []
        regions: list[int] = []
        gpus: list[int] = []
        numbers: list[int] = []
        self._first: list[int] = []
        for position, region in enumerate(fleet.regions):
            self._first.append(len(numbers))
            for machine in region.machines():
                numbers.append(len(names) if machine.gpus else NO_ROW)
                if machine.gpus:
                    names.append(str(machine.machine))
                    regions.append(position)
                    gpus.append(machine.gpus)
        self._numbers = _integers(numbers)
        self._starts = _integers(self._first)
        self.table = MachineTable(tuple(names), _integers(regions), _integers(gpus))

    def number(self, region: int, machine: int) -> int:
        return int(self._numbers[self._first[region] + machine])

    def numbers(self, regions: Integers, machines: Integers) -> Integers:
        return self._numbers[self._starts[regions] + machines] if len(machines) else _integers([])


def _integers(values: Sequence[int]) -> Integers:
    return np.array(values, dtype=np.int64)


def _reals(values: Sequence[float]) -> Reals:
    return np.array(values, dtype=np.float64)
