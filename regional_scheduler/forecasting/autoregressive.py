"""Autoregressive: how the load changes follows from how it changed before, and from the same time of the day before.

(Lyra §6 has an LSTM of two layers over the last ten points. Of what was tried on public series, an autoregression of
the differences with a lag of a day had the least error.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from regional_scheduler.forecasting.history import LoadHistory
from regional_scheduler.forecasting.policy import ForecastLibraryMissing

_SHORT_LAGS: Final = (1, 2)
_LEAST_CHANGES: Final = 16
_STEADY: Final = 0.005
"""A load whose changes are smaller than this, in quadratic mean, is taken to stay: a quarter of the usual headroom."""
_MOST_DAYS: Final = 14


class _Fitted(Protocol):
    """What of the library's results is used; the library itself has no types."""

    @property
    def params(self) -> NDArray[np.float64]: ...
    @property
    def resid(self) -> NDArray[np.float64]: ...


class _Model(Protocol):
    def fit(self) -> _Fitted: ...


class _LeastSquares(Protocol):
    def __call__(self, values: NDArray[np.float64], explained_by: NDArray[np.float64]) -> _Model: ...


@dataclass(frozen=True, slots=True)
class Autoregressive:
    """Rule: fit the changes of the last two weeks by least squares on the two changes before, and on that of a day before.

    With and without the latter, and beside both baselines (as now, as a day before), it is judged by the Bayesian
    information criterion over the same points: the least decides. A load that hardly moves, or has fewer than 16 changes,
    is taken to stay. Invariant: never below 0 nor above 1. Ignores: weeks and holidays. statsmodels fits; it is
    installed with the extra `forecasting`.
    """

    name: str = "autoregressive"

    def check_installed(self) -> None:
        _check_library()

    def forecast(self, history: LoadHistory) -> float:
        day = history.points_per_day
        loads = history.loads if day is None else history.loads[-_MOST_DAYS * day :]
        changes = np.diff(loads)
        if changes.size < _LEAST_CHANGES or math.sqrt(float(np.mean(changes**2))) < _STEADY:
            return history.latest
        knows_days = day is not None and day > _SHORT_LAGS[-1] and changes.size >= 2 * day + 2
        return min(1.0, max(0.0, _best_forecast(loads, changes, day if knows_days else None)))


def _best_forecast(loads: NDArray[np.float64], changes: NDArray[np.float64], day: int | None) -> float:
    """What the forecast of least criterion says; `day` is None when no lag of a day can be fitted."""
    held_back = _SHORT_LAGS[-1] if day is None else day
    stays = float(loads[-1])
    judged = [(_criterion(changes[held_back:], 0), stays)]
    if day is not None:
        judged.append((_criterion((loads[day:] - loads[:-day])[1:], 0), float(loads[-day])))
    for lags in (_SHORT_LAGS,) if day is None else (_SHORT_LAGS, (*_SHORT_LAGS, day)):
        # The library's own autoregression makes columns of all lags up to the longest: gigabytes where looks are close together.
        earlier = np.column_stack([changes[held_back - lag : changes.size - lag] for lag in lags])
        fitted = _least_squares()(changes[held_back:], earlier).fit()
        weights = fitted.params
        judged.append((_criterion(fitted.resid, len(lags)), stays + _next_change(changes, lags, weights)))
    return min(judged)[1]


def _next_change(changes: NDArray[np.float64], lags: Sequence[int], weights: NDArray[np.float64]) -> float:
    return float(sum(weight * changes[-lag] for weight, lag in zip(weights.tolist(), lags, strict=True)))


def _criterion(errors: NDArray[np.float64], weights: int) -> float:
    """The Bayesian information criterion of normal errors, up to a constant."""
    mean_square = float(np.mean(errors**2))
    return (errors.size * math.log(mean_square) if mean_square > 0 else -math.inf) + weights * math.log(errors.size)


def _check_library() -> None:
    # Looks for it only: the library takes seconds to import.
    if find_spec("statsmodels") is None:
        raise _library_missing()


def _library_missing() -> ForecastLibraryMissing:
    remedy = "pip install 'topmast[forecasting]', or choose the forecast persistence"
    return ForecastLibraryMissing(f"the forecast autoregressive needs statsmodels: {remedy}")


def _least_squares() -> _LeastSquares:
    try:
        # Only here: few need it.
        from statsmodels.regression.linear_model import OLS
    except ModuleNotFoundError as error:
        raise _library_missing() from error
    return cast(_LeastSquares, OLS)
