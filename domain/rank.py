"""Where a workload stands in the one order: (priority, level, -credit, submit time, id)."""

from __future__ import annotations

from typing import NamedTuple

from domain.identifiers import WorkloadId


class Standing(NamedTuple):
    """(priority, level): smaller is better; only a strictly better one may evict (I5)."""

    priority: int
    level: int


class QueuePosition(NamedTuple):
    """A workload's full place in the queue, as the scan pass decided it."""

    workload: WorkloadId
    standing: Standing
    credit: float
    submitted_s: float
    within_quota: bool

    @property
    def sort_key(self) -> tuple[int, int, float, float, WorkloadId]:
        """Ascending order of this key is the order of the queue; it ends in the id, so it is total."""
        return (*self.standing, -self.credit, self.submitted_s, self.workload)
