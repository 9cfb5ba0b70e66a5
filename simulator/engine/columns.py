"""What scan passes look at, one element per workload, kept up to date: a pass copies what it needs and builds nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from domain.identifiers import WorkloadId
from domain.priority_class import importance_of
from global_scheduler.arithmetic import Floats
from global_scheduler.knowledge import OracleWork
from global_scheduler.scan_plan import ScanPlan
from global_scheduler.scan_view import NOT_RANKED, DemandColumns, PendingColumns, RunningColumns, StoredTuples
from kernels.compiled import compiled
from simulator.engine.workloads import SimulatedWorkload

Integers = NDArray[np.int64]


class WorkloadColumns:
    """Columns by workload index."""

    def __init__(self, names: Sequence[str], bucket_number: Mapping[str, int]) -> None:
        """`names` are the ids of all workloads of the run, by index; buckets are those of the quota."""
        count = len(names)
        self._bucket_number = bucket_number
        self._names = np.array(names, dtype=object)
        rank = np.empty(count, np.int64)
        rank[np.array(sorted(range(count), key=names.__getitem__), dtype=np.int64)] = np.arange(count)
        self._name_rank = rank
        self.queued = np.zeros(count, np.bool_)
        self.live = np.zeros(count, np.bool_)
        self._first = 0
        """None before it waits or is live, ..."""
        self._end = 0
        """... and none from here on."""
        self.kind = np.zeros(count, np.int32)
        self.kinds = 0
        """Kinds that have waited so far have numbers below this."""
        self.credit = np.zeros(count, np.float64)
        """As it was stored by the last pass that changed it."""
        self._tenant = np.zeros(count, np.int32)
        self._quota_priority = np.zeros(count, np.int8)
        self._importance = np.zeros(count, np.int8)
        self._any_important = False
        """Whether anything is of another priority class than the normal one."""
        self.submitted_s = np.zeros(count, np.float64)
        self.gpus = np.zeros(count, np.float64)
        self._remaining_s = np.zeros(count, np.float64)
        self.attained_gpu_s = np.zeros(count, np.float64)
        self.queued_since_s = np.zeros(count, np.float64)
        self.started_s = np.full(count, np.nan)
        self.attained_s = np.zeros(count, np.float64)
        self.first_started_s = np.full(count, np.inf)
        self._stored_priority = np.full(count, NOT_RANKED, np.int8)
        self._stored_level = np.zeros(count, np.int16)
        self._stored_within = np.zeros(count, np.bool_)
        self._attempt = np.zeros(count, np.int32)
        self._since_s = np.zeros(count, np.float64)
        """When the attempt was started, or dispatched if it was not yet."""
        self._priority = np.zeros(count, np.int8)
        self._running_level = np.zeros(count, np.int16)
        self._within = np.zeros(count, np.bool_)
        self._leaving = np.zeros(count, np.bool_)
        self._first_charge = np.zeros(count, np.int64)
        self._charges = np.zeros(count, np.int64)
        self._bucket = np.zeros(max(count, 1), np.int16)
        self._amount = np.zeros(max(count, 1), np.int64)
        self._used = 0
        self._rows = np.zeros(count, np.int64)
        """The attempts that were live when a pass last asked, by (start, name), ..."""
        self._row_count = 0
        """... so many."""
        self._moved: list[int] = []
        """Those that were dispatched or started since, ..."""
        self._has_moved = np.zeros(count, np.bool_)
        """... so that they stand elsewhere by now, if they are live at all."""

    # What happens.

    def submit(self, work: SimulatedWorkload) -> None:
        """It exists from now on."""
        index = work.index
        self._tenant[index], self._quota_priority[index] = work.tenant, work.quota_priority
        importance = importance_of(work.workload.specification.priority_class)
        if importance:
            self._importance[index], self._any_important = importance, True
        self.submitted_s[index] = work.submitted_s
        charges = sorted((self._bucket_number[bucket], amount) for bucket, amount in work.charges.items())
        while self._used + len(charges) > len(self._bucket):
            self._bucket = np.concatenate((self._bucket, np.zeros_like(self._bucket)))
            self._amount = np.concatenate((self._amount, np.zeros_like(self._amount)))
        self._first_charge[index], self._charges[index] = self._used, len(charges)
        for bucket, amount in charges:
            self._bucket[self._used], self._amount[self._used] = bucket, amount
            self._used += 1

    def queue(self, work: SimulatedWorkload) -> None:
        """It waits from now on; no pass has ranked it."""
        index = work.index
        self.queued[index] = True
        self._takes_part(index)
        self.kind[index] = work.kind
        self.kinds = max(self.kinds, work.kind + 1)
        self.refresh(work)
        self._stored_priority[index] = NOT_RANKED

    def refresh(self, work: SimulatedWorkload) -> None:
        """What policies know of it is this from now on: to be called whenever the work of an attempt changes."""
        index = work.index
        self.gpus[index] = work.gpus
        self._remaining_s[index] = work.expected_remaining_s
        self.attained_gpu_s[index] = work.attained_gpu_s
        self.queued_since_s[index] = work.queued_since_s
        self.started_s[index] = work.started_s
        self.attained_s[index] = work.attained_s
        self.first_started_s[index] = work.first_started_s

    def take_over_rank(self, work: SimulatedWorkload) -> None:
        """A pass before the run ranked it as it stands now."""
        index = work.index
        self._stored_priority[index], self._stored_level[index] = work.standing
        self.credit[index] = work.credit
        self._stored_within[index] = work.within_quota

    def is_ranked(self, work: SimulatedWorkload) -> bool:
        """Whether a pass has ranked it since it came into the queue."""
        return bool(self._stored_priority[work.index] != NOT_RANKED)

    @property
    def names(self) -> NDArray[np.object_]:
        """The ids of all workloads, by index."""
        return self._names

    @property
    def ranked_priority(self) -> NDArray[np.int8]:
        """By index, the priority that the last pass gave it; NOT_RANKED: none has, since it came into the queue."""
        return self._stored_priority

    def standings(self, rows: Integers) -> tuple[Integers, Integers, NDArray[np.bool_]]:
        """As the last pass has ranked these: priorities, levels, and whether they are within quota."""
        priority, level = self._stored_priority[rows].astype(np.int64), self._stored_level[rows].astype(np.int64)
        return priority, level, self._stored_within[rows]

    def dispatch(self, work: SimulatedWorkload) -> None:
        """It has an attempt from now on."""
        index = work.index
        self.queued[index] = False
        self.live[index] = True
        self._takes_part(index)
        self._attempt[index] = work.attempts
        self._since_s[index] = work.dispatched_s
        self._leaving[index] = False
        self._moves(index)
        self.refresh(work)
        self.stand(work)

    def start(self, work: SimulatedWorkload) -> None:
        """Its attempt runs from now on."""
        self._since_s[work.index] = self.started_s[work.index] = work.started_s
        self._moves(work.index)

    def stand(self, work: SimulatedWorkload) -> None:
        """Its attempt's standing, and whether it is within quota, are these from now on."""
        index = work.index
        self._priority[index], self._running_level[index] = work.standing
        self._within[index] = work.within_quota

    def leave(self, work: SimulatedWorkload) -> None:
        """Its attempt was asked to leave."""
        self._leaving[work.index] = True

    def end(self, work: SimulatedWorkload) -> None:
        """Its attempt holds nothing any more."""
        self.live[work.index] = False

    def _takes_part(self, index: int) -> None:
        """It waits or is live from now on."""
        if index >= self._end:
            self._end = index + 1
        self._first = min(self._first, index)

    def _moves(self, index: int) -> None:
        """It stands elsewhere among the live attempts from now on."""
        self._moved.append(index)
        self._has_moved[index] = True

    # What a pass sees, and what it decides.

    def pending(self) -> Integers:
        """The indices of those that wait, ascending."""
        # Workloads come in the order of their indices, and most are over: there is no need to look at all of them.
        queued, live, first = self.queued, self.live, self._first
        while first < self._end and not queued[first] and not live[first]:
            first += 1
        self._first = first
        return np.flatnonzero(queued[first : self._end]) + first

    def pending_columns(self, pending: Integers) -> PendingColumns:
        """The queue; `pending` are the indices of those that wait, ascending."""
        return PendingColumns(
            workloads=_Names(self._names, pending),
            tenant=self._tenant[pending],
            quota_priority=self._quota_priority[pending],
            submitted_s=self.submitted_s[pending],
            demand=self._demand(pending),
            stored=StoredTuples(
                self._stored_priority[pending],
                self._stored_level[pending],
                self.credit[pending],
                self._stored_within[pending],
                checked=False,
            ),
            known=_KnownRows(self, pending),
            oracle=OracleWork(self._remaining_s[pending]),
            importance=self._importance[pending] if self._any_important else None,
            checked=False,
        )

    def running_columns(self) -> RunningColumns:
        """The live attempts."""
        moved = np.array(self._moved, np.int64)
        self._moved.clear()
        self._row_count = _update_order(
            self._rows, self._row_count, moved, self._has_moved, self.live, self._since_s, self._name_rank
        )
        rows = self._rows[: self._row_count].copy()
        attempt, tenant, started_s, priority, level, within_quota, leaving, remaining_s = _attempts_of(
            rows,
            self._attempt,
            self._tenant,
            self._since_s,
            self._priority,
            self._running_level,
            self._within,
            self._leaving,
            self._remaining_s,
        )
        return RunningColumns(
            workloads=_Names(self._names, rows),
            attempt=attempt,
            tenant=tenant,
            quota_priority=self._quota_priority[rows],
            started_s=started_s,
            priority=priority,
            level=level,
            within_quota=within_quota,
            leaving=leaving,
            known=_KnownRows(self, rows),
            oracle=OracleWork(remaining_s),
            demand=self._demand(rows),
            checked=False,
        )

    def with_news(self, pending: Integers, plan: ScanPlan) -> Integers:
        """Positions in `pending` whose standing, or side of the quota, is another one than was stored."""
        changed = plan.changed
        rows = pending[changed]
        news = self._stored_priority[rows] != plan.priority[changed]
        news |= self._stored_level[rows] != plan.level[changed]
        news |= self._stored_within[rows] != plan.within_quota[changed]
        positions: Integers = changed[news]
        return positions

    def store(self, pending: Integers, plan: ScanPlan) -> None:
        """Takes over what a pass decided."""
        changed = plan.changed
        rows = pending[changed]
        self._stored_priority[rows] = plan.priority[changed]
        self._stored_level[rows] = plan.level[changed]
        self._stored_within[rows] = plan.within_quota[changed]
        self.credit[rows] = plan.credit[changed]

    def _demand(self, rows: Integers) -> DemandColumns:
        offsets, bucket, amount = _demand_of(rows, self._first_charge, self._charges, self._bucket, self._amount)
        return DemandColumns(offsets, bucket, amount, checked=False)


