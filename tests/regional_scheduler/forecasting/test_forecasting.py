import math
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from regional_scheduler.forecasting import FORECASTERS
from regional_scheduler.forecasting.accuracy import accuracy_of
from regional_scheduler.forecasting.history import BadLoadHistory, LoadHistory, LoadSample, evenly_spaced
from regional_scheduler.forecasting.lendable import lendable_machines
from regional_scheduler.forecasting.persistence import Persistence
from regional_scheduler.forecasting.policy import ForecastLibraryMissing
from regional_scheduler.forecasting.seasonal_naive import SeasonalNaive

HOUR_S = 3_600.0
LOADS = st.lists(st.floats(0, 1), min_size=1, max_size=80)


def history(loads: list[float] | NDArray[np.float64], step_s: float = 300.0) -> LoadHistory:
    return LoadHistory(np.asarray(loads, np.float64), step_s)


def days_of_load(noise: float, days: int = 12) -> NDArray[np.float64]:
    """An hourly load with a daily rhythm."""
    hours = np.arange(24 * days)
    rhythm = 0.5 + 0.35 * np.sin(2 * math.pi * hours / 24) + 0.1 * np.sin(2 * math.pi * hours / 6)
    return np.clip(rhythm + np.random.default_rng(1).normal(0, noise, hours.size), 0, 1)


def ripples(count: int) -> NDArray[np.float64]:
    """Changes each of which follows from the two before it, and noise."""
    noise = np.random.default_rng(1).normal(0, 0.1, count)
    for place in range(2, count):
        noise[place] += 0.6 * noise[place - 1] - 0.5 * noise[place - 2]
    return noise


@pytest.mark.parametrize("name", sorted(FORECASTERS))
def test_bad_histories_name_the_point_and_the_remedy(name: str) -> None:
    for loads, says in (
        ([], "has no point; give the load at least once"),
        ([0.2, math.nan, 0.4], "load 1 of 3 is nan, but a load is a number from 0 to 1; leave the point out"),
        ([0.2, math.inf], "load 1 of 2 is inf"),
        ([1.5], "load 0 of 1 is 1.5"),
        ([0.2, -0.1], "load 1 of 2 is -0.1"),
    ):
        with pytest.raises(BadLoadHistory, match=says):
            FORECASTERS[name].forecast(history(loads))
    for step_s in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(BadLoadHistory, match="points must be some seconds apart"):
            history([0.5], step_s)


def test_a_day_is_known_only_when_steps_divide_it() -> None:
    assert history([0.5]).points_per_day == 288
    assert history([0.5], HOUR_S).points_per_day == 24
    assert history([0.5], 7_000.0).points_per_day is None
    assert history([0.5], 86_400.0).points_per_day is None


def test_baselines() -> None:
    assert Persistence().forecast(history([0.1, 0.7])) == 0.7
    two_days = np.concatenate([np.linspace(0, 0.46, 24), np.linspace(0.5, 0.96, 24)])
    assert SeasonalNaive().forecast(history(two_days, HOUR_S)) == 0.5
    assert SeasonalNaive().forecast(history([0.1, 0.7], HOUR_S)) == 0.7
    assert SeasonalNaive().forecast(history([0.1, 0.7], 7_000.0)) == 0.7


def test_samples_at_any_times_become_points_that_carry_the_latest_load_on() -> None:
    samples = [LoadSample(0, 0.1), LoadSample(299, 0.2), LoadSample(900, 0.4), LoadSample(1_200, 0.5)]
    assert evenly_spaced(samples, 300).loads.tolist() == [0.1, 0.2, 0.2, 0.4, 0.5]
    assert evenly_spaced(samples[:1], 300).loads.tolist() == [0.1]
    with pytest.raises(BadLoadHistory, match="sample 1 is at 299, not after the one before it; sort them by time"):
        evenly_spaced([LoadSample(299, 0.1), LoadSample(299, 0.1)], 300)
    with pytest.raises(BadLoadHistory, match="has no point"):
        evenly_spaced([], 300)
    with pytest.raises(BadLoadHistory, match="load 0 of 1 is nan"):
        evenly_spaced([LoadSample(0, math.nan)], 300)


def test_lends_all_but_the_greater_of_need_and_forecast_and_the_headroom() -> None:
    assert lendable_machines(100, 0.4, 0.4) == 58
    assert lendable_machines(100, 0.4, 0.6) == 38
    assert lendable_machines(100, 0.6, 0.4) == 38
    assert lendable_machines(10, 0.41, 0.0) == 4
    assert lendable_machines(10, 0.4, 0.4, headroom=0) == 6
    assert lendable_machines(100, 0.99, 0.0) == 0


