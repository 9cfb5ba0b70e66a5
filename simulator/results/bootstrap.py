"""How sure a difference of two means is: the paired bootstrap (Efron and Tibshirani 1993, chapters 6 and 13)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from domain.events import JsonValue
from simulator.results.distribution import number_or_null
from simulator.results.run_record import Reals

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, and the interval in which it lies with 95 % confidence (percentiles of the resamples)."""

    value: float
    low: float
    high: float

    def as_json(self) -> dict[str, JsonValue]:
        return {"value": number_or_null(self.value), "low": number_or_null(self.low), "high": number_or_null(self.high)}


def resampled_means(values: Reals, generator: np.random.Generator, resamples: int = RESAMPLES) -> NDArray[np.float64]:
    """Means of the columns over rows drawn with replacement, rows as a whole: shape (resamples, columns).

    `values` has a row per thing that is drawn, at least one. Drawing whole rows is what makes it paired.
    """
    rows, columns = values.shape
    means = np.empty((resamples, columns))
    for resample in range(resamples):
        # How often each row was drawn; small enough to stay in the processor's cache.
        times = np.bincount(generator.integers(0, rows, size=rows), minlength=rows)
        means[resample] = times.astype(np.float64) @ values
    means /= rows
    return means


def difference_of(ours: float, theirs: float, our_means: Reals, their_means: Reals) -> Estimate:
    """Ours − theirs."""
    return _estimate(ours - theirs, our_means - their_means)


def ratio_of(ours: float, theirs: float, our_means: Reals, their_means: Reals) -> Estimate:
    """Ours ÷ theirs; not a number where theirs is 0."""
    value = ours / theirs if theirs > 0 else float("nan")
    return _estimate(
        value, np.divide(our_means, their_means, out=np.full_like(our_means, np.nan), where=their_means > 0)
    )


def _estimate(value: float, resampled: Reals) -> Estimate:
    known = resampled[~np.isnan(resampled)]
    if not len(known):
        return Estimate(value, float("nan"), float("nan"))
    low, high = np.percentile(known, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return Estimate(value, float(low), float(high))
