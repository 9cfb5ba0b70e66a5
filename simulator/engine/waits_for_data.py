"""How long workloads wait because no region holds what they read."""

from __future__ import annotations


class WaitsForData:
    """Of every workload of a run, by index."""

    def __init__(self) -> None:
        self._since_s: dict[int, float] = {}
        self._waited_s: dict[int, float] = {}
        """Of those whose wait has ended, all their waits together."""

    def begins(self, workload: int, now: float) -> None:
        """It waits from now on, if it does not already."""
        self._since_s.setdefault(workload, now)

    def ends(self, workload: int, now: float) -> None:
        """A region holds what it reads."""
        since_s = self._since_s.pop(workload, now)
        self._waited_s[workload] = self._waited_s.get(workload, 0.0) + now - since_s

    @property
    def workloads(self) -> int:
        """How many have waited, or do."""
        return len(self._waited_s.keys() | self._since_s.keys())

    def seconds(self, now: float) -> float:
        """Of all of them together, until now."""
        return sum(self._waited_s.values()) + sum([now - since_s for since_s in self._since_s.values()])
