"""When attempts become evictable merely because time passes: what may turn a refusal into a plan without any change."""

from __future__ import annotations

import heapq
import math

from domain.identifiers import AttemptNumber, WorkloadId
from domain.placement import AttemptKey, Holding


class EvictableTimes:
    """The times to come, each with its attempt. Attempts that are gone meanwhile stay in it until their time."""

    __slots__ = ("_times", "passed_s")

    def __init__(self) -> None:
        self._times: list[tuple[float, WorkloadId, AttemptNumber]] = []
        self.passed_s = -math.inf
        """Up to here all times were taken."""

    @property
    def next_s(self) -> float:
        """The next of the times; infinity when there is none."""
        return self._times[0][0] if self._times else math.inf

    def expect(self, holding: Holding) -> None:
        """The attempt is held from now on, and will be evictable later (or is already, or never: then nothing happens)."""
        if self.passed_s < holding.evictable_from_s < math.inf:
            heapq.heappush(self._times, (holding.evictable_from_s, *holding.key))

    def is_still_protected(self, holding: Holding) -> bool:
        """Whether the attempt was not evictable yet by the time that has passed."""
        return holding.evictable_from_s > self.passed_s

    def pass_until(self, now: float) -> list[tuple[AttemptKey, float]]:
        """Takes all times up to `now`, in order, with their attempts. Time never goes back: an earlier `now` has none."""
        taken: list[tuple[AttemptKey, float]] = []
        if now > self.passed_s:
            self.passed_s = now
            while self._times and self._times[0][0] <= now:
                from_s, workload, attempt = heapq.heappop(self._times)
                taken.append((AttemptKey(workload, attempt), from_s))
        return taken
