"""Forecasts of inference load, so that a reclaim starts ahead of the need (Lyra §6). One file each, listed in FORECASTERS."""

from __future__ import annotations

from types import MappingProxyType

from regional_scheduler.forecasting.autoregressive import Autoregressive
from regional_scheduler.forecasting.persistence import Persistence
from regional_scheduler.forecasting.policy import Forecaster
from regional_scheduler.forecasting.seasonal_naive import SeasonalNaive

FORECASTERS: MappingProxyType[str, Forecaster] = MappingProxyType(
    {forecaster.name: forecaster for forecaster in (Autoregressive(), Persistence(), SeasonalNaive())}
)
