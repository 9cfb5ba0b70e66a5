"""The attempts of a region that have not ended, what their clusters report, and what follows from it.

Everything here is a pure function of the book: who talks to cluster managers and the database is elsewhere. An
attempt's jobs may sit in several clusters; the attempt is what they report together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from domain.identifiers import ClusterId, MachineId, TenantId
from domain.life_cycle import Happening, State, next_state
from domain.placement import AttemptKey, TaskPlacement
from domain.rank import Standing
from domain.workload import WorkloadSpecification
from services.database.attempt_store import AttemptEnd, Eviction
from services.execution.executor import ENDED_PHASES, AttemptPhase, AttemptStatus

LOST = "lost"
"""How an attempt ends when what watched over it is gone, and its machines (as far as anybody knows) are not."""


@dataclass(slots=True)
class LiveAttempt:
    """One attempt between dispatch and end."""

    key: AttemptKey
    tenant: TenantId
    specification: WorkloadSpecification
    standing: Standing
    within_quota: bool
    dispatched_s: float
    progress_at_start: float
    failures: int
    """Of the workload, before this attempt."""
    charges: Mapping[str, int]
    placements: tuple[TaskPlacement, ...]
    state: State = State.DISPATCHED
    started_s: float | None = None
    eviction: Eviction | None = None
    progress: float = 0.0
    checkpoint_progress: float = 0.0
    checkpoint_s: float = 0.0
    """When the newest checkpoint was heard of, which may be a moment after it was saved."""
    throughput: float = 0.0
    reports: dict[ClusterId, AttemptStatus] = field(default_factory=dict)
    """What each of its clusters said last."""
    ordered: dict[ClusterId, Order] = field(default_factory=dict)
    """What each of its clusters was asked last, on its present link."""
    perhaps_known: set[ClusterId] = field(default_factory=set)
    """Clusters that may have been asked to run it: they were, or a former session may have done it. A complete report
    that does not name it takes the cluster out again."""

    @property
    def clusters(self) -> tuple[ClusterId, ...]:
        """The clusters of its placements, sorted."""
        return tuple(sorted({placement.cluster for placement in self.placements}))

    @property
    def machines(self) -> frozenset[MachineId]:
        return frozenset(placement.machine for placement in self.placements)

    @property
    def ended_everywhere(self) -> bool:
        return all(cluster in self.reports and self.reports[cluster].phase in ENDED_PHASES for cluster in self.clusters)


class Order(StrEnum):
    """What a cluster manager is asked to do with its part of an attempt; later ones include earlier ones."""

    HOLD = "hold"
    EXECUTE = "execute"
    STOP = "stop"


def wanted_order(attempt: LiveAttempt, cluster: ClusterId, *, blocked: bool) -> Order | None:
    """What this cluster should be asked now; None when it was asked already or there is nothing to ask.

    `blocked`: an attempt that is leaving still has something on one of its machines.
    """
    report = attempt.reports.get(cluster)
    asked = attempt.ordered.get(cluster)
    if report is not None and report.phase in ENDED_PHASES:
        return None
    if _must_stop(attempt):
        if never_ordered(attempt) or asked is Order.STOP:
            return None
        # If it had started and nobody knows it there any more, it has to be taken up before it can be stopped in order.
        lost = report is None and asked is None and attempt.started_s is not None
        return Order.EXECUTE if lost else Order.STOP
    if report is not None and report.phase is not AttemptPhase.HELD:
        return None
    if blocked and attempt.started_s is None:
        return None
    together = len(attempt.clusters) == 1 or attempt.started_s is not None or _held_everywhere(attempt)
    wanted = Order.EXECUTE if together else Order.HOLD
    return None if asked is wanted or asked is Order.EXECUTE else wanted


def _held_everywhere(attempt: LiveAttempt) -> bool:
    return all(cluster in attempt.reports for cluster in attempt.clusters)


def _must_stop(attempt: LiveAttempt) -> bool:
    """It is being evicted, or it has ended badly in one of its clusters."""
    return attempt.state is State.PREEMPTING or any(
        report.phase in ENDED_PHASES and report.phase is not AttemptPhase.COMPLETED
        for report in attempt.reports.values()
    )


def never_ordered(attempt: LiveAttempt) -> bool:
    """True when it is to be stopped and no cluster has heard of it: it can end at once."""
    return _must_stop(attempt) and attempt.started_s is None and not attempt.reports and not attempt.perhaps_known


def started_s(attempt: LiveAttempt) -> float | None:
    """Since when the whole gang runs; None when it does not yet (or never did)."""
    reports = [attempt.reports.get(cluster) for cluster in attempt.clusters]
    times = [report.started_s for report in reports if report is not None and report.started_s > 0]
    return max(times) if len(times) == len(reports) else None


def take_progress(attempt: LiveAttempt) -> None:
    """Brings progress, checkpoint and throughput up to what the clusters report; nothing ever goes back.

    Emulated jobs work side by side, so that the attempt is as far as the one that is least far; of a real gang only
    the first task reports.
    """
    reports = attempt.reports.values()
    if not reports:
        return
    if attempt.specification.emulated:
        working = [report for report in reports if report.phase is not AttemptPhase.COMPLETED]
        if working and len(attempt.reports) < len(attempt.clusters):
            return
        far = max(report.progress for report in reports)
        progress = min((report.progress for report in working), default=far)
        checkpoint = min((report.checkpoint_progress for report in working), default=far)
    else:
        progress = max(report.progress for report in reports)
        checkpoint = max(report.checkpoint_progress for report in reports)
    attempt.progress = max(attempt.progress, progress)
    attempt.checkpoint_progress = max(attempt.checkpoint_progress, checkpoint)
    attempt.throughput = max(report.throughput for report in reports)


def end_of(attempt: LiveAttempt, *, cancel_requested: bool, now: float) -> AttemptEnd | None:
    """How the attempt has ended and what becomes of its workload; None when it has not ended everywhere."""
    if never_ordered(attempt):
        return _end(attempt, _stopped_as(attempt, cancel_requested), now, "before it was started")
    if not attempt.ended_everywhere:
        return None
    # An attempt's own time never goes back, whatever the clocks of other machines say.
    ended_s = max(attempt.checkpoint_s, *(attempt.reports[cluster].since_s for cluster in attempt.clusters))
    phases = {attempt.reports[cluster].phase for cluster in attempt.clusters}
    reason = "; ".join(
        attempt.reports[cluster].reason for cluster in attempt.clusters if attempt.reports[cluster].reason
    )
    if phases == {AttemptPhase.COMPLETED}:
        return _end(attempt, "completed", ended_s, reason)
    if AttemptPhase.FAILED in phases:
        return _end(attempt, "cancelled" if cancel_requested else "failed", ended_s, reason)
    return _end(attempt, _stopped_as(attempt, cancel_requested), ended_s, reason)


def _stopped_as(attempt: LiveAttempt, cancel_requested: bool) -> str:
    """It ended without having failed by itself: for what it was asked to leave, or lost without anybody's asking."""
    if cancel_requested:
        return "cancelled"
    return LOST if attempt.eviction is None else attempt.eviction.cause.value


