"""What a regional scheduler counts, measures and tells of, after the fact: nothing that is decided looks at it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from enum import StrEnum

from cluster_manager.attempt_run.actions import RecordEnd, RecordStart
from domain.events import EvictionCause
from domain.identifiers import RegionId
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY
from regional_scheduler.auction import AwaitingData, RoundOutcome, Waiting, Won
from services.metrics.service_metrics import ServiceMetrics, quota_class
from services.regional_scheduler.dispatching import Dispatched
from services.regional_scheduler.live_attempts import RegionAttempts
from services.regional_scheduler.recording import Recorded
from services.regional_scheduler.region_traces import RegionTraces

_VERDICTS = {Won: "won", Waiting: "waiting", AwaitingData: "awaiting_data"}
_OTHER_ENDS = ("completed", "failed", "cancelled")


class Planning(StrEnum):
    """What is planned."""

    ANSWER = "answer"
    """To a round: all its lots, in all clusters of the region."""
    DECISION = "decision"
    """Of a round: who wins what."""


class RegionMetrics:
    """Those of one region, in the registry of its process."""

    def __init__(
        self, region: RegionId, metrics: ServiceMetrics | None = None, traces: RegionTraces | None = None
    ) -> None:
        """`traces`: of the workloads, where they are wanted."""
        self._region = region
        self._traces = traces if traces is not None and traces.wanted else None
        self._metrics = metrics = metrics or ServiceMetrics()
        # Present from the beginning, so that the first one is seen to be one more.
        for cause in EvictionCause:
            metrics.evictions.labels(region, cause.value)
        for verdict in _VERDICTS.values():
            metrics.lots.labels(region, verdict)
        metrics.sessions.labels(region)
        metrics.failed_plans.labels(region)
        for priority in range(HIGHEST_PRIORITY, LOWEST_PRIORITY + 1):
            for within_quota in (True, False):
                metrics.start_latency_seconds.labels(str(priority), quota_class(within_quota=within_quota))
        self._turn_time_seconds = metrics.session_turn_time_seconds.labels(region)

    def session_began(self) -> None:
        self._metrics.sessions.labels(self._region).inc()
        self.turn_begins()

    def turn_begins(self) -> None:
        """Of the session's loop."""
        self._turn_time_seconds.set_to_current_time()

    def planning(self, purpose: Planning) -> AbstractContextManager[object]:
        """Measures how long the context lasts."""
        return self._metrics.plan_seconds.labels(self._region, purpose.value).time()

    def planning_failed(self, times: int) -> None:
        self._metrics.failed_plans.labels(self._region).inc(times)

    def round_closed(self, outcome: RoundOutcome, open_for_real_s: float) -> None:
        metrics = self._metrics
        metrics.rounds_closed.labels(self._region).inc()
        metrics.round_seconds.labels(self._region).observe(open_for_real_s)
        for verdict in outcome.verdicts:
            metrics.lots.labels(self._region, _VERDICTS[type(verdict)]).inc()
            if isinstance(verdict, Waiting | AwaitingData):
                metrics.refused_lots.labels(self._region, verdict.diagnosis.reason.value).inc()

    def dispatched(self, dispatched: Dispatched, took_real_s: float) -> None:
        metrics = self._metrics
        metrics.dispatch_seconds.labels(self._region).observe(took_real_s)
        metrics.awards_given_back.labels(self._region).inc(dispatched.given_back)
        for attempt in dispatched.attempts:
            quota = quota_class(within_quota=attempt.within_quota)
            metrics.dispatches.labels(self._region, str(attempt.standing.priority), quota).inc()
            if self._traces is not None:
                self._traces.dispatched(attempt, took_real_s)

    def recorded(self, recorded: Recorded, live: RegionAttempts) -> None:
        """Starts and ends; to be told before they change anything in memory."""
        self._started(recorded.started, live)
        self._ended(recorded.ended, live)

    def progress_waits(self, waited_real_s: float | None) -> None:
        """For how long the oldest progress has waited to be written; None: none waits."""
        since_s = 0.0 if waited_real_s is None else time.time() - waited_real_s
        self._metrics.progress_oldest_unwritten_time_seconds.labels(self._region).set(since_s)

    def _started(self, starts: Iterable[RecordStart], live: RegionAttempts) -> None:
        metrics = self._metrics
        for start in starts:
            attempt = live.get(start.key)
            if attempt is None:
                continue
            if self._traces is not None:
                self._traces.started(attempt, start)
            waited_s = start.started_s - attempt.dispatched_s
            metrics.dispatch_to_start_seconds.labels(self._region).observe(max(0.0, waited_s))
            if attempt.submitted_s is not None:
                quota = quota_class(within_quota=attempt.within_quota)
                latency = metrics.start_latency_seconds.labels(str(attempt.standing.priority), quota)
                latency.observe(max(0.0, start.started_s - attempt.submitted_s))

    def _ended(self, ends: Iterable[RecordEnd], live: RegionAttempts) -> None:
        metrics = self._metrics
        for end in ends:
            attempt = live.get(end.key)
            if self._traces is not None and attempt is not None:
                self._traces.ended(attempt, end)
            evicted = end.end not in _OTHER_ENDS
            metrics.attempts_ended.labels(self._region, "evicted" if evicted else end.end).inc()
            if evicted:
                metrics.evictions.labels(self._region, end.end).inc()
