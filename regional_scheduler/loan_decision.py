"""How many machines of an inference cluster are to be on loan, from what its inference side says (Lyra §2.1, §6, §7.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.inference import InferenceDemand, InferenceSide
from regional_scheduler.forecasting import FORECASTERS
from regional_scheduler.forecasting.history import LoadSample, evenly_spaced
from regional_scheduler.forecasting.lendable import lendable_machines


@dataclass(frozen=True, slots=True)
class LoanDecision:
    """What follows from one answer."""

    load: float
    """The share of its machines that inference needs now, at most 1."""
    forecast: float
    """The share that it will need at the next look."""
    wanted_on_loan: int
    shortfall: int
    """Machines that inference needs and the cluster does not have: all that are on loan go back, and so many are missing."""


def decide_loan(
    demand: InferenceDemand, machines: int, side: InferenceSide, past: Sequence[LoadSample], now: float
) -> LoanDecision:
    """`past` are the loads of earlier looks, oldest first. Raises ForecastLibraryMissing, or BadLoadHistory."""
    load = min(1.0, demand.needed_machines / max(1, machines))
    history = evenly_spaced([*past, LoadSample(now, load)], side.look_every_s)
    forecast = FORECASTERS[side.forecast].forecast(history)
    lent = lendable_machines(machines, load, forecast, side.headroom)
    if demand.lends_machines is not None:
        lent = min(lent, demand.lends_machines)
    return LoanDecision(load, forecast, lent, max(0, demand.needed_machines - machines))