def _end(attempt: LiveAttempt, ended_as: str, ended_s: float, reason: str) -> AttemptEnd:
    retry = attempt.specification.retry
    failures = attempt.failures + 1
    not_before_s = 0.0
    match ended_as:
        case _ if ended_as == LOST:
            # A failure, but none of the user's: it is always tried again, after a while in which a machine that is
            # about to be reported lost is.
            happening = Happening.ATTEMPT_FAILED
            not_before_s = ended_s + retry.wait_s(1)
        case "completed":
            happening = Happening.COMPLETED
        case "cancelled":
            happening = Happening.CANCELLED
        case "failed" if failures > retry.max_retries:
            happening = Happening.FAILED
        case "failed":
            happening = Happening.ATTEMPT_FAILED
            not_before_s = ended_s + retry.wait_s(failures)
        case _:
            happening = Happening.EVICTED
    return AttemptEnd(
        key=attempt.key,
        end="failed" if ended_as == LOST else ended_as,
        reason=reason,
        ended_s=ended_s,
        progress=max(attempt.progress, attempt.checkpoint_progress),
        checkpoint_progress=attempt.checkpoint_progress,
        next_state=next_state(attempt.key.workload, attempt.state, happening),
        failed=ended_as == "failed",
        not_before_s=not_before_s,
    )