@given(st.integers(0, 500), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_never_lends_what_is_needed(machines: int, load: float, forecast: float, headroom: float) -> None:
    lent = lendable_machines(machines, load, forecast, headroom)
    assert 0 <= lent <= machines
    assert lent == 0 or machines - lent >= max(load, forecast) * machines + headroom * machines - 1e-6


def test_a_missing_library_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("statsmodels", "statsmodels.regression.linear_model"):
        monkeypatch.setitem(sys.modules, name, None)
    history = LoadHistory(np.linspace(0.1, 0.9, 50), 300.0)
    for attempted in (
        FORECASTERS["autoregressive"].check_installed,
        partial(FORECASTERS["autoregressive"].forecast, history),
    ):
        with pytest.raises(ForecastLibraryMissing, match=r"pip install 'topmast\[forecasting\]'"):
            attempted()


@pytest.fixture
def autoregressive() -> Callable[[LoadHistory], float]:
    pytest.importorskip("statsmodels", reason="statsmodels is not installed")
    return FORECASTERS["autoregressive"].forecast


@pytest.mark.usefixtures("autoregressive")
@pytest.mark.parametrize("noise", [0.05, 0.15])
def test_is_no_worse_than_either_baseline_once_days_are_known(noise: float) -> None:
    load = history(days_of_load(noise), HOUR_S)
    errors = {name: accuracy_of(FORECASTERS[name], load, 96).mean_squared_error for name in sorted(FORECASTERS)}
    assert errors["autoregressive"] <= errors["seasonal_naive"]
    assert errors["autoregressive"] < 0.7 * errors["persistence"]


def test_learns_how_changes_follow_each_other(autoregressive: Callable[[LoadHistory], float]) -> None:
    changes = np.tile([0.06, -0.03, -0.03], 40)
    assert autoregressive(history(0.5 + np.cumsum(changes))) == pytest.approx(0.56)


def test_a_look_every_ten_seconds_takes_no_gigabytes(autoregressive: Callable[[LoadHistory], float]) -> None:
    seconds = np.arange(0, 2.5 * 86_400, 10.0)
    noise = np.random.default_rng(1).normal(0, 0.05, seconds.size)
    often = history(np.clip(0.5 + 0.3 * np.sin(2 * math.pi * seconds / 86_400) + noise, 0, 1), 10.0)
    autoregressive(history(days_of_load(0.05), HOUR_S))
    tracemalloc.start()
    try:
        autoregressive(often)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_forecasts_as_the_autoregression_of_the_library(autoregressive: Callable[[LoadHistory], float]) -> None:
    models = pytest.importorskip("statsmodels.tsa.ar_model", reason="statsmodels is not installed")
    loads = np.clip(np.cumsum(ripples(400)) / 10 + 0.5, 0, 1)
    changes = np.diff(loads)
    weights = models.AutoReg(changes, [1, 2], trend="n", hold_back=2).fit().params
    expected = loads[-1] + weights[0] * changes[-1] + weights[1] * changes[-2]
    assert math.isclose(autoregressive(history(loads, 7_000.0)), expected, rel_tol=1e-9)


def test_takes_a_steady_or_short_load_to_stay(autoregressive: Callable[[LoadHistory], float]) -> None:
    steady = 0.5 + 0.004 * np.sin(np.arange(600.0))
    assert autoregressive(history(steady)) == steady[-1]
    assert autoregressive(history([0.3] * 700)) == 0.3
    assert autoregressive(history([0.1, 0.9, 0.2])) == 0.2


@given(LOADS)
def test_never_forecasts_outside_0_to_1(loads: list[float]) -> None:
    pytest.importorskip("statsmodels", reason="statsmodels is not installed")
    for name, forecaster in sorted(FORECASTERS.items()):
        forecast = forecaster.forecast(history(loads, 21_600.0))
        assert 0 <= forecast <= 1, name
        assert forecast == forecaster.forecast(history(loads, 21_600.0))


def test_accuracy_needs_points_on_both_sides() -> None:
    assert accuracy_of(Persistence(), history([0.1, 0.3, 0.2]), 1).mean_squared_error == pytest.approx(0.025)
    for first in (0, 3):
        with pytest.raises(ValueError, match="of 3 points"):
            accuracy_of(Persistence(), history([0.1, 0.3, 0.2]), first)