class _Names(Sequence[WorkloadId]):
    """The ids of some workloads; few of them are ever asked for."""

    __slots__ = ("_names", "_rows")

    def __init__(self, names: NDArray[np.object_], rows: Integers) -> None:
        self._names = names
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, position: int) -> WorkloadId: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[WorkloadId]: ...
    def __getitem__(self, position: int | slice) -> WorkloadId | Sequence[WorkloadId]:
        if isinstance(position, slice):
            return _Names(self._names, self._rows[position])
        name: WorkloadId = self._names[self._rows[position]]
        return name


class _KnownRows:
    """What is known of some workloads, as `KnownColumns`: copied when a policy asks, which most never do.

    To be used before the columns change.
    """

    __slots__ = ("_columns", "_rows")

    def __init__(self, columns: WorkloadColumns, rows: Integers) -> None:
        self._columns = columns
        self._rows = rows

    estimates = None

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def gpus(self) -> Floats:
        return self._columns.gpus[self._rows]

    @property
    def submitted_s(self) -> Floats:
        return self._columns.submitted_s[self._rows]

    @property
    def queued_since_s(self) -> Floats:
        return self._columns.queued_since_s[self._rows]

    @property
    def attained_gpu_s(self) -> Floats:
        return self._columns.attained_gpu_s[self._rows]

    @property
    def started_s(self) -> Floats:
        return self._columns.started_s[self._rows]

    @property
    def attained_s(self) -> Floats:
        return self._columns.attained_s[self._rows]

    @property
    def first_started_s(self) -> Floats:
        return self._columns.first_started_s[self._rows]

    def rows(self, chosen: NDArray[np.bool_]) -> _KnownRows:
        return _KnownRows(self._columns, self._rows[chosen])


