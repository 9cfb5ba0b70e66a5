"""Fills the tables of a run while it goes on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from cluster_manager.attempt_run.actions import RecordEnd
from cluster_manager.capacity.charging import MACHINE
from cluster_manager.capacity.tables import GPUS
from domain.events import EvictionCause
from domain.fleet import Fleet, MachineState
from domain.life_cycle import State
from simulator.engine.workloads import SimulatedWorkload
from simulator.results.guaranteed_use import is_guaranteed
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


class _AttemptColumns:
    """The attempts, as far as they have come: lists that are named as the columns of `AttemptTable`."""

    __slots__ = (
        "dispatched_s",
        "end",
        "ended_s",
        "evicted_by",
        "gpus",
        "guaranteed",
        "level",
        "number",
        "priority",
        "progress_at_end",
        "progress_at_start",
        "progress_kept",
        "region",
        "started_s",
        "workload",
    )

    def __init__(self) -> None:
        self.workload: list[int] = []
        self.number: list[int] = []
        self.region: list[int] = []
        self.priority: list[int] = []
        self.level: list[int] = []
        self.dispatched_s: list[float] = []
        self.gpus: list[int] = []
        self.guaranteed: list[bool] = []
        self.progress_at_start: list[float] = []
        self.started_s: list[float] = []
        self.ended_s: list[float] = []
        self.end: list[int] = []
        self.evicted_by: list[int] = []
        self.progress_at_end: list[float] = []
        self.progress_kept: list[float] = []

    def __len__(self) -> int:
        return len(self.workload)

    def add(self, work: SimulatedWorkload, now: float, *, guaranteed: bool) -> None:
        """One more attempt, the workload's present one."""
        priority, level = work.standing
        self.workload.append(work.index)
        self.number.append(work.attempts)
        self.region.append(work.region)
        self.priority.append(priority)
        self.level.append(level)
        self.dispatched_s.append(now)
        self.gpus.append(work.gpus)
        self.guaranteed.append(guaranteed)
        self.progress_at_start.append(work.progress)
        self.started_s.append(math.nan)
        self.ended_s.append(math.nan)
        self.end.append(AttemptEnd.RUNNING)
        self.evicted_by.append(NO_ROW)
        self.progress_at_end.append(math.nan)
        self.progress_kept.append(math.nan)

    def finish(self, row: int, end: AttemptEnd, ended_s: float, progress: float, kept: float) -> None:
        """The attempt in this row has ended."""
        self.ended_s[row], self.end[row] = ended_s, end
        self.progress_at_end[row], self.progress_kept[row] = progress, kept

    def table(self, first_share: Integers) -> AttemptTable:
        """The same as a table."""
        return AttemptTable(
            workload=_integers(self.workload),
            number=_integers(self.number),
            region=_integers(self.region),
            priority=_integers(self.priority),
            level=_integers(self.level),
            dispatched_s=_reals(self.dispatched_s),
            started_s=_reals(self.started_s),
            ended_s=_reals(self.ended_s),
            end=_integers(self.end),
            evicted_by=_integers(self.evicted_by),
            gpus=_integers(self.gpus),
            guaranteed=np.array(self.guaranteed, np.bool_),
            progress_at_start=_reals(self.progress_at_start),
            progress_at_end=_reals(self.progress_at_end),
            progress_kept=_reals(self.progress_kept),
            first_share=first_share,
        )


