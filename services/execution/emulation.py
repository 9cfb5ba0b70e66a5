"""Emulated attempts: work of a given length on a clock, without processes. Pure: `now` is a parameter.

How far an attempt is and what of that is saved says `cluster_manager.attempt_run.emulated_work`. It advances at the rate
of its order: the region settles that (`domain.work_rate`), for it depends on what the attempt has in other clusters too.

Invariant (design I8): of one workload at most one attempt is live. Every change costs O(log n) in the number of live
attempts, through one heap of the times at which something is due.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster_manager.attempt_run.emulated_work import EmulatedJob, EmulatedWork, emulated_work
from domain.identifiers import MachineId, WorkloadId
from domain.placement import AttemptKey, TaskPlacement
from domain.placement_changes import flexible_among, name_of
from domain.plan import TaskName
from domain.workload import Emulated
from services.execution.attempt_register import AttemptRegister
from services.execution.executor import (
    ENDED_PHASES,
    AttemptOrder,
    AttemptPhase,
    AttemptStatus,
    ImpossibleOrder,
    StaleOrder,
    UnknownAttempt,
    sorted_by_key,
)
from services.execution.order_checks import check_order

_OVERTAKEN_ENTRIES_KEPT = 1_000
"""The heap is built anew when more entries than this, and than there are live attempts, no longer count."""


@dataclass(slots=True)
class _EmulatedAttempt:
    order: AttemptOrder
    work: EmulatedWork
    phase: AttemptPhase
    since_s: float
    started_s: float = 0.0
    due_s: float = math.inf
    """When it completes by itself, or when its stop is over."""
    checkpoint_at_end: float | None = None
    """While it is stopping: what its checkpoint will hold; None once the time to save one was cut short."""
    final_checkpoint: float | None = None
    reason: str = ""
    changed_s: float = 0.0
    changed_progress: float = 0.0
    lost: frozenset[TaskName] = frozenset()
    """Flexible tasks that are gone with their machine: the others stand still until it is resized to do without."""

    def checkpoint_at(self, now: float) -> float:
        """The progress of the newest checkpoint: what every job has saved on its own, or the one saved at the end."""
        return self.work.checkpoint_at(now) if self.final_checkpoint is None else self.final_checkpoint

    def status(self, now: float) -> AttemptStatus:
        return AttemptStatus(
            key=self.order.key,
            phase=self.phase,
            since_s=self.since_s,
            progress=self.work.progress_at(now),
            checkpoint_progress=self.checkpoint_at(now),
            throughput=self.work.speed,
            reason=self.reason,
            emulated=True,
            started_s=self.started_s,
            revision=self.order.revision,
            changed_s=self.changed_s,
            changed_progress=self.changed_progress,
            lost_tasks=tuple(sorted(self.lost)),
        )


class Emulation:
    """All emulated attempts of a cluster. Methods return the statuses that changed, in the order of the changes.

    `checkpoint_time_s` is how long saving a checkpoint takes when an attempt is stopped: it takes place within the
    grace or not at all.
    """

    def __init__(self, register: AttemptRegister | None = None, checkpoint_time_s: float = 0.0) -> None:
        self._register = register if register is not None else AttemptRegister()
        self._checkpoint_time_s = checkpoint_time_s
        self._attempts: dict[AttemptKey, _EmulatedAttempt] = {}
        self._tombstones: dict[AttemptKey, AttemptStatus] = {}
        self._live: dict[WorkloadId, AttemptKey] = {}
        self._down: dict[MachineId, str] = {}
        self._due: list[tuple[float, WorkloadId, int]] = []

    def execute(self, order: AttemptOrder, now: float) -> list[AttemptStatus]:
        """Starts, holds or resumes an attempt; older attempts of its workload end first.

        An order that makes no sense fails. Raises StaleOrder.
        """
        changed = self.advance(now)
        if order.key in self._tombstones:
            return changed
        self._register.admit(order.key)
        attempt = self._attempts.get(order.key)
        if attempt is None:
            changed += self._end_older(order.key, now)
            try:
                check_order(order)
                attempt = self._admit(order, _jobs_of(order), now)
            except ImpossibleOrder as impossible:
                return [*changed, self._bury(order.key, AttemptPhase.FAILED, str(impossible), now)]
            if attempt.phase in ENDED_PHASES:
                return [*changed, attempt.status(now)]
        elif attempt.phase is not AttemptPhase.HELD or order.hold:
            return changed
        if not order.hold or order.started_s > 0:
            self._run(attempt, order.started_s if order.started_s > 0 else now)
        changed.append(attempt.status(now))
        # What was resumed may have come to its end long ago, and what was restored may have nothing left to do.
        return changed + self.advance(now)

    def stop(self, key: AttemptKey, grace_s: float, now: float) -> list[AttemptStatus]:
        """Stops an attempt: with enough grace all its work is saved, else only its last checkpoint remains."""
        changed = self.advance(now)
        attempt = self._attempts.get(key)
        if attempt is None:
            return changed + self._bury_unknown(key, now)
        if attempt.phase in ENDED_PHASES:
            return changed
        if attempt.phase is AttemptPhase.STOPPING:
            deadline_s = now + max(0.0, grace_s)
            if deadline_s < attempt.due_s:
                attempt.checkpoint_at_end = None
                self._schedule(attempt, deadline_s)
            return changed + self.advance(now)
        # One that is held has nothing to save.
        grace_s = 0.0 if attempt.phase is AttemptPhase.HELD else grace_s
        stopping = attempt.work.stopped(grace_s, self._checkpoint_time_s, now)
        attempt.final_checkpoint = attempt.checkpoint_at(now)
        attempt.reason = "it was asked to stop"
        attempt.work = attempt.work.at_speed(0.0, now)
        attempt.checkpoint_at_end = stopping.kept
        if stopping.takes_s <= 0:
            attempt.final_checkpoint = stopping.kept
            return [*changed, self._end(attempt, AttemptPhase.STOPPED, now)]
        attempt.phase, attempt.since_s = AttemptPhase.STOPPING, now
        self._schedule(attempt, now + stopping.takes_s)
        return [*changed, attempt.status(now)]

    def resize(
        self, key: AttemptKey, placements: tuple[TaskPlacement, ...], revision: int, rate: float, now: float
    ) -> list[AttemptStatus]:
        """Gives a live attempt other placements; from now on it advances at that rate. An ended one is left alone.

        Without placements its part here is complete. A revision that is not newer than the attempt's changes nothing. Raises UnknownAttempt or ImpossibleOrder.
        """
        changed = self.advance(now)
        attempt = self._attempts.get(key)
        if attempt is None:
            raise UnknownAttempt(key, f"attempt {key.attempt} of {key.workload} is not known here")
        order = replace(attempt.order, placements=placements, revision=revision, work_rate=rate)
        held = [name_of(placement) for placement in attempt.order.placements]
        check_order(order, may_leave=flexible_among(order.specification, held))
        if attempt.phase in ENDED_PHASES or revision <= attempt.order.revision:
            return changed
        if placements and {job.name for job in order.jobs_here()} != {job.name for job in attempt.order.jobs_here()}:
            raise ImpossibleOrder(key, f"{key.workload} would have other jobs here than when it was started")
        attempt.order = order
        attempt.changed_s, attempt.changed_progress = now, attempt.work.progress_at(now)
        if not placements:
            # Flexible tasks only were here: the attempt goes on elsewhere.
            return [*changed, self._end(attempt, AttemptPhase.COMPLETED, now)]
        attempt.lost &= {name_of(placement) for placement in placements}
        if attempt.phase is AttemptPhase.RUNNING:
            attempt.work = attempt.work.at_speed(0.0 if attempt.lost else rate, now)
            self._schedule(attempt, attempt.work.done_s)
        return [*changed, *self._lose_on_down_machines(attempt, now)] or [attempt.status(now)]

    def set_machine(self, machine: MachineId, up: bool, reason: str, now: float) -> list[AttemptStatus]:
        """A machine was lost, with everything on it, or is back. Attempts with flexible tasks only there stand still."""
        changed = self.advance(now)
        if up:
            self._down.pop(machine, None)
            return changed
        self._down[machine] = reason
        for key in sorted(self._live.values(), key=lambda key: key.workload):
            changed += self._lose_on_down_machines(self._attempts[key], now)
        return changed

    def lose_all(self, reason: str, now: float) -> list[AttemptStatus]:
        """Every attempt that has not ended is lost, as far as its last checkpoint."""
        changed = self.advance(now)
        for key in sorted(self._live.values(), key=lambda key: key.workload):
            attempt = self._attempts[key]
            attempt.reason, attempt.checkpoint_at_end = reason, None
            changed.append(self._end(attempt, AttemptPhase.LOST, now))
        return changed

    def forget(self, keys: Sequence[AttemptKey]) -> None:
        """Drops attempts that have ended; others stay."""
        for key in keys:
            attempt = self._attempts.get(key)
            if key in self._tombstones or (attempt is not None and attempt.phase in ENDED_PHASES):
                self._tombstones.pop(key, None)
                self._attempts.pop(key, None)
                self._register.forget(key)

    def advance(self, now: float) -> list[AttemptStatus]:
        """Ends whatever is due by now, in the order in which it was due."""
        changed: list[AttemptStatus] = []
        while (due := self._next()) is not None and due.due_s <= now:
            heapq.heappop(self._due)
            if due.phase is AttemptPhase.RUNNING:
                due.work = due.work._replace(progress=due.work.work_s)
                due.final_checkpoint = due.work.work_s
                changed.append(self._end(due, AttemptPhase.COMPLETED, due.due_s))
            else:
                if due.checkpoint_at_end is not None:
                    due.final_checkpoint = due.checkpoint_at_end
                changed.append(self._end(due, AttemptPhase.STOPPED, due.due_s))
        return changed

    def next_due_s(self) -> float | None:
        """When `advance` has something to do next; None when nothing is running."""
        due = self._next()
        return None if due is None else due.due_s

    def statuses(self, now: float) -> tuple[AttemptStatus, ...]:
        """Every attempt known, sorted by key. Attempts that are due are reported as they were before their end."""
        known = [attempt.status(now) for attempt in self._attempts.values()]
        return sorted_by_key([*known, *self._tombstones.values()])

    def knows_workload(self, workload: WorkloadId) -> bool:
        return any(key.workload == workload for keys in (self._attempts, self._tombstones) for key in keys)

    def knows(self, key: AttemptKey) -> bool:
        return key in self._attempts or key in self._tombstones

    def _admit(self, order: AttemptOrder, jobs: tuple[EmulatedJob, ...], now: float) -> _EmulatedAttempt:
        attempt = _EmulatedAttempt(order, emulated_work(jobs, order.progress, now, 0.0), AttemptPhase.HELD, now)
        attempt.changed_s, attempt.changed_progress = order.changed_s, order.changed_progress
        self._attempts[order.key] = attempt
        self._live[order.key.workload] = order.key
        self._lose_on_down_machines(attempt, now)
        return attempt

    def _run(self, attempt: _EmulatedAttempt, started_s: float) -> None:
        """Lets the work advance from its start on, which may lie in the past, or from when it was last changed."""
        attempt.work = attempt.work._replace(anchor_s=started_s, speed=attempt.order.work_rate)
        if attempt.changed_s > started_s:
            progress = min(attempt.work.work_s, max(attempt.work.progress, attempt.changed_progress))
            attempt.work = attempt.work._replace(anchor_s=attempt.changed_s, progress=progress)
        attempt.phase = AttemptPhase.RUNNING
        attempt.started_s = attempt.since_s = started_s
        self._schedule(attempt, attempt.work.done_s)

    def _schedule(self, attempt: _EmulatedAttempt, due_s: float) -> None:
        attempt.due_s = due_s
        if not math.isfinite(due_s):
            return
        heapq.heappush(self._due, (due_s, attempt.order.key.workload, attempt.order.key.attempt))
        if len(self._due) > 2 * len(self._live) + _OVERTAKEN_ENTRIES_KEPT:
            live = ((self._attempts[key].due_s, key.workload, key.attempt) for key in self._live.values())
            self._due = [entry for entry in live if math.isfinite(entry[0])]
            heapq.heapify(self._due)

    def _next(self) -> _EmulatedAttempt | None:
        """The live attempt that is due first; drops entries of the heap that were overtaken by later events."""
        while self._due:
            due_s, workload, number = self._due[0]
            key = self._live.get(workload)
            if key is not None and key.attempt == number and self._attempts[key].due_s == due_s:
                return self._attempts[key]
            heapq.heappop(self._due)
        return None

    def _end(self, attempt: _EmulatedAttempt, phase: AttemptPhase, now: float) -> AttemptStatus:
        if attempt.final_checkpoint is None:
            attempt.final_checkpoint = attempt.checkpoint_at(now)
        attempt.work = attempt.work.at_speed(0.0, now)
        attempt.phase, attempt.since_s, attempt.due_s = phase, now, math.inf
        del self._live[attempt.order.key.workload]
        return attempt.status(now)

    def _end_older(self, newer: AttemptKey, now: float) -> list[AttemptStatus]:
        """The fence: a newer attempt ends the older one at once."""
        older = self._live.get(newer.workload)
        if older is None:
            return []
        attempt = self._attempts[older]
        attempt.reason = f"attempt {newer.attempt} of the workload took its place"
        attempt.checkpoint_at_end = None
        return [self._end(attempt, AttemptPhase.STOPPED, now)]

    def _lose_on_down_machines(self, attempt: _EmulatedAttempt, now: float) -> list[AttemptStatus]:
        there = [placement for placement in attempt.order.placements if placement.machine in self._down]
        if not there:
            return []
        names = {name_of(placement) for placement in there}
        if attempt.phase is AttemptPhase.RUNNING and flexible_among(attempt.order.specification, names):
            if names <= attempt.lost:
                return []
            attempt.lost |= names
            attempt.work = attempt.work.at_speed(0.0, now)
            self._schedule(attempt, attempt.work.done_s)
            return [attempt.status(now)]
        lost = sorted({placement.machine for placement in there})
        attempt.reason = f"machine {lost[0]} was lost: {self._down[lost[0]]}"
        return [self._end(attempt, AttemptPhase.LOST, now)]

    def _bury_unknown(self, key: AttemptKey, now: float) -> list[AttemptStatus]:
        """A stop that overtook its order, or came after a restart: the attempt must never start any more."""
        if key in self._tombstones:
            return []
        try:
            self._register.admit(key)
        except StaleOrder:
            # Its end is published already, or it could not start any more in any case.
            return []
        changed = self._end_older(key, now)
        return [*changed, self._bury(key, AttemptPhase.STOPPED, "it was not running here", now)]

    def _bury(self, key: AttemptKey, phase: AttemptPhase, reason: str, now: float) -> AttemptStatus:
        """An attempt of which there is nothing but the end."""
        status = AttemptStatus(key, phase, now, reason=reason, emulated=True)
        self._tombstones[key] = status
        return status


def _jobs_of(order: AttemptOrder) -> tuple[EmulatedJob, ...]:
    jobs: list[EmulatedJob] = []
    for job in order.jobs_here():
        if not isinstance(job.entry_point, Emulated):
            raise ImpossibleOrder(order.key, f"job {job.name} of {order.key.workload} is not emulated")
        duration_s, interval_s = job.entry_point.duration_s, job.entry_point.checkpoint_interval_s
        if not (math.isfinite(duration_s) and duration_s >= 0 and math.isfinite(interval_s) and interval_s >= 0):
            raise ImpossibleOrder(order.key, f"job {job.name} cannot last {duration_s} s or save every {interval_s} s")
        jobs.append(EmulatedJob(duration_s, interval_s))
    return tuple(jobs)
