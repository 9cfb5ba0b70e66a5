"""Persistence: the load stays as it is. The baseline that every forecast has to beat."""

from __future__ import annotations

from dataclasses import dataclass

from regional_scheduler.forecasting.history import LoadHistory


@dataclass(frozen=True, slots=True)
class Persistence:
    """Rule: the load one step later is the load now."""

    name: str = "persistence"

    def forecast(self, history: LoadHistory) -> float:
        return history.latest

    def check_installed(self) -> None:
        pass
