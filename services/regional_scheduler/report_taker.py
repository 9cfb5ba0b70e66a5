"""Takes in the reports of cluster managers: the attempts change at once, and what follows from that becomes due."""

from __future__ import annotations

from collections.abc import Iterable

from cluster_manager.attempt_run.actions import RecordCheckpoint
from domain.clock import Clock
from domain.identifiers import ClusterId
from domain.placement import AttemptKey
from services.execution.executor import AttemptPhase, AttemptStatus
from services.regional_scheduler.absent_clusters import AbsentClusters
from services.regional_scheduler.cluster_link import (
    ChangeRefused,
    ClusterReport,
    LinkLost,
    LinkMessage,
    MachineReport,
)
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.gang_reports import take_report
from services.regional_scheduler.live_attempts import LiveAttempt, RegionAttempts, change_carried_out
from services.regional_scheduler.measurements import new_profiles
from services.regional_scheduler.order_sender import OrderSender
from services.regional_scheduler.reconciliations import Reconciliation
from services.tiers.turns import Turns


class ReportTaker:
    """What no attempt takes in waits here to be taken: new checkpoints, reports about machines, refused changes, lost tasks."""

    def __init__(
        self, live: RegionAttempts, due_attempts: DueAttempts, sender: OrderSender, absent: AbsentClusters, clock: Clock
    ) -> None:
        self._live = live
        self._due_attempts = due_attempts
        self._sender = sender
        self._absent = absent
        self._clock = clock
        self._checkpoints: list[RecordCheckpoint] = []
        self._machine_reports: list[MachineReport] = []
        self._refused_changes: list[ChangeRefused] = []
        self._with_lost_tasks: list[AttemptKey] = []
        self._reconciliations: list[Reconciliation] = []

    def take_checkpoints(self) -> list[RecordCheckpoint]:
        """New ones."""
        checkpoints, self._checkpoints = self._checkpoints, []
        return checkpoints

    def take_machine_reports(self) -> list[MachineReport]:
        reports, self._machine_reports = self._machine_reports, []
        return reports

    def take_refused_changes(self) -> list[ChangeRefused]:
        refused, self._refused_changes = self._refused_changes, []
        return refused

    def take_lost_tasks(self) -> list[AttemptKey]:
        """The attempts that have lost flexible tasks."""
        keys, self._with_lost_tasks = self._with_lost_tasks, []
        return keys

    def take_reconciliations(self) -> list[Reconciliation]:
        """One for each complete report of a cluster."""
        found, self._reconciliations = self._reconciliations, []
        return found

    async def take(self, messages: Iterable[LinkMessage], now_real_s: float) -> None:
        """Takes in messages in the order in which they came."""
        turns = Turns()
        for message in messages:
            if message.cluster not in self._sender.links:
                continue  # The cluster left the region meanwhile.
            match message:
                case ClusterReport():
                    await self._take_report(message, turns)
                case ChangeRefused():
                    self._refused_changes.append(message)
                case LinkLost():
                    self._absent.lost(message.cluster, now_real_s)
                    self._sender.disconnected(message.cluster)

    async def _take_report(self, report: ClusterReport, turns: Turns) -> None:
        found = Reconciliation(report.cluster)
        if report.complete:
            self._sender.connected(report.cluster, report.connection)
            self._absent.reached(report.cluster)
            named = {status.key for status in report.attempts}
            for attempt in self._live:
                if attempt.key not in named:
                    found.not_found += _is_to_run_there(attempt, report.cluster)
                    self._not_known_there(attempt, report.cluster)
                await turns.give_way()
        unknown: list[AttemptStatus] = []
        for status in report.attempts:
            reported = self._live.get(status.key)
            if reported is None or report.cluster not in reported.clusters:
                unknown.append(status)
                found.stopped += not status.ended
            else:
                found.ended_meanwhile += status.ended
                found.went_on += not status.ended and reported.started_s is not None
                self._take_status(reported, report.cluster, status)
            await turns.give_way()
        self._sender.dismiss(report.cluster, unknown)
        self._machine_reports.extend(report.machines)
        if report.complete:
            self._reconciliations.append(found)

    def _not_known_there(self, attempt: LiveAttempt, cluster: ClusterId) -> None:
        attempt.reports.pop(cluster, None)
        attempt.perhaps_known.discard(cluster)
        if cluster in attempt.clusters:
            self._due_attempts.look_at(attempt)

    def _take_status(self, attempt: LiveAttempt, cluster: ClusterId, status: AttemptStatus) -> None:
        before = attempt.reports.get(cluster)
        attempt.reports[cluster] = status
        for action in take_report(attempt, status, self._clock.now()):
            # Progress is written in turns as it stands; orders follow from where the attempt stands.
            if isinstance(action, RecordCheckpoint):
                self._checkpoints.append(action)
                self._due_attempts.record(attempt.key)
        if status.lost_tasks:
            self._with_lost_tasks.append(attempt.key)
        self._due_attempts.give_orders(attempt.key)
        # Of one that was running when this session began, that it still runs is no news.
        phase_before = AttemptPhase.RUNNING if before is None else before.phase
        moves_on = status.phase is not phase_before or attempt.started_s is None or change_carried_out(attempt)
        if moves_on or (status.measured and any(new_profiles(attempt))):
            self._due_attempts.record(attempt.key)
        elif attempt.written is None or attempt.written.is_out_of_date(attempt.shown):
            self._due_attempts.record_progress(attempt.key)


def _is_to_run_there(attempt: LiveAttempt, cluster: ClusterId) -> bool:
    return attempt.started_s is not None and cluster in attempt.clusters
