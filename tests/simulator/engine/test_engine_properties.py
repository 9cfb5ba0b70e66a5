"""Whatever is drawn: no run breaks an invariant, loses a workload, or invents work."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from simulator.policies.registry import policies
from tests.simulator.engine.checked_run import CheckedRun, checked_run
from tests.simulator.engine.small_worlds import SmallWorld, small_worlds

ALL_POLICIES = tuple(policies())


def run_of(world: SmallWorld, policy: str) -> CheckedRun:
    """All that `checked_run` checks, checked: log, laws, inventories."""
    chosen = policies()[policy]
    return checked_run(chosen, world.rows, world.fleet, world.tenants if chosen.scans else None, world.settings)


@pytest.mark.parametrize("policy", ALL_POLICIES)
@settings(max_examples=40)
@given(world=small_worlds())
def test_never_a_run_that_breaks_an_invariant(policy: str, world: SmallWorld) -> None:
    run_of(world, policy)
