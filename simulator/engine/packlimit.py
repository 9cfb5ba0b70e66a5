"""PACKLIMIT in a simulation: a number, that of the snapshot where the run begins, or learnt as the service learns it.

What is learnt from is how fast attempts were, consolidated and spread: `placement.spread_slowdown` says how much slower spread work
is, and with `--profiles` what it holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from cluster_manager.skew.packlimit_history import PacklimitHistory
from domain.iteration_times import RanOn, Sums
from formats.scheduler_file import LEARNT
from simulator.engine.settings import PlacementSettings

_LEARNING_S = 60.0
"""As in the service: fitted anew at most so often."""


class SimulatedPacklimit:
    """The limit that is in force."""

    def __init__(self, settings: PlacementSettings, known: Iterable[tuple[RanOn, Sums]] = ()) -> None:
        """`known`: what had been measured when the run begins."""
        self.learns = settings.packlimit == LEARNT
        self.history = PacklimitHistory()
        self.history.take(known)
        fixed = settings.fixed_packlimit
        self.limit = self.history.fit().limit if fixed is None else fixed
        self._changed = False
        self._fitted_s = -math.inf

    def measured(self, samples: Iterable[tuple[RanOn, float, float]], now: float) -> None:
        """An attempt is over: of its jobs, what ran, its skew, and the time of what takes a second at full speed."""
        for ran, skew, mean_s in samples:
            self.history.add(ran, skew, mean_s)
            self._changed = self._changed or self.history.has_run_both_ways(ran)
        if self._changed and now >= self._fitted_s + _LEARNING_S:
            self.limit, self._changed, self._fitted_s = self.history.fit().limit, False, now
