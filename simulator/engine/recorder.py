"""Fills the tables of a run while it goes on."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from cluster_manager.attempt_run.actions import RecordEnd
from cluster_manager.capacity.charging import MACHINE
from cluster_manager.capacity.tables import GPUS
from domain.events import EvictionCause
from domain.fleet import Fleet, MachineState
from domain.identifiers import MachineId
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


# Columns of an attempt as it is kept while the run goes on.
_WORKLOAD, _NUMBER, _REGION, _PRIORITY, _LEVEL, _GPUS, _GUARANTEED, _END, _EVICTED_BY = range(9)
_DISPATCHED_S, _PROGRESS_AT_START, _STARTED_S, _ENDED_S, _PROGRESS_AT_END, _PROGRESS_KEPT = range(9, 15)
_ATTEMPT_COLUMNS = 15


class _AttemptRows:
    """The attempts, as far as they have come: a list for each, with all that is known of it."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: list[list[float]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, work: SimulatedWorkload, now: float, *, guaranteed: bool) -> int:
        """One more attempt, the workload's present one; which row it has."""
        priority, level = work.standing
        nan = math.nan
        self._rows.append(
            [
                work.index,
                work.attempts,
                work.region,
                priority,
                level,
                work.gpus,
                guaranteed,
                AttemptEnd.RUNNING,
                NO_ROW,
                now,
                work.progress,
                nan,
                nan,
                nan,
                nan,
            ]
        )
        return len(self._rows) - 1

    def start(self, row: int, now: float) -> None:
        """The attempt in this row works from now on."""
        self._rows[row][_STARTED_S] = now

    def finish(self, row: int, end: AttemptEnd, ended_s: float, progress: float, kept: float, by: int = NO_ROW) -> None:
        """The attempt in this row has ended; `by`: the workload that it made room for."""
        attempt = self._rows[row]
        attempt[_END], attempt[_EVICTED_BY], attempt[_ENDED_S] = end, by, ended_s
        attempt[_PROGRESS_AT_END], attempt[_PROGRESS_KEPT] = progress, kept

    def runs(self, row: int) -> bool:
        """Whether the attempt in this row has not ended."""
        return self._rows[row][_END] == AttemptEnd.RUNNING

    def reach(self, row: int, progress: float, kept: float) -> None:
        """The run is over while the attempt in this row goes on."""
        self._rows[row][_PROGRESS_AT_END], self._rows[row][_PROGRESS_KEPT] = progress, kept

    def regions(self) -> Integers:
        """The regions of all of them."""
        return _integers([int(attempt[_REGION]) for attempt in self._rows])

    def table(self, first_share: Integers) -> AttemptTable:
        """The same as a table."""
        numbers = np.fromiter(chain.from_iterable(self._rows), np.float64, len(self._rows) * _ATTEMPT_COLUMNS)
        columns = numbers.reshape(-1, _ATTEMPT_COLUMNS).T
        whole = columns[: _EVICTED_BY + 1].astype(np.int64)
        return AttemptTable(
            workload=whole[_WORKLOAD],
            number=whole[_NUMBER],
            region=whole[_REGION],
            priority=whole[_PRIORITY],
            level=whole[_LEVEL],
            dispatched_s=columns[_DISPATCHED_S].copy(),
            started_s=columns[_STARTED_S].copy(),
            ended_s=columns[_ENDED_S].copy(),
            end=whole[_END],
            evicted_by=whole[_EVICTED_BY],
            gpus=whole[_GPUS],
            guaranteed=whole[_GUARANTEED].astype(np.bool_),
            progress_at_start=columns[_PROGRESS_AT_START].copy(),
            progress_at_end=columns[_PROGRESS_AT_END].copy(),
            progress_kept=columns[_PROGRESS_KEPT].copy(),
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
        self._attempts = _AttemptRows()
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
        self._first_priority.setdefault(work.index, (work.standing.priority, work.within_quota))
        guaranteed = self._is_guaranteed(work) if self._with_cells else work.guaranteed
        work.row = self._attempts.add(work, now, guaranteed=guaranteed)
        self._entries.append(entries)
        self._since_s.append(now)

    def _is_guaranteed(self, work: SimulatedWorkload) -> bool:
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
        self._attempts.start(work.row, now)
        self._first_started_s.setdefault(work.index, now)

    def evicted(self, work: SimulatedWorkload, cause: EvictionCause, end: RecordEnd, by: int) -> None:
        """`by`: the workload, by index, that its place was for; NO_ROW when it was for none."""
        self._attempts.finish(work.row, END_OF_CAUSE[cause], end.ended_s, end.progress, end.checkpoint_progress, by)

    def cancelled(self, work: SimulatedWorkload, end: RecordEnd) -> None:
        self._attempts.finish(work.row, AttemptEnd.CANCELLED, end.ended_s, end.progress, end.progress)
        self._ended_s[work.index] = end.ended_s

    def failed(self, work: SimulatedWorkload, end: RecordEnd) -> None:
        self._attempts.finish(work.row, AttemptEnd.FAILED, end.ended_s, end.progress, end.checkpoint_progress)
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
        stalled: bool,
        not_submitted: int,
        counts: RunCounts,
        inference: Collection[MachineId],
    ) -> RunRecord:
        """The tables, after the run. `refused` and `workloads` are by index; those never submitted are left out.

        `inference`: the machines of inference clusters.
        """
        for work in workloads:
            if work.row >= 0 and self._attempts.runs(work.row):
                self._attempts.reach(work.row, work.progress_at(ended_s), work.checkpoint_at(ended_s))
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
            stalled=stalled,
            not_submitted=not_submitted,
            counts=counts,
            inference_machines=tuple(place for place, name in enumerate(self._tables.table.names) if name in inference),
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
        numbers = self._tables.numbers(rows.regions()[attempt], held[:, 0])
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
