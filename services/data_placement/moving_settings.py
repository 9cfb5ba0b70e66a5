"""What an operator says of how tables move, as the migrations want it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from data_placement.migrations.bandwidth import BACKGROUND_SHARE
from formats.data_section import DataSection


@dataclass(frozen=True, slots=True)
class MovingSettings:
    """From the section `data` of scheduler.yaml."""

    storage: tuple[tuple[str, str], ...] = ()
    """The URL of each region's storage; none: tables are not files here."""
    quota_bytes: float = math.inf
    """To copy in a day at most."""
    background_share: float = BACKGROUND_SHARE
    on_demand: bool = True
    """Whether tables are copied for workloads that wait for them."""

    @staticmethod
    def of(section: DataSection) -> MovingSettings:
        return MovingSettings(
            tuple((name, region.storage) for name, region in sorted(section.regions.items())),
            math.inf if section.bytes_per_day is None else section.bytes_per_day,
            section.background_share,
            section.on_demand,
        )
