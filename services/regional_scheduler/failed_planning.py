"""Planning that raised: in the log of the process, and counted. It is a defect; the workload waits, and all others are planned."""

from __future__ import annotations

from typing import Final

import structlog

from domain.identifiers import WorkloadId
from services.regional_scheduler.invariant_watch import InvariantWatch
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.region_metrics import RegionMetrics

TOLD_AGAIN_REAL_S: Final = 3600.0
"""A workload is planned in each round, and its planning may fail in each: it is in the log once in so long."""

MOST_TOLD: Final = 20
"""Workloads in the log in that time: where every newcomer fails, these say enough."""

_log = structlog.get_logger(__name__)


class FailedPlanningWatch:
    """Of one session; `now_real_s` is a monotonic time."""

    def __init__(
        self, memory: RegionMemory, metrics: RegionMetrics, invariants: InvariantWatch, now_real_s: float
    ) -> None:
        self._memory = memory
        self._metrics = metrics
        self._invariants = invariants
        self._counted = 0
        self._told: set[WorkloadId] = set()
        self._told_since_real_s = now_real_s

    def tell(self, now_real_s: float) -> None:
        """Tells what is new. What planning left of the region is looked at soon when it has failed for another workload."""
        faults, region = self._memory.inventory.faults, self._memory.region.region
        if faults.failed_plans == self._counted:
            return
        self._metrics.planning_failed(faults.failed_plans - self._counted)
        self._counted = faults.failed_plans
        if now_real_s >= self._told_since_real_s + TOLD_AGAIN_REAL_S:
            self._told.clear()
            self._told_since_real_s = now_real_s
        for failed in faults.take_failed_planning():
            if failed.workload in self._told or len(self._told) == MOST_TOLD:
                continue
            self._told.add(failed.workload)
            self._invariants.look_soon()
            _log.error(
                "planning failed; the workload waits, and all others are planned",
                region=region,
                workload=failed.workload,
                exc_info=failed.error,
            )
