"""The filled fleet with a hot region: what its description promises."""

from __future__ import annotations

import numpy as np
import pytest

from domain.tenant import LOWEST_PRIORITY
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.fleets import gpus_of_fleet
from simulator.inputs.hot_region import HOT, MACHINES, HotRegionSettings, hot_region_input

SETTINGS = HotRegionSettings()


@pytest.fixture(scope="module", params=(1, 7))
def given(request: pytest.FixtureRequest) -> SimulationInput:
    return hot_region_input(SETTINGS, request.param)


def test_the_same_seed_gives_the_same_and_another_one_something_else(given: SimulationInput) -> None:
    assert given.rows == hot_region_input(SETTINGS, 1).rows or given.rows == hot_region_input(SETTINGS, 7).rows
    assert hot_region_input(SETTINGS, 1).rows != hot_region_input(SETTINGS, 7).rows


def test_quotas_are_never_more_than_what_is_where_the_data_is(given: SimulationInput) -> None:
    home = {str(table.table).removesuffix("-data"): table.regions for table in given.catalog}
    supply = {(region, model): 8 * count for region, held in MACHINES for model, count in held}
    in_all: dict[str, int] = {}
    for tenant in given.tenants:
        for model, gpus in tenant.quota.gpus:
            if tenant.priority < LOWEST_PRIORITY:
                assert gpus <= sum(supply.get((region, model), 0) for region in home[str(tenant.tenant)])
                in_all[model] = in_all.get(model, 0) + gpus
    assert in_all
    for name, gpus in in_all.items():
        assert gpus <= sum(count for (_, held_model), count in supply.items() if held_model == name)


def test_gangs_are_as_large_as_published_and_never_larger_than_the_quota(given: SimulationInput) -> None:
    quota = {tenant.tenant: dict(tenant.quota.gpus) for tenant in given.tenants}
    teams = [row for row in given.rows if row.tables]
    assert all(row.gpus <= quota[row.tenant][row.gpu_model] for row in teams)
    middle, high, highest = np.percentile([row.gpus for row in teams], [50, 90, 99])
    assert (middle, high) == (16, 64)
    assert 128 <= highest <= 256


def test_experiments_ask_for_more_than_there_is_from_the_beginning(given: SimulationInput) -> None:
    experiments = [row for row in given.rows if not row.tables]
    assert sum(row.gpus for row in experiments if row.submit_s == 0) > gpus_of_fleet(given.fleet)
    assert {row.priority for row in experiments} == {LOWEST_PRIORITY}


def test_teams_of_the_hot_region_submit_more_in_the_window_than_before(given: SimulationInput) -> None:
    hot = {f"{table.table}".removesuffix("-data") for table in given.catalog if table.home == HOT}
    gpus = {True: [0.0, 0.0], False: [0.0, 0.0]}
    for row in given.rows:
        if row.tables:
            gpus[str(row.tenant) in hot][row.submit_s >= SETTINGS.before_s] += 1
    before, during = gpus[True]
    assert during / SETTINGS.window_s > 1.4 * before / SETTINGS.before_s
    before, during = gpus[False]
    assert 0.7 < (during / SETTINGS.window_s) / (before / SETTINGS.before_s) < 1.4
