"""What many durations come to: how many, their mean, and percentiles that were really observed."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, nan

import numpy as np

from domain.events import JsonValue
from simulator.results.run_record import Reals


@dataclass(frozen=True, slots=True)
class Distribution:
    """Seconds; not a number when there was nothing."""

    count: int
    mean: float
    p50: float
    """Observed: the smallest value that at least half of all do not exceed. Likewise the others."""
    p95: float
    p99: float
    max: float

    def as_json(self) -> dict[str, JsonValue]:
        """With null where there was nothing."""
        return {
            "count": self.count,
            "mean": number_or_null(self.mean),
            "p50": number_or_null(self.p50),
            "p95": number_or_null(self.p95),
            "p99": number_or_null(self.p99),
            "max": number_or_null(self.max),
        }


def distribution_of(values: Reals) -> Distribution:
    """Of finite values."""
    if not len(values):
        return Distribution(0, nan, nan, nan, nan, nan)
    ordered = np.sort(values)
    p50, p95, p99 = (float(ordered[int(np.ceil(share * len(ordered))) - 1]) for share in (0.50, 0.95, 0.99))
    return Distribution(len(ordered), float(ordered.mean()), p50, p95, p99, float(ordered[-1]))


def number_or_null(value: float) -> float | None:
    """For JSON, which has no word for what is not a number."""
    return value if isfinite(value) else None


def rate_or_null(part: float, whole: float) -> float | None:
    """A share of something; null of nothing."""
    return part / whole if whole > 0 else None