@compiled
def _update_order(
    rows: Integers,
    count: int,
    moved: Integers,
    has_moved: NDArray[np.bool_],
    live: NDArray[np.bool_],
    since_s: Floats,
    name_rank: Integers,
) -> int:
    """Brings the first `count` rows up to date: all live ones by (since, name rank); returns how many these are.

    All others stay in their order, so that there is nothing to sort: what has moved did so a moment ago, and stands near the end.
    """
    kept = 0
    for place in range(count):
        row = rows[place]
        if live[row] and not has_moved[row]:
            rows[kept] = row
            kept += 1
    for row in moved:
        if not has_moved[row]:
            continue  # it moved twice
        has_moved[row] = False
        if not live[row]:
            continue
        place = kept
        while place > 0:
            before = rows[place - 1]
            if since_s[before] < since_s[row] or (
                since_s[before] == since_s[row] and name_rank[before] < name_rank[row]
            ):
                break
            rows[place] = before
            place -= 1
        rows[place] = row
        kept += 1
    return kept


@compiled
def _attempts_of(
    rows: Integers,
    attempt: NDArray[np.int32],
    tenant: NDArray[np.int32],
    since_s: Floats,
    priority: NDArray[np.int8],
    level: NDArray[np.int16],
    within_quota: NDArray[np.bool_],
    leaving: NDArray[np.bool_],
    remaining_s: Floats,
) -> tuple[
    NDArray[np.int32],
    NDArray[np.int32],
    Floats,
    NDArray[np.int8],
    NDArray[np.int16],
    NDArray[np.bool_],
    NDArray[np.bool_],
    Floats,
]:
    """These rows of each column: one call costs a third of what as many indexings do."""
    return (
        attempt[rows],
        tenant[rows],
        since_s[rows],
        priority[rows],
        level[rows],
        within_quota[rows],
        leaving[rows],
        remaining_s[rows],
    )


@compiled
def _demand_of(
    rows: Integers, first_charge: Integers, charges: Integers, bucket: NDArray[np.int16], amount: Integers
) -> tuple[Integers, NDArray[np.int16], Integers]:
    """The charges of these rows one after the other: offsets by row, buckets and amounts."""
    offsets = np.zeros(rows.size + 1, np.int64)
    for place in range(rows.size):
        offsets[place + 1] = offsets[place] + charges[rows[place]]
    buckets = np.empty(offsets[-1], np.int16)
    amounts = np.empty(offsets[-1], np.int64)
    for place in range(rows.size):
        first = first_charge[rows[place]]
        for number in range(offsets[place + 1] - offsets[place]):
            buckets[offsets[place] + number] = bucket[first + number]
            amounts[offsets[place] + number] = amount[first + number]
    return offsets, buckets, amounts
