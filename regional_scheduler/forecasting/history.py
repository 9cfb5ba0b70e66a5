"""The load of an inference cluster as it was: evenly spaced points, checked, so that a forecast can go by them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DAY_S = 86_400.0


class BadLoadHistory(ValueError):
    """A history from which nothing can be forecast. The message names the point and the remedy."""


@dataclass(frozen=True, slots=True)
class LoadSample:
    """At this time, this share of the cluster's machines was needed for inference."""

    t_s: float
    load: float
    """From 0 to 1."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadHistory:
    """Which share of an inference cluster was busy, oldest first; the latest point is the load now.

    Raises BadLoadHistory when it is empty, a load is not a number from 0 to 1, or `step_s` is not above 0.
    """

    loads: NDArray[np.float64]
    """One for each point: the share of the machines that inference needs, from 0 to 1."""
    step_s: float
    """From one point to the next."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.step_s) and self.step_s > 0):
            raise BadLoadHistory(f"points must be some seconds apart, not {self.step_s:g}; give the time between looks")
        if self.loads.ndim != 1 or self.loads.size == 0:
            raise BadLoadHistory("has no point; give the load at least once before you ask for a forecast")
        bad = np.flatnonzero(~((self.loads >= 0) & (self.loads <= 1)))
        if bad.size:
            place = int(bad[0])
            raise BadLoadHistory(
                f"load {place} of {self.loads.size} is {self.loads[place]:g}, but a load is a number from 0 to 1;"
                " leave the point out, so that the one before it counts on"
            )

    @property
    def latest(self) -> float:
        """The load now."""
        return float(self.loads[-1])

    @property
    def points_per_day(self) -> int | None:
        """How many points a day has; None when it is no whole number of steps, or only one."""
        points = round(DAY_S / self.step_s)
        return points if points > 1 and math.isclose(points * self.step_s, DAY_S) else None


def evenly_spaced(samples: Sequence[LoadSample], step_s: float) -> LoadHistory:
    """The history of samples, oldest first, taken at any times: one point every `step_s`, the last at the last sample.

    A point has the load of the latest sample until then: what was not looked at is taken to have stayed as it was.
    Points begin with the first sample. Raises BadLoadHistory as LoadHistory does, and when times fall.
    """
    if not samples:
        return LoadHistory(np.empty(0), step_s)
    times = np.array([sample.t_s for sample in samples], np.float64)
    loads = np.array([sample.load for sample in samples], np.float64)
    falls = np.flatnonzero(~(np.diff(times) > 0))
    if not np.isfinite(times[0]) or falls.size:
        place = int(falls[0]) + 1 if falls.size else 0
        raise BadLoadHistory(f"sample {place} is at {times[place]:g}, not after the one before it; sort them by time")
    if not (math.isfinite(step_s) and step_s > 0):
        return LoadHistory(loads, step_s)
    points = int((times[-1] - times[0]) / step_s + 1e-6) + 1
    at = times[-1] - step_s * np.arange(points - 1, -1, -1)
    latest = np.searchsorted(times, at + step_s * 1e-6, side="right") - 1
    return LoadHistory(loads[np.maximum(latest, 0)], step_s)
