"""What a regional scheduler tells of workloads for their traces: how long they were queued, dispatched, started, and ran."""

from __future__ import annotations

import time

from cluster_manager.attempt_run.actions import RecordEnd, RecordStart
from domain.identifiers import RegionId
from domain.placement import AttemptKey
from services.clock import ServiceClock
from services.regional_scheduler.live_attempts import LiveAttempt
from services.tracing.traces import Traces


class RegionTraces:
    """Those of one region. Spans have real times, whatever the service's clock."""

    def __init__(self, region: RegionId, traces: Traces, clock: ServiceClock) -> None:
        self._region = region
        self._traces = traces
        self._clock = clock

    @property
    def wanted(self) -> bool:
        return self._traces.wanted

    def dispatched(self, attempt: LiveAttempt, took_real_s: float) -> None:
        now_real_s = time.time()
        if attempt.submitted_s is not None:
            self._done("queue", attempt.key, self._real_s(attempt.submitted_s), now_real_s - took_real_s)
        self._done("dispatch", attempt.key, now_real_s - took_real_s, now_real_s)

    def started(self, attempt: LiveAttempt, start: RecordStart) -> None:
        self._done("start", start.key, self._real_s(attempt.dispatched_s), self._real_s(start.started_s))

    def ended(self, attempt: LiveAttempt, end: RecordEnd) -> None:
        since_s = attempt.dispatched_s if attempt.started_s is None else attempt.started_s
        self._done("run", end.key, self._real_s(since_s), self._real_s(end.ended_s), end=end.end)

    def _done(self, what: str, key: AttemptKey, from_real_s: float, to_real_s: float, **said: str | int) -> None:
        said = {"attempt": int(key.attempt), "region": self._region, **said}
        self._traces.done(what, key.workload, from_real_s, to_real_s, said)

    def _real_s(self, t_s: float) -> float:
        return time.time() - self._clock.real_seconds(self._clock.now() - t_s)
