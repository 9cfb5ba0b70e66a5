"""Records what became of attempts, and does to memory what was committed: what ended holds nothing any more."""

from __future__ import annotations

import math

from cluster_manager.attempt_run.actions import RecordEnd
from domain.clock import Clock
from domain.life_cycle import State
from domain.placement import AttemptKey
from services.database.channels import SCAN_CHANNEL
from services.database.connection import wake_after_commit
from services.database.engine import Database
from services.database.eviction_guard import preemptions
from services.database.lease_store import Lease
from services.progress_pace import WRITTEN
from services.regional_scheduler.arrivals import Arrivals
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.gang_reports import end_of, start_of
from services.regional_scheduler.measurements import record_measurements
from services.regional_scheduler.order_sender import OrderSender
from services.regional_scheduler.recording import record_reports
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.region_metrics import RegionMetrics
from services.regional_scheduler.report_taker import ReportTaker
from services.regional_scheduler.session_over import SessionOver
from services.regional_scheduler.time_limits import RunningLimits

_LONGEST_PAUSE_REAL_S = 5.0
"""What was not written because the loop was busy for longer is not made up for: the next transaction stays small."""


class AttemptRecorder:
    """Starts, checkpoints, progress and ends of a region's attempts, as its cluster managers report them."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        memory: RegionMemory,
        due_attempts: DueAttempts,
        reports: ReportTaker,
        sender: OrderSender,
        arrivals: Arrivals,
        limits: RunningLimits,
        clock: Clock,
        metrics: RegionMetrics | None = None,
    ) -> None:
        self._metrics = metrics or RegionMetrics(memory.region.region)
        self._limits = limits
        self._arrivals = arrivals
        self._database = database
        self._lease = lease
        self._memory = memory
        self._due_attempts = due_attempts
        self._reports = reports
        self._sender = sender
        self._clock = clock
        self._progress_written_real_s = -math.inf

    async def record(self, now_real_s: float) -> None:
        """One transaction for everything that is news; nothing when there is none."""
        self._metrics.progress_waits(self._due_attempts.progress_waits_real_s())
        elapsed_real_s = min(now_real_s - self._progress_written_real_s, _LONGEST_PAUSE_REAL_S)
        progress_is_due = self._due_attempts.has_progress and elapsed_real_s >= WRITTEN.shortest_s
        if not (self._due_attempts.has_news or progress_is_due):
            return
        live = self._memory.live
        keys = self._due_attempts.take_news()
        if progress_is_due:
            keys += self._due_attempts.take_progress(WRITTEN.share(len(live), elapsed_real_s))
            self._progress_written_real_s = now_real_s
        reported = [attempt for key in keys if (attempt := live.get(key)) is not None]
        checkpoints = self._reports.take_checkpoints()
        if not reported:
            return
        async with self._database.transaction(pipelined=True) as connection:
            recorded = await record_reports(
                connection, self._memory.region.region, reported, checkpoints, self._clock.now(), self._lease
            )
            over = [attempt for end in recorded.ended if (attempt := live.get(end.key)) is not None]
            profiles = await record_measurements(connection, self._memory.region, reported, over, self._clock.now())
            successors = [str(successor.key.workload) for _, successor in recorded.successors]
            preempted_s = await preemptions(connection, self._memory.inventory.rule, successors, self._clock.now())
            if any(self._memory.inventory.voluntary.will_give_up(start.key) for start in recorded.started):
                # What runs can do without something, which who waits does not know yet.
                wake_after_commit(connection, SCAN_CHANNEL)
        self._metrics.recorded(recorded, live)
        for attempt in reported:
            attempt.written = attempt.shown
        for key, run in recorded.runs.items():
            live.move(key, run)
        by_workload = {attempt.key.workload: attempt for attempt in reported}
        for profile in profiles:
            by_workload[profile.workload].profiles += (profile,)
            self._memory.newly_reported.append(by_workload[profile.workload].key)
        for key, since in recorded.changed:
            self._memory.inventory.change_carried_out(key)
            self._leave_clusters(key)
            for waiting in live.end_change(key, since):
                self._due_attempts.give_orders(waiting)
        for start in recorded.started:
            self._memory.inventory.begin_run(start.key, start.started_s)
            self._limits.watch(live.get(start.key))
            self._memory.inventory.change_carried_out(start.key)
        for checkpoint in checkpoints:
            if self._memory.inventory.holding(checkpoint.key) is not None:
                self._memory.inventory.save_work(checkpoint.key, checkpoint.saved_s)
        for end in recorded.ended:
            self._end(end)
        for region, successor in recorded.successors:
            if region == self._memory.region.region:
                self._arrivals.admit(successor, preempted_s)
        for attempt in reported:
            known = live.get(attempt.key)
            if known is not None and end_of(known, self._clock.now()) is not None:
                raise SessionOver(f"{attempt.key} had ended in the database already")
            if known is not None and start_of(known) is not None:
                raise SessionOver(f"{attempt.key} had started in the database already")

    def _end(self, end: RecordEnd) -> None:
        """It holds nothing any more; what will not run again is forgotten."""
        self._free(end.key)
        self._arrivals.withdraw(end.key.workload)
        if end.next_state is not State.PENDING:
            self._memory.specifications.forget(end.key.workload)

    def _leave_clusters(self, key: AttemptKey) -> None:
        """Its change is carried out: clusters in which it holds nothing any more forget it."""
        attempt = self._memory.live.get(key)
        if attempt is None:
            return
        for cluster in attempt.left_clusters:
            attempt.leave(cluster)
            self._sender.forget(cluster, (key,))

    def _free(self, key: AttemptKey) -> None:
        attempt = self._memory.live.get(key)
        if attempt is None:
            return
        self._memory.inventory.release(key)
        for cluster in attempt.clusters:
            self._sender.forget(cluster, (key,))
        waiting_changes = self._memory.live.waiting_for(key)
        freed = self._memory.live.remove(key)
        for waiting_change in waiting_changes:
            self._due_attempts.give_orders(waiting_change)
        for waiting in self._memory.live.waiting_on(freed):
            self._due_attempts.give_orders(waiting.key)
