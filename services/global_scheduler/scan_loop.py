"""The scan pass, again and again: every period, soon after what it should know of, and when a workload's backoff ends."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import structlog
from numpy.typing import NDArray

from domain.identifiers import WorkloadId
from global_scheduler.credit_turns import credit_turns
from global_scheduler.explanation import explain_entry
from global_scheduler.knowledge import OracleNeeded
from global_scheduler.policy_failed import PolicyFailed
from services.clock import ServiceClock
from services.configuration import Configuration
from services.database import completed_store, usage_store
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.lease_store import Lease, LeaseLost
from services.database.watcher import Subscription
from services.global_scheduler.completed_service import CompletedService
from services.global_scheduler.kept_queue import KeptQueue
from services.global_scheduler.live_packing_order import live_packing_order
from services.global_scheduler.scan_decision import ScanDecision, ScanSnapshot, decide, load_snapshot
from services.global_scheduler.scan_record import (
    SnapshotOutdated,
    parts_of,
    record_credits,
    record_ranks,
    record_reclassifications,
)
from services.metrics.service_metrics import ServiceMetrics

_REST = 3.0
"""After a pass of t seconds the next one waits for at least three times that: three quarters of the time are others',
and the auctions get through the queue before they begin again at its head."""

_AFTER_LATER_REAL_S = 1.0
"""The next pass comes so soon when credits were stored after the last one."""

_RETRY_REAL_S = 1.0

_WINDOWS_KEPT = 2.0
"""Use is forgotten when it is that many usage windows old."""

_log = structlog.get_logger(__name__)


class ScanLoop:
    """Keeps the queue in order. `run` until cancelled."""

    def __init__(
        self,
        database: Database,
        clock: ServiceClock,
        configuration: Configuration,
        metrics: ServiceMetrics | None = None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._configuration = configuration.scan
        self._settings = configuration.scan_settings()
        self._estimates = configuration.estimates
        self._counts_run_times = configuration.counts_run_times
        self._service = CompletedService(self._settings)
        self._packing = live_packing_order(configuration.tuning_mechanism(), database)
        self._queue = KeptQueue()
        self._later: tuple[ScanDecision, Sequence[NDArray[np.int64]]] | None = None
        """What the last pass has left to be stored after it."""
        self._last: ScanDecision | None = None
        self._metrics = metrics or ServiceMetrics()

    async def run(self, lease: Lease) -> None:
        """What it records counts only while the lease is ours."""
        self._queue.forget()
        async with self._database.listen(SCAN_CHANNEL) as subscription:
            while True:
                started = asyncio.get_running_loop().time()
                try:
                    next_due_s = await self.run_pass(lease)
                    took_s = asyncio.get_running_loop().time() - started
                    self._count_pass("recorded", took_s)
                    period_real_s = await self._record_later(lease, subscription)
                except SnapshotOutdated as outdated:
                    self._count_pass("outdated")
                    _log.info("scan pass given up", why=str(outdated))
                    continue
                except (PolicyFailed, OracleNeeded) as failed:
                    # The queue stays as it was ranked last, and everything else goes on.
                    self._count_pass("failed")
                    _log.error("scan pass given up: a policy of scheduler.yaml failed", error=str(failed))
                    next_due_s, period_real_s = None, self._configuration.period_real_s
                    took_s = asyncio.get_running_loop().time() - started
                except (LeaseLost, DatabaseUnavailable) as error:
                    # A lease that is over, but that no other process has taken, is soon renewed; else the tier ends us.
                    self._count_pass("interrupted")
                    _log.warning("scan pass given up", error=str(error))
                    await asyncio.sleep(_RETRY_REAL_S)
                    continue
                rest_real_s = started + took_s + _REST * took_s - asyncio.get_running_loop().time()
                await asyncio.sleep(max(0.0, rest_real_s))
                await self._wait(subscription, period_real_s, next_due_s)

    def _count_pass(self, outcome: str, took_real_s: float | None = None) -> None:
        metrics = self._metrics
        metrics.scan_passes.labels(outcome).inc()
        if took_real_s is not None:
            metrics.scan_pass_seconds.observe(took_real_s)
            metrics.scan_pass_last_time_seconds.set_to_current_time()

    async def _record_later(self, lease: Lease, subscription: Subscription) -> float:
        """Stores what the last pass has left for later, until something new is to be ranked: what is left even then is found
        again by the next pass. Returns in how many real seconds that comes at the latest.
        """
        if self._later is None:
            return self._configuration.period_real_s
        decision, parts = self._later
        for part in parts:
            await self._database.run(partial(record_credits, lease=lease, decision=decision, entries=part))
            if subscription.is_woken:
                break
        # Some may have got before where the auctions are by now: the next pass takes them back to the head.
        return min(self._configuration.period_real_s, _AFTER_LATER_REAL_S)

    async def _wait(self, subscription: Subscription, period_real_s: float, next_due_s: float | None) -> None:
        """Until the next pass is due."""
        timeout_s = period_real_s
        if next_due_s is not None:
            timeout_s = min(timeout_s, max(0.0, self._clock.real_seconds(next_due_s - self._clock.now())))
        if await subscription.wait(timeout_s):
            await asyncio.sleep(self._configuration.debounce_real_s)  # what comes meanwhile is taken along

    async def run_pass(self, lease: Lease) -> float | None:
        """One pass; returns when an entry that must wait comes back, or the next one is to be promoted."""
        # 1. Count what was used, and what has completed, since the last pass.
        now, stage = self._clock.now(), self._metrics.scan_stage_seconds.labels
        with stage("count").time():
            await self._database.run(partial(self._count_use, now=now))
            if self._counts_run_times or self._service.needed:
                await self._count_completed()
            await self._service.catch_up(self._database)
        # 2. Observe: one moment of the database.
        with stage("observe").time():
            snapshot = await self._database.run(
                partial(load_snapshot, now=now, settings=self._settings, estimates=self._estimates, kept=self._queue),
                snapshot=True,
            )
        # 3. Decide, in a thread: calls are answered meanwhile.
        with stage("decide").time():
            packing = None if self._packing is None else await self._packing.numbers(snapshot.pending)
            decision = await asyncio.to_thread(decide, snapshot, self._settings, self._service.history, packing)
        self._last = decision
        # 4. Record: first which attempts run within quota, then the order of the queue.
        with stage("record").time():
            await self._record(lease, snapshot, decision)
        self._metrics.scan_pass_entries.set(len(snapshot.pending.workloads))
        return _earlier(snapshot.next_due_s, decision.plan.next_promotion_s)

    async def _record(self, lease: Lease, snapshot: ScanSnapshot, decision: ScanDecision) -> None:
        reclassified = 0
        for changes in parts_of(decision.plan.reclassifications):
            reclassified += await self._database.run(
                partial(record_reclassifications, lease=lease, decision=decision, changes=changes, clock=self._clock)
            )
        self._later = None
        if _worth_recording(snapshot, reclassified):
            turns = credit_turns(decision.view.pending.stored, decision.plan)
            await self._database.run(
                partial(
                    record_ranks,
                    lease=lease,
                    decision=decision,
                    clock=self._clock,
                    reclassified=reclassified,
                    entries=turns.first,
                )
            )
            self._later = (decision, turns.later) if turns.later else None
        self._metrics.reclassified_attempts.inc(reclassified)

    async def _count_use(self, connection: AnyConnection, now: float) -> None:
        await usage_store.count_use(connection, now)
        forgotten_s = now - _WINDOWS_KEPT * self._configuration.usage_window_s
        await usage_store.forget_use(connection, forgotten_s)

    async def _count_completed(self) -> None:
        """In parts, each of which is committed: there may be many after a long time in which nobody counted."""
        while await self._database.run(completed_store.count_completed) == completed_store.COUNTED_AT_ONCE:
            _log.info("counted completed workloads", workloads=completed_store.COUNTED_AT_ONCE)

    def explain(self, workload: WorkloadId) -> str:
        """Why the last pass put the workload within or over its quota; empty when that pass did not see it."""
        decision = self._last
        entry = None if decision is None else decision.entry_of(workload)
        return "" if decision is None or entry is None else explain_entry(decision.view, decision.plan, entry)


def _earlier(due_s: float | None, promotion_s: float) -> float | None:
    if math.isinf(promotion_s):
        return due_s
    return promotion_s if due_s is None else min(due_s, promotion_s)


def _worth_recording(snapshot: ScanSnapshot, reclassified: int) -> bool:
    """Each recorded pass gives all that is queued a new chance in the auctions; an empty queue needs no second one."""
    last = snapshot.last_pass
    return bool(snapshot.pending.workloads) or reclassified > 0 or last is None or last.entries > 0
