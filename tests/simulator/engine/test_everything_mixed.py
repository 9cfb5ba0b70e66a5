"""Whatever meets in one run: no invariant is ever broken, everybody ends, and nobody evicts without end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import event, given, settings

from domain.events import Event
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.results.conservation import check_conservation
from simulator.results.run_record import WorkloadEnd
from simulator.validate import validate
from tests.cluster_manager.cells.worlds import Choices, choices
from tests.examples import examples
from tests.simulator.engine.checked_run import Record
from tests.simulator.engine.mixed_worlds import MixedWorld, mixed_world
from tests.simulator.engine.profiled_run import PROFILES

MOST_EVENTS = 4_000
"""What is not over by then turns in a circle: a world has ten workloads and a few machines."""
ACTIONS = ("evicting", "downgraded", "resized", "tuned", "loaned", "reclaimed", "reserved", "migrating")


class Endless(Exception):
    """More events than so few workloads need."""


def log_of(world: MixedWorld) -> list[Record]:
    """The log of a run, which is checked as a whole."""
    log: list[Record] = []

    def keep(told: Event) -> None:
        log.append(told.as_json())
        if len(log) > MOST_EVENTS:
            raise Endless(Counter(str(record["event"]) for record in log))

    given_ = SimulationInput(
        "test", (), world.fleet, world.tenants, world.loans, workloads=world.workloads, profiles=PROFILES
    )
    simulation = Simulation(given_, world.policy, world.settings, 1, keep)
    record = simulation.run()
    for member in simulation.world.regions.members:
        member.inventory.check()
    assert not record.counts.invariants_broken, [told for told in log if told["event"] == "invariant_broken"]
    check_conservation(record)
    ends = set(record.workloads.end.tolist())
    assert ends <= {WorkloadEnd.COMPLETED, WorkloadEnd.REFUSED, WorkloadEnd.FAILED}, ends
    if ends != {WorkloadEnd.REFUSED}:
        rule = world.settings.eviction.rule(world.policy.eviction)
        report = validate(log, world.fleet, world.tenants, complete=True, rule=rule, profiles=PROFILES)
        assert report.valid, str(report)
    return log


@settings(max_examples=examples(40))
@given(choices(200))
def test_never_an_invariant_broken_where_everything_meets(choose: Choices) -> None:
    counts = Counter(str(told["event"]) for told in log_of(mixed_world(choose)))
    for action in ACTIONS:
        event(f"{action}: {bool(counts[action])}")


def assert_the_same_without_memory(world: MixedWorld) -> None:
    """The same but for the sentences that say why somebody waits. Without machines that fail: when one goes, a workload of several
    jobs, refused before, may find a place that it is asked about again only when something is released."""
    failures = world.settings.failures.model_copy(update={"machine_mtbf_s": 0.0})
    world = replace(world, settings=world.settings.model_copy(update={"failures": failures}))
    forgetful = replace(world, settings=world.settings.model_copy(update={"negative_cache": False}))
    remembered, planned_anew = (
        [told for told in log_of(one) if told["event"] != "waiting"] for one in (world, forgetful)
    )
    assert remembered == planned_anew


@settings(max_examples=examples(20))
@given(choices(200))
def test_never_another_decision_without_the_memory_of_refusals(choose: Choices) -> None:
    assert_the_same_without_memory(mixed_world(choose))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@settings(max_examples=10_000)
@given(choices(200))
def test_never_an_invariant_broken_in_a_long_search(choose: Choices) -> None:
    assert_the_same_without_memory(mixed_world(choose))
