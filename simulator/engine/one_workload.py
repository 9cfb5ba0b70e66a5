"""What level and ordering policies say of one workload: where no scan pass ranks the queue, it is ranked event by event."""

from __future__ import annotations

import math

from domain.rank import over_quota_part
from global_scheduler.arithmetic import PLAIN, Arithmetic
from global_scheduler.levels.policy import LevelPolicy
from global_scheduler.ordering.policy import OrderingPolicy
from global_scheduler.promotion import promotes
from global_scheduler.service_history import ServiceHistory
from simulator.engine.workloads import SimulatedWorkload

AFTER_ALL_OTHERS = 1e12
"""More than any two credits differ by: these are times, or shares of them."""


class OneWorkload:
    """Asks the policies for plain numbers."""

    def __init__(
        self, ordering: OrderingPolicy, levels: LevelPolicy | None, service: ServiceHistory, *, scans: bool
    ) -> None:
        """Without `levels` all are at level 0; `service` is that of the workloads that have completed so far.

        Where scan passes rank the queue (`scans`), they alone decide whether a workload stands among those over quota, and it
        stays there. Elsewhere levels are the policy's alone, and may be any number: those of `expected_end` are seconds.
        """
        self._scans = scans
        self._ordering = ordering
        self._levels = levels
        self._promoting = levels if promotes(levels) else None
        self._input = _OneInput(service)
        self.moves_with_time = levels is not None and levels.moves_with_time
        """Whether the level of what waits depends on `now`."""

    def ordering_credit(self, work: SimulatedWorkload, now: float) -> float:
        """Of a workload that waits, where no scan pass gives credit.

        Those that may run on GPUs of two models at once come after all others of their standing, in the same order among
        themselves (Lyra §6: "with the lowest priority on the remaining servers after all other jobs are scheduled").
        """
        self._input.known, self._input.now = work, now
        credit = float(self._ordering.ordering_credit(self._input))
        return credit - AFTER_ALL_OTHERS if work.may_be_heterogeneous else credit

    def queued_level(self, work: SimulatedWorkload, now: float) -> int:
        """The level at which it waits."""
        over_quota = over_quota_part(work.standing.level) if self._scans else 0
        if self._levels is None:
            return over_quota
        self._input.known, self._input.now = work, now
        return int(self._levels.queued_levels(self._input)) + over_quota

    def running_level(self, work: SimulatedWorkload, now: float) -> tuple[int, float]:
        """The level at which its attempt runs from `now` on, and when it changes next; infinity: never."""
        over_quota = over_quota_part(work.standing.level) if self._scans else 0
        if self._levels is None:
            return over_quota, math.inf
        self._input.known, self._input.now = work, now
        level, until_s = self._levels.running_levels(self._input)
        return int(level) + over_quota, until_s

    def promoted_from_s(self, work: SimulatedWorkload, now: float) -> float:
        """From when on it is promoted if it goes on waiting; infinity: never."""
        if self._promoting is None:
            return math.inf
        self._input.known, self._input.now = work, now
        return float(self._promoting.promoted_from_s(self._input))


class _OneInput:
    """A simulated workload as `OrderingInput`: it has the columns' names, and knows how much of its work is left.

    One is used for all, in turn: policies look at it while they are asked, and keep nothing.
    """

    __slots__ = ("_service", "known", "now")

    arithmetic: Arithmetic[float] = PLAIN
    credit = 0.0

    known: SimulatedWorkload
    now: float

    def __init__(self, service: ServiceHistory) -> None:
        self._service = service

    def remaining_s(self, policy: str) -> float:
        return self.known.expected_remaining_s

    def constant(self, number: float) -> float:
        return number

    def gittins_index(self, attained_gpu_s: float, quantum_gpu_s: float) -> float | None:
        distribution = self._service.distribution_for(self.known.workload.specification.tenant)
        return None if distribution is None else distribution.index_of(attained_gpu_s, quantum_gpu_s)
