"""What a scan pass decides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from domain.placement import AttemptKey
from domain.rank import QueuePosition, Standing
from global_scheduler.scan_view import ScanView


@dataclass(frozen=True, slots=True)
class Reclassification:
    """A live attempt changes between within-quota and over-quota, follows its tenant to another priority, or
    changes its level."""

    key: AttemptKey
    within_quota: bool
    standing: Standing
    was_within_quota: bool
    was_standing: Standing
    row: int
    """Its position in the view's running attempts."""

    @property
    def promoted(self) -> bool:
        return self.within_quota and not self.was_within_quota

    @property
    def demoted(self) -> bool:
        return self.was_within_quota and not self.within_quota


@dataclass(slots=True, eq=False)
class ScanPlan:
    """The queue after the pass. Arrays are read-only, one element per pending entry of the view, in its order."""

    now: float
    priority: NDArray[np.int8]
    level: NDArray[np.int16]
    credit: NDArray[np.float64]
    """What orders the entry within its (priority, level), the greatest first: the ordering credit of its priority's
    policy, or, for over-quota entries where tenants own cells, that of `opportunistic_order`. This is the credit to
    store: with it (priority, level, -credit, submit time, id) is the order."""
    scan_credit: NDArray[np.float64]
    """Expressions 10 and 11, which ordered the quota pass. The same as `credit` under the default policy."""
    within_quota: NDArray[np.bool_]
    exceeded_bucket: NDArray[np.int16]
    """The first bucket of the view in which an over-quota entry did not fit, else -1."""
    order: NDArray[np.int64]
    """Positions of the entries in the view, from the head of the queue on."""
    at_limit: NDArray[np.bool_] | None
    """Whether as many of its tenant run, or stand before it, as may run: then it is in no auction. None: no tenant has a limit."""
    changed: NDArray[np.int64]
    """Positions, ascending, of the entries whose (priority, level, credit, within_quota) is not the stored one, and of
    those that are promoted."""
    promotions: NDArray[np.int64]
    """Positions, ascending, of the entries that are promoted: what they attained counts from zero from now on. They are
    among `changed`; a promotion is to be stored together with the rank that follows from it, or not at all."""
    next_promotion_s: float
    """When the next entry is to be promoted if all that remain go on waiting; infinity: never."""
    reclassifications: tuple[Reclassification, ...]
    """In the order to apply them: demotions, changes of standing alone, promotions. So no step exceeds a quota."""
    next_level_change_s: float
    """When the next live attempt crosses into another level if all go on; infinity: never."""
    running_use: NDArray[np.int64]
    """[tenant, bucket]: within-quota use of the live attempts, after re-classification."""

    @property
    def rank(self) -> NDArray[np.int64]:
        """Each entry's place in the queue; 0 is the head."""
        rank = np.empty_like(self.order)
        rank[self.order] = np.arange(len(self.order))
        return rank

    def position(self, view: ScanView, entry: int) -> QueuePosition:
        """One entry's place as the rest of the system knows it."""
        return QueuePosition(
            workload=view.pending.workloads[entry],
            standing=Standing(int(self.priority[entry]), int(self.level[entry])),
            credit=float(self.credit[entry]),
            submitted_s=float(view.pending.submitted_s[entry]),
            within_quota=bool(self.within_quota[entry]),
        )

    @property
    def in_auctions(self) -> NDArray[np.int64]:
        """The order without what limits keep back."""
        return self.order if self.at_limit is None else self.order[~self.at_limit[self.order]]
