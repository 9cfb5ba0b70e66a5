"""What the clusters of an attempt report together, as events of its run: pure functions of the reports.

An attempt's jobs may sit in several clusters. It has started when the last of them has, it is as far as the job that is
least far, it is broken as soon as something of it has ended badly, and it has ended when it has everywhere.
"""

from __future__ import annotations

from cluster_manager.attempt_run.actions import AttemptAction
from cluster_manager.attempt_run.events import (
    AttemptEvent,
    CheckpointSaved,
    Completed,
    Gone,
    Progressed,
    Started,
    TaskFailed,
    TaskLost,
)
from domain.placement_changes import name_of
from domain.plan import TaskName
from services.execution.executor import ENDED_PHASES, AttemptPhase, AttemptStatus
from services.regional_scheduler.live_attempts import LiveAttempt, must_stop, never_ordered


def started_s(attempt: LiveAttempt) -> float | None:
    """Since when the whole gang runs; None when it does not yet (or never did)."""
    reports = [attempt.reports.get(cluster) for cluster in attempt.clusters]
    times = [report.started_s for report in reports if report is not None and report.started_s > 0]
    return max(times) if len(times) == len(reports) else None


def take_report(attempt: LiveAttempt, status: AttemptStatus, now: float) -> tuple[AttemptAction, ...]:
    """What follows at once from what a cluster has just said, once it stands in the attempt's reports.

    Starts and ends do not: they are recorded first (`start_of`, `end_of`).
    """
    if attempt.began_s is None:
        attempt.began_s = started_s(attempt)
    actions: list[AttemptAction] = []
    for event in _progress_events(attempt, status, now):
        actions += attempt.take(event)
    left = attempt.left_clusters
    phases = [report.phase for cluster, report in attempt.reports.items() if report.ended and cluster not in left]
    if AttemptPhase.FAILED in phases:
        actions += attempt.take(TaskFailed(now))
    elif not must_stop(attempt) and any(phase is not AttemptPhase.COMPLETED for phase in phases):
        actions += attempt.take(TaskLost(now))
    return tuple(actions)


def lost_tasks(attempt: LiveAttempt) -> tuple[TaskName, ...]:
    """Flexible tasks that clusters have reported lost and that the attempt is still to hold, sorted."""
    lost = {name for report in attempt.reports.values() for name in report.lost_tasks}
    return tuple(sorted(lost & {name_of(placement) for placement in attempt.placements}))


def _progress_events(attempt: LiveAttempt, status: AttemptStatus, now: float) -> list[AttemptEvent]:
    """How far it is: emulated jobs work side by side, so that the attempt is as far as the one that is least far; of a
    real gang only the first task reports.
    """
    reports = attempt.reports.values()
    if attempt.specification.emulated:
        working = [report for report in reports if report.phase is not AttemptPhase.COMPLETED]
        if working and len(attempt.reports) < len(attempt.clusters):
            return []
        far = max(report.progress for report in reports)
        progress = min((report.progress for report in working), default=far)
        checkpoint = min((report.checkpoint_progress for report in working), default=far)
    else:
        progress = max(report.progress for report in reports)
        checkpoint = max(report.checkpoint_progress for report in reports)
    events: list[AttemptEvent] = []
    # Of a gang in several clusters one may be a moment ahead: before all of it has started nothing is reported of it.
    if status.phase not in ENDED_PHASES and started_s(attempt) is not None:
        events.append(CheckpointSaved(now, checkpoint))
    return [*events, Progressed(now, progress, checkpoint, max(report.throughput for report in reports))]


def start_of(attempt: LiveAttempt) -> Started | None:
    """Its start, unless that is recorded already or has yet to come. It is not before its dispatch: clocks may be set back."""
    since_s = (started_s(attempt) or attempt.began_s) if attempt.started_s is None else None
    return None if since_s is None else Started(max(since_s, attempt.dispatched_s))


def _recorded_later_s(attempt: LiveAttempt) -> float:
    """How much later than it was its start is recorded (`start_of`): so much later is its end, which else would leave no time for what
    it has done meanwhile."""
    since_s = started_s(attempt)
    return 0.0 if since_s is None else max(0.0, attempt.dispatched_s - since_s)


def end_of(attempt: LiveAttempt, now: float) -> Completed | Gone | None:
    """Its end; None when it has not ended everywhere."""
    if never_ordered(attempt):
        return Gone(max(now, attempt.dispatched_s), reason="before it was started")
    if not attempt.ended_everywhere:
        return None
    reports = [attempt.reports[cluster] for cluster in attempt.clusters]
    later_s = _recorded_later_s(attempt)
    ended_s = max(attempt.dispatched_s, *(report.since_s + later_s for report in reports))
    reason = "; ".join(report.reason for report in reports if report.reason)
    if all(report.phase is AttemptPhase.COMPLETED for report in reports):
        return Completed(ended_s, reason=reason)
    exit_codes = [report.exit_code for report in reports if report.exit_code is not None]
    return Gone(ended_s, reason=reason, exit_codes=tuple(exit_codes))
