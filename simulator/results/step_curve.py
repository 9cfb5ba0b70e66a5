"""A quantity that changes in steps, such as the GPUs held: its exact integrals and averages.

All times are seconds on the run's clock. Whole-number steps are added up exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.results.run_record import Flags, Reals


@dataclass(frozen=True, slots=True, eq=False)
class StepCurve:
    """Piecewise constant: `values[i]` from `times[i]` (included) to `times[i + 1]`; 0 before the first."""

    times: Reals
    """Strictly increasing."""
    values: Reals
    """As many as times."""

    def at(self, times: Reals) -> Reals:
        """The values at these times."""
        if not len(self.times):
            return np.zeros(len(times))
        position = np.searchsorted(self.times, times, side="right") - 1
        return np.where(position >= 0, self.values[np.maximum(position, 0)], 0.0)

    def integral(self, from_s: float, until_s: float) -> float:
        """Value × seconds between the two times."""
        reached = self._integrals(np.array([from_s, until_s]))
        return float(reached[1] - reached[0])

    def averages(self, edges: Reals) -> Reals:
        """The exact average between each edge and the next, one fewer than edges (which increase strictly)."""
        return np.diff(self._integrals(edges)) / np.diff(edges)

    def greatest(self) -> float:
        """0 for a curve without steps."""
        return float(self.values.max()) if len(self.values) else 0.0

    def _integrals(self, times: Reals) -> Reals:
        """From the beginning of the curve to each of these times."""
        if not len(self.times):
            return np.zeros(len(times))
        reached = np.concatenate(([0.0], np.cumsum(self.values[:-1] * np.diff(self.times))))
        position = np.searchsorted(self.times, times, side="right") - 1
        inside = np.maximum(position, 0)
        return np.where(position >= 0, reached[inside] + self.values[inside] * (times - self.times[inside]), 0.0)


def curve_of_intervals(
    from_s: Reals, until_s: Reals, weights: NDArray[np.integer | np.floating] | None = None
) -> StepCurve:
    """How much is there at each time, of things that are there between two times; 1 each without weights.

    Intervals that end before they begin count as empty.
    """
    amounts = np.ones(len(from_s)) if weights is None else weights.astype(np.float64)
    there: Flags = until_s > from_s
    times = np.concatenate((from_s[there], until_s[there]))
    steps = np.concatenate((amounts[there], -amounts[there]))
    return curve_of_steps(times, steps)


def curve_of_steps(times: Reals, steps: Reals) -> StepCurve:
    """The sum of all steps so far, at each time; in any order."""
    if not len(times):
        return StepCurve(np.zeros(0), np.zeros(0))
    order = np.argsort(times, kind="stable")
    sorted_times, sums = times[order], np.cumsum(steps[order])
    last_at_time = np.append(sorted_times[1:] > sorted_times[:-1], True)
    return StepCurve(sorted_times[last_at_time], sums[last_at_time])


def on_common_times(*curves: StepCurve) -> tuple[Reals, tuple[Reals, ...]]:
    """All times at which any of them changes, and the values of each of them there."""
    times = np.unique(np.concatenate([curve.times for curve in curves]))
    return times, tuple(curve.at(times) for curve in curves)
