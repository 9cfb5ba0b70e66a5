"""What goes wrong while a region plans: in mechanisms of packages, and in planning itself.

Rule: where faults are *contained*, a workload whose planning raises is refused, and what was raised is kept for who tells it; all
other workloads are planned as ever (docs/decisions/114). Else it is raised: in simulations a defect is not passed over.

Invariant: planning that raises leaves the region as it was, as planning that does not raise does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cluster_manager.guarded_mechanism import GuardedMechanism, MechanismFailure
from cluster_manager.mechanism import PlacementMechanism
from domain.identifiers import WorkloadId

MOST_KEPT = 16
"""Workloads of which it is kept what their planning raised; of all others it is only known how many there were."""

SET_ASIDE_S = 60.0
"""A workload whose planning failed at its dispatch, though the region had made a bid for it, gets no further bid for so long: the
auction would be held again at once."""
MOST_SET_ASIDE = 1024


class FailedPlanning(NamedTuple):
    """Planning raised for this workload."""

    workload: WorkloadId
    error: Exception


class PlanningFaults:
    """Those of one region, until they are taken."""

    __slots__ = ("_errors", "_guarded", "_set_aside", "contained", "failed_plans")

    def __init__(self, mechanisms: Sequence[PlacementMechanism]) -> None:
        self.contained = False
        """Whether a workload whose planning raises is refused."""
        self.failed_plans = 0
        """How often that was so."""
        self._guarded = tuple(one for one in mechanisms if isinstance(one, GuardedMechanism))
        self._errors: dict[WorkloadId, Exception] = {}
        self._set_aside: dict[WorkloadId, float] = {}
        """Until when, in the order in which they were set aside."""

    @property
    def has_guarded_mechanisms(self) -> bool:
        """Whether any mechanism is of a package."""
        return bool(self._guarded)

    def take_mechanism_failures(self) -> list[MechanismFailure]:
        """What mechanisms of packages did wrong since the last call, each failure once."""
        return [failure for mechanism in self._guarded for failure in mechanism.take_failures()]

    def planning_failed(self, workload: WorkloadId, error: Exception) -> None:
        """To be called while the error is handled, and only where faults are contained."""
        self.failed_plans += 1
        if len(self._errors) < MOST_KEPT:
            self._errors.setdefault(workload, error)

    def take_failed_planning(self) -> list[FailedPlanning]:
        """What planning raised since the last call, the first error of each workload."""
        taken, self._errors = self._errors, {}
        return [FailedPlanning(workload, error) for workload, error in taken.items()]

    def set_aside(self, workload: WorkloadId, now_s: float) -> None:
        """To be called when planning failed at the dispatch of what the region had won."""
        self._set_aside.pop(workload, None)
        if len(self._set_aside) == MOST_SET_ASIDE:
            del self._set_aside[next(iter(self._set_aside))]
        self._set_aside[workload] = now_s + SET_ASIDE_S

    def is_set_aside(self, workload: WorkloadId, now_s: float) -> bool:
        """Whether the region makes no bid for it at the moment."""
        until_s = self._set_aside.get(workload)
        if until_s is None:
            return False
        if now_s < until_s:
            return True
        del self._set_aside[workload]
        return False

    def go_on_from(self, before: PlanningFaults) -> None:
        """After a change of the region: what was not taken yet can still be."""
        self.contained, self.failed_plans = before.contained, before.failed_plans
        self._errors, self._set_aside = before._errors, before._set_aside
