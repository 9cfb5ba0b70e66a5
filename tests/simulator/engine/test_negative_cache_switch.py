"""The memory of refusals is exact: with it, without it, or forgotten with each scan pass, the same is decided."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.registry import policies
from simulator.results.run_record import RunRecord
from tests.examples import examples
from tests.simulator.engine.checked_run import checked_run, one_region, row, unlimited
from tests.simulator.engine.small_worlds import SmallWorld, crowded_worlds, small_worlds

FORGETTING = ({"negative_cache_outlives_scans": False}, {"negative_cache": False})
"""Changes of the settings: what is remembered within a pass only, and nothing."""


@pytest.mark.parametrize("policy", sorted(policies()))
@settings(max_examples=examples(10))
@given(world=small_worlds())
def test_never_another_decision_without_the_memory(policy: str, world: SmallWorld) -> None:
    assert_same_without_memory(world, policy)


@pytest.mark.parametrize("policy", ["mast", "ideal", "federated", "las"])
@settings(max_examples=examples(25))
@given(world=crowded_worlds())
def test_never_another_decision_where_everybody_is_in_the_way(policy: str, world: SmallWorld) -> None:
    assert assert_same_without_memory(world, policy) > 0


def test_what_is_remembered_is_not_planned_again() -> None:
    """One machine, one attempt on it, six in the queue: memory answers five of them, and all of them next time."""
    rows = [row("first", 0.0, 1000.0, 8), *(row(f"w{number}", 10.0 + number, 50.0, 8) for number in range(6))]
    given_input = SimulationInput("test", rows, one_region(1, 8), unlimited(rows))

    def run(change: dict[str, bool]) -> RunRecord:
        return simulate(given_input, policies()["mast"], SimulationSettings().model_copy(update=change), 1)

    kept, of_a_pass, nothing = run({}), *(run(change) for change in FORGETTING)
    assert kept.counts.plans < of_a_pass.counts.plans < nothing.counts.plans
    assert of_a_pass.counts.cache_hits > 0
    assert nothing.counts.cache_hits == 0
    assert kept.attempts.dispatched_s.tolist() == nothing.attempts.dispatched_s.tolist()


def assert_same_without_memory(world: SmallWorld, policy: str) -> int:
    """The same event log, but for the sentences that say why somebody waits; returns its length."""
    chosen = policies()[policy]
    tenants = world.tenants if chosen.scans else None
    expected = _decisions(world, policy, world.settings)
    for change in FORGETTING:
        forgetful = replace(world, settings=world.settings.model_copy(update=change))
        run = checked_run(chosen, forgetful.rows, forgetful.fleet, tenants, forgetful.settings, tables=forgetful.tables)
        assert [record for record in run.log if record["event"] != "waiting"] == expected
    return len(expected)


def _decisions(world: SmallWorld, policy: str, with_settings: SimulationSettings) -> list[object]:
    chosen = policies()[policy]
    run = checked_run(
        chosen, world.rows, world.fleet, world.tenants if chosen.scans else None, with_settings, tables=world.tables
    )
    return [record for record in run.log if record["event"] != "waiting"]
