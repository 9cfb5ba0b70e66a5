"""Seasonal naive: the load is what it was a day before. A baseline to compare forecasts with."""

from __future__ import annotations

from dataclasses import dataclass

from regional_scheduler.forecasting.history import LoadHistory


@dataclass(frozen=True, slots=True)
class SeasonalNaive:
    """Rule: the load one step later is that of the same time of the day before; until a day is known, the load now."""

    name: str = "seasonal_naive"

    def forecast(self, history: LoadHistory) -> float:
        day = history.points_per_day
        return history.latest if day is None or history.loads.size < day else float(history.loads[-day])

    def check_installed(self) -> None:
        pass