class _Spans(NamedTuple):
    """What attempts held from one time to another; one element per span in each list."""

    row: list[int]
    """The attempt's."""
    entries: list[Integers]
    """The inventory's: per machine, what it held."""
    since_s: list[float]
    until_s: list[float]


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
        self._attempts = _AttemptColumns()
        self._entries: list[Integers] = []
        """What each attempt holds, or held at its end: the inventory's, per machine."""
        self._since_s: list[float] = []
        """Since when it holds that."""
        self._before = _Spans([], [], [], [])
        """What attempts held before they were resized, in order of time."""
        self._refused: list[SimulatedWorkload] = []
        self._first_priority: dict[int, tuple[int, bool]] = {}
        self._first_started_s: dict[int, float] = {}
        self._ended_s: dict[int, float] = {}
        self._down_since: dict[int, float] = {}
        self._down: list[tuple[int, float, float]] = []
        self._tables = _MachineNumbers(fleet)
        self._with_cells = frozenset(str(cluster.cluster) for cluster in fleet.clusters_with_cells())
        self.demotions = 0
        """How often an attempt came to a worse level."""
        self.promotions = 0
        """How often one that waited was promoted."""

    def dispatched(self, work: SimulatedWorkload, entries: Integers, now: float) -> None:
        """A new attempt. `entries` are the inventory's: per machine, what it holds."""
        work.row = len(self._attempts)
        self._first_priority.setdefault(work.index, (work.standing.priority, work.within_quota))
        self._attempts.add(work, now, guaranteed=self._is_guaranteed(work))
        self._entries.append(entries)
        self._since_s.append(now)

    def _is_guaranteed(self, work: SimulatedWorkload) -> bool:
        if not self._with_cells:
            return work.guaranteed
        clusters = [str(placement.cluster) for placement in work.placements if placement.gpu_indices]
        return is_guaranteed(work.guaranteed, work.virtual_cluster, clusters, self._with_cells)

    def changed(self, work: SimulatedWorkload, entries: Integers, now: float) -> None:
        """The attempt was resized or retuned: it holds this from now on."""
        row, before = work.row, self._before
        if not np.array_equal(self._entries[row][:, (MACHINE, GPUS)], entries[:, (MACHINE, GPUS)]):
            before.row.append(row)
            before.entries.append(self._entries[row])
            before.since_s.append(self._since_s[row])
            before.until_s.append(now)
            self._since_s[row] = now
        self._entries[row] = entries

    def started(self, work: SimulatedWorkload, now: float) -> None:
        self._attempts.started_s[work.row] = now
        self._first_started_s.setdefault(work.index, now)

    def evicted(self, work: SimulatedWorkload, cause: EvictionCause, end: RecordEnd, by: int) -> None:
        """`by`: the workload, by index, that its place was for; NO_ROW when it was for none."""
        self._attempts.finish(work.row, END_OF_CAUSE[cause], end.ended_s, end.progress, end.checkpoint_progress)
        self._attempts.evicted_by[work.row] = by

    def cancelled(self, work: SimulatedWorkload, end: RecordEnd) -> None:
        self._attempts.finish(work.row, AttemptEnd.CANCELLED, end.ended_s, end.progress, end.progress)
        self._ended_s[work.index] = end.ended_s

    def completed(self, work: SimulatedWorkload, now: float) -> None:
        self._attempts.finish(work.row, AttemptEnd.COMPLETED, now, work.work_s, work.work_s)
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
        attempted = self._attempts
        for work in workloads:
            if work.row >= 0 and attempted.end[work.row] == AttemptEnd.RUNNING:
                attempted.progress_at_end[work.row] = work.progress_at(ended_s)
                attempted.progress_kept[work.row] = work.checkpoint_at(ended_s)
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
        rows, before = self._attempts, self._before
        # Spans by attempt, and of each attempt by time: what it held last comes behind what it held before.
        attempts = np.concatenate((_integers(before.row), np.arange(len(rows))))
        order = np.argsort(attempts, kind="stable")
        every_entry = [*before.entries, *self._entries]
        entries = [every_entry[span] for span in order.tolist()]
        held = np.concatenate(entries or [np.zeros((0, max(MACHINE, GPUS) + 1), np.int64)])[:, (MACHINE, GPUS)]
        span = np.repeat(order, [len(part) for part in entries])
        with_gpus = held[:, 1] > 0
        held, span = held[with_gpus], span[with_gpus]
        attempt = attempts[span]
        numbers = self._tables.numbers(_integers(rows.region)[attempt], held[:, 0])
        lengths = np.bincount(attempt, minlength=len(rows))
        first_share = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        table = rows.table(first_share)
        shares = ShareTable(numbers, held[:, 1].copy())
        if not before.row:
            return table, shares
        since_s = np.concatenate((_reals(before.since_s), _reals(self._since_s)))
        until_s = np.concatenate((_reals(before.until_s), table.ended_s))
        return table, replace(shares, from_s=since_s[span], until_s=until_s[span])


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
