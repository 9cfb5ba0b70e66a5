"""Which attempts of which workloads have been seen: the fence that keeps stale ones out (design I8)."""

from __future__ import annotations

from domain.identifiers import AttemptNumber, WorkloadId
from domain.placement import AttemptKey
from services.execution.executor import StaleOrder

REMEMBERED_WORKLOADS = 200_000
"""Of so many workloads whose attempts were all forgotten the newest number is still known. Late messages are seconds
late, not hundreds of thousands of workloads late; and the caller's own fencing token stands behind this."""


class AttemptRegister:
    """The newest attempt seen of each workload, and whether it was forgotten. Several executors may share one."""

    def __init__(self, remembered_workloads: int = REMEMBERED_WORKLOADS) -> None:
        self._remembered_workloads = remembered_workloads
        self._newest: dict[WorkloadId, AttemptNumber] = {}
        self._forgotten: dict[WorkloadId, AttemptNumber] = {}

    def newest(self, workload: WorkloadId) -> AttemptNumber:
        """The greatest attempt number seen; 0 when none was."""
        return self._newest.get(workload) or self._forgotten.get(workload) or AttemptNumber(0)

    def admit(self, key: AttemptKey) -> None:
        """Notes the attempt; raises StaleOrder when a newer one was seen, or this one has ended and was forgotten."""
        newest = self.newest(key.workload)
        if key.attempt < newest:
            raise StaleOrder(key, f"attempt {key.attempt} of {key.workload} is stale: attempt {newest} has been seen")
        if key.attempt == newest and key.workload in self._forgotten:
            raise StaleOrder(key, f"attempt {key.attempt} of {key.workload} has ended, and its end is recorded")
        self._forgotten.pop(key.workload, None)
        self._newest[key.workload] = key.attempt

    def forget(self, key: AttemptKey) -> None:
        """The attempt has ended and is recorded: from now on it is refused."""
        if self._newest.get(key.workload) == key.attempt:
            del self._newest[key.workload]
            self._forgotten[key.workload] = key.attempt
            while len(self._forgotten) > self._remembered_workloads:
                del self._forgotten[next(iter(self._forgotten))]
