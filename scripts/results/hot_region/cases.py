"""Which runs there are: two loads, each way to schedule, ten seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from scripts.results.ways import AS_PUBLISHED, COMPACTION, RESERVATIONS, Way
from simulator.engine.settings import SimulationSettings, settings_from
from simulator.inputs.hot_region import HotRegionSettings

SEEDS = tuple(range(1, 11))
LOADS: Mapping[str, HotRegionSettings] = MappingProxyType(
    {
        "within quotas": HotRegionSettings(team_load=0.6, hot_factor=1.5),
        "beyond quotas": HotRegionSettings(team_load=0.8, hot_factor=2.0),
    }
)
"""In the first, teams of the hot region ask for nine tenths of their quotas on average; in the second, for 1.6 times as much."""


WAYS: Mapping[str, Way] = MappingProxyType(
    {
        "mast as published": Way("mast", AS_PUBLISHED),
        "mast, least work destroyed": Way("mast"),
        "mast, compaction too": Way("mast", COMPACTION),
        "mast, reservations too": Way("mast", RESERVATIONS),
        "mast, compaction and reservations": Way("mast", COMPACTION + RESERVATIONS),
        "joint windows, as published": Way("ideal", AS_PUBLISHED),
        "federated, exact load": Way("federated", AS_PUBLISHED),
        "federated, load of five minutes": Way("federated_stale", AS_PUBLISHED),
    }
)


@dataclass(frozen=True, slots=True)
class Case:
    """One run."""

    load: str
    way: str
    seed: int

    @property
    def settings(self) -> SimulationSettings:
        """Without what is after the window."""
        asked = LOADS[self.load]
        stop = f"stop_after_s={asked.before_s + asked.window_s:g}"
        return settings_from({}, [stop, *WAYS[self.way].settings], self.way)


def all_cases() -> tuple[Case, ...]:
    """Every run of the document."""
    return tuple(Case(load, way, seed) for load in LOADS for way in WAYS for seed in SEEDS)
