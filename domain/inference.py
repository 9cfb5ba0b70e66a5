"""The inference side of a cluster that lends machines to training (Lyra §2.1): where it is asked, and how it is treated."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_HEADROOM = 0.02
"""Of an inference cluster's machines, the share that is never lent (Lyra §7.1)."""
DEFAULT_LOOK_EVERY_S = 300.0
"""So often Lyra's orchestrator runs, and so far ahead the forecast looks (§6, §7.1)."""
FORECASTS = ("autoregressive", "persistence", "seasonal_naive")
"""The names that a forecast may have; `regional_scheduler.forecasting` says what each of them is."""
DEFAULT_FORECAST = "autoregressive"
RECLAIMING_POLICIES = ("fewest_evictions", "fewest_workloads", "least_preemption_cost", "random_machines")
"""The names that a cluster's reclaiming policy may have; `regional_scheduler.reclaiming` says what each of them is."""
DEFAULT_RECLAIMING = "least_preemption_cost"


@dataclass(frozen=True, slots=True)
class InferenceSide:
    """What a cluster of fleet.yaml says of the inference that its machines serve. One of `address` and `series` is given."""

    address: str = ""
    """`host:port` of its InferenceScheduler."""
    series: str = ""
    """A CSV file with the load over time, which is played instead."""
    headroom: float = DEFAULT_HEADROOM
    look_every_s: float = DEFAULT_LOOK_EVERY_S
    forecast: str = DEFAULT_FORECAST
    """A name of `regional_scheduler.forecasting`."""
    reclaiming: str = DEFAULT_RECLAIMING
    """A name of `regional_scheduler.reclaiming`: which machines go back."""


@dataclass(frozen=True, slots=True)
class InferenceDemand:
    """What the inference side says when it is asked."""

    needed_machines: int
    """That inference needs now; may be more than the cluster has."""
    lends_machines: int | None = None
    """It lends no more than so many in all; None: whatever it does not need."""
    reclaim_within_s: float | None = None
    """A machine that is asked back must be back within so long: then what is still on it is ended; None: no deadline."""
