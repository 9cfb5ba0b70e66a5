"""An invariant that is broken on purpose is never passed over in silence."""

from __future__ import annotations

import pytest

from cluster_manager.capacity.tables import MILLICPUS
from domain.events import Event, EventKind
from domain.identifiers import AttemptNumber, JobName, WorkloadId
from domain.placement import AttemptKey, Holding, Score, TaskPlacement
from domain.plan import Evict, Plan, Start
from domain.rank import Standing
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.registry import policy_called
from simulator.results.conservation import violated_laws
from simulator.validate import validate
from tests.simulator.engine.checked_run import NO_COSTS, one_region, row, unlimited


def run(breaks: str, settings: SimulationSettings) -> tuple[list[Event], list[str], bool]:
    """The log, the violated laws, and what the validator thinks; something is broken when the first attempt starts."""
    rows = [row("a", 0.0, 100.0, 2), row("b", 10.0, 100.0, 2)]
    log: list[Event] = []

    def take(event: Event) -> None:
        log.append(event)
        if event.event is EventKind.STARTED and event.workload == "a":
            world = simulation.world
            if breaks == "inventory":
                world.regions.members[0].inventory.clusters[0].layout.arrays.state[0, MILLICPUS] -= 1
            elif breaks == "tenants":
                world.tenant_gpus[0] += 1
            elif breaks == "an eviction":
                inventory = world.regions.members[0].inventory
                machine, cluster = inventory.machine_ids[0], inventory.cluster_ids[0]
                placement = TaskPlacement(JobName("main"), 0, cluster, machine, (3,), 0, 0)
                key = AttemptKey(WorkloadId("victim"), AttemptNumber(1))
                victim = Holding(key, Standing(6, 0), 0.0, (placement,))
                inventory.hold(victim)
                inventory.begin_eviction(victim.key)
                (newcomer,) = (work.key for work in world.live.values())
                holding = inventory.holding(newcomer)
                assert holding is not None
                actions = (Evict(victim.key), Start(holding.placements))
                world.look_back(inventory, newcomer, Plan(newcomer.workload, inventory.region, actions, Score()))
                inventory.release(victim.key)

    given = SimulationInput("test", rows, one_region(1, 4), unlimited(rows))
    simulation = Simulation(given, policy_called("fifo"), settings, 1, take)
    record = simulation.run()
    valid = validate([event.as_json() for event in log], given.fleet, given.tenants, complete=True).valid
    return log, violated_laws(record), valid


@pytest.mark.breaks_capacity
@pytest.mark.parametrize("breaks", ["inventory", "tenants", "an eviction"])
def test_a_broken_invariant_is_an_event_and_a_violated_law(breaks: str) -> None:
    log, laws, valid = run(breaks, NO_COSTS.model_copy(update={"check_every_events": 1}))
    assert [event for event in log if event.event is EventKind.INVARIANT_BROKEN]
    assert any("invariants were broken while it ran" in law for law in laws)
    assert not valid


def test_where_nothing_is_broken_nothing_is_said() -> None:
    log, laws, valid = run("nothing", NO_COSTS.model_copy(update={"check_every_events": 1}))
    assert not [event for event in log if event.event is EventKind.INVARIANT_BROKEN]
    assert (laws, valid) == ([], True)
