"""What a forecast is: given the load until now, it says what the load will be one step later (Lyra §6)."""

from __future__ import annotations

from typing import Protocol

from regional_scheduler.forecasting.history import LoadHistory


class ForecastLibraryMissing(RuntimeError):
    """A forecast needs a library that is not installed. The message says how to install it."""


class Forecaster(Protocol):
    """Forecasts the load of one inference cluster. The same history gives the same forecast."""

    @property
    def name(self) -> str:
        """What the registry knows it by."""
        ...

    def forecast(self, history: LoadHistory) -> float:
        """The load one step after the latest point, from 0 to 1."""
        ...

    def check_installed(self) -> None:
        """Raises ForecastLibraryMissing when it cannot forecast here."""
        ...
