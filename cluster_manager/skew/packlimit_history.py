"""What PACKLIMIT is learnt from: sums of iteration times by what ran, for the service and for simulations.

A job (tenant, name, job, tasks, GPUs of each, GPU model) is a sample once it has run both consolidated and spread; the
slowdown is the ratio of the two means.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cluster_manager.skew.packlimit import PackLimit, fit_packlimit
from domain.iteration_times import RanOn, Sums


class PacklimitHistory:
    """The sums, and the limit that they come to."""

    def __init__(self) -> None:
        self._sums: dict[RanOn, Sums] = {}

    def __len__(self) -> int:
        return len(self._sums)

    def take(self, sums: Iterable[tuple[RanOn, Sums]]) -> bool:
        """These are the sums now of what they name; returns whether any is another one than before."""
        changed = False
        for ran, found in sums:
            changed = changed or self._sums.get(ran) != found
            self._sums[ran] = found
        return changed

    def add(self, ran: RanOn, skew: float, mean_s: float) -> None:
        """One more attempt has ended."""
        before = self._sums.get(ran, Sums(skew, 0, 0.0))
        self._sums[ran] = Sums(skew, before.attempts + 1, before.total_s + mean_s)

    def has_run_both_ways(self, ran: RanOn) -> bool:
        """Whether it is a sample, for it has run consolidated and spread."""
        return ran in self._sums and ran._replace(spread=not ran.spread) in self._sums

    def items(self) -> tuple[tuple[RanOn, Sums], ...]:
        """All of them, sorted."""
        return tuple(sorted(self._sums.items()))

    def fit(self) -> PackLimit:
        """The limit by all of them: see `fit_packlimit`."""
        skews: list[float] = []
        slowdowns: list[float] = []
        for ran, spread in sorted(self._sums.items()):
            consolidated = self._sums.get(ran._replace(spread=False)) if ran.spread else None
            if consolidated is not None and consolidated.total_s > 0 and spread.total_s > 0:
                skews.append(spread.skew)
                slowdowns.append((spread.total_s / spread.attempts) / (consolidated.total_s / consolidated.attempts))
        return fit_packlimit(np.array(skews, np.float64), np.array(slowdowns, np.float64))
