"""Where a workload stands in the one order: (priority, level, -credit, submit time, id)."""

from __future__ import annotations

from typing import NamedTuple

from domain.identifiers import WorkloadId


class Standing(NamedTuple):
    """(priority, level): smaller is better; only a strictly better one may evict (I5)."""

    priority: int
    level: int


OVER_QUOTA_LEVELS = 2**14
"""From this level on over-quota workloads stand where a tenant has a quota at the lowest priority: so they stand worse than all
that are within quota there, go after them and may be evicted for them, whatever levels policies give to either."""


def over_quota_part(level: int) -> int:
    """What of a level says that it is an over-quota one's: OVER_QUOTA_LEVELS or 0. The rest is the policy's."""
    return level // OVER_QUOTA_LEVELS * OVER_QUOTA_LEVELS


def policy_level(level: int) -> int:
    """What of a level the policy gave, the part that users know."""
    return level % OVER_QUOTA_LEVELS


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
