"""How good a forecast would have been: its errors over a history, each point forecast from those before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regional_scheduler.forecasting.history import LoadHistory
from regional_scheduler.forecasting.policy import Forecaster


@dataclass(frozen=True, slots=True)
class ForecastAccuracy:
    """Of one forecaster over one history."""

    points: int
    """How many were forecast."""
    mean_squared_error: float
    """Of the load as a share of the cluster; the measure of Lyra §6."""


def accuracy_of(forecaster: Forecaster, history: LoadHistory, first: int) -> ForecastAccuracy:
    """The errors on the points from number `first` on. Raises ValueError when none comes before or none is left."""
    loads = history.loads
    if not 0 < first < loads.size:
        raise ValueError(f"of {loads.size} points, {first} are known beforehand: one or more must be, and one forecast")
    forecasts = [forecaster.forecast(LoadHistory(loads[:known], history.step_s)) for known in range(first, loads.size)]
    return ForecastAccuracy(loads.size - first, float(np.mean((np.array(forecasts) - loads[first:]) ** 2)))
