"""A region hears of workloads that were changed: what it remembers of them is read anew, and live ones have new limits.

Until then it may answer an auction by what was asked for before; what it wins is dispatched by what is asked for then.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.database.changed_workload_store import ChangedWorkload
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.time_limits import RunningLimits
from services.wire.workloads import specification_from_proto
from topmast.v1 import workload_pb2


class ChangedWorkloads:
    """What one session has heard of."""

    def __init__(self, memory: RegionMemory, limits: RunningLimits) -> None:
        self._memory = memory
        self._limits = limits
        self.seen = 0
        """The newest revision that it has heard of."""

    def take(self, changed: Iterable[ChangedWorkload]) -> None:
        """Takes these over, which come in the order of their revisions."""
        for one in changed:
            self.seen = one.revision
            self._memory.specifications.forget(one.newest.workload)
            attempt = self._memory.live.get(one.newest)
            if attempt is not None:
                message = workload_pb2.WorkloadSpecification.FromString(one.specification)
                attempt.specification = specification_from_proto(message)
                self._limits.watch(attempt)