class LiveAttempts:
    """The book: every live attempt of the region by key, and who is on which machine."""

    __slots__ = ("_attempts", "_dispatched", "_leaving_by_machine")

    def __init__(self, attempts: Iterable[LiveAttempt] = ()) -> None:
        self._attempts: dict[AttemptKey, LiveAttempt] = {}
        self._dispatched: dict[AttemptKey, LiveAttempt] = {}
        self._leaving_by_machine: dict[MachineId, set[AttemptKey]] = {}
        for attempt in attempts:
            self.add(attempt)

    def __iter__(self) -> Iterator[LiveAttempt]:
        return iter(self._attempts.values())

    def __len__(self) -> int:
        return len(self._attempts)

    def get(self, key: AttemptKey) -> LiveAttempt | None:
        return self._attempts.get(key)

    def add(self, attempt: LiveAttempt) -> None:
        self._attempts[attempt.key] = attempt
        if attempt.state is State.PREEMPTING:
            self._note_leaving(attempt)
        elif attempt.state is State.DISPATCHED:
            self._dispatched[attempt.key] = attempt

    def mark_started(self, key: AttemptKey, started_s: float) -> None:
        """The whole gang runs since then; one that is being evicted goes on being evicted."""
        attempt = self._attempts[key]
        attempt.started_s = started_s
        if attempt.state is State.DISPATCHED:
            attempt.state = next_state(key.workload, attempt.state, Happening.STARTED)
            self._dispatched.pop(key, None)

    def begin_eviction(self, key: AttemptKey, eviction: Eviction) -> None:
        attempt = self._attempts[key]
        attempt.state = next_state(key.workload, attempt.state, Happening.EVICTION_BEGAN)
        attempt.eviction = eviction
        self._dispatched.pop(key, None)
        self._note_leaving(attempt)

    def remove(self, key: AttemptKey) -> frozenset[MachineId]:
        """Forgets an ended attempt; returns its machines."""
        attempt = self._attempts.pop(key)
        self._dispatched.pop(key, None)
        for machine in attempt.machines:
            leaving = self._leaving_by_machine.get(machine)
            if leaving is not None:
                leaving.discard(key)
                if not leaving:
                    del self._leaving_by_machine[machine]
        return attempt.machines

    def blocked(self, attempt: LiveAttempt) -> bool:
        """True while somebody else who is leaving has something on one of its machines."""
        return any(self._leaving_by_machine.get(machine, set()) - {attempt.key} for machine in attempt.machines)

    def on(self, machine: MachineId) -> list[AttemptKey]:
        """Attempts with something on this machine, sorted."""
        on_it = [attempt.key for attempt in self._attempts.values() if machine in attempt.machines]
        return sorted(on_it, key=lambda key: (key.workload, key.attempt))

    def waiting_on(self, machines: frozenset[MachineId]) -> list[LiveAttempt]:
        """Attempts that are dispatched and not started on any of these machines, sorted by key."""
        return sorted(
            (attempt for attempt in self._dispatched.values() if not machines.isdisjoint(attempt.machines)),
            key=lambda attempt: (attempt.key.workload, attempt.key.attempt),
        )

    def _note_leaving(self, attempt: LiveAttempt) -> None:
        for machine in attempt.machines:
            self._leaving_by_machine.setdefault(machine, set()).add(attempt.key)
