"""Looking back at evictions: the planner's are never needless, and one that is does not stay unnoticed."""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings

from domain.fleet import Region
from domain.placement import Score
from domain.plan import Action, Evict, Plan, Start
from domain.rank import Standing
from domain.workload import JobSpecification
from regional_scheduler.needless_victims import needless_victims
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.fleets import cluster, gpu_machine, hold, region, tasks_on
from tests.cluster_manager.inventory_worlds import Step, World, jobs, regions, standings, steps, workload_of
from tests.examples import examples


@settings(max_examples=examples(150))
@given(regions(), steps(10), jobs(4), standings())
def test_never_a_needless_victim_of_one_job(
    small: Region, history: list[Step], job: JobSpecification, standing: Standing
) -> None:
    """Whatever is leaving, drained or lost beside it."""
    world = World.of(small)
    for step in history:
        world.take(step)
    plan = plan_workload(world.inventory, workload_of("newcomer", job), standing, world.now_s, within_quota=False)
    if not isinstance(plan, Plan):
        return
    newcomer = world.carry_out(plan, standing)
    event(f"victims: {min(len(plan.evictions), 2)}")
    assert needless_victims(world.inventory, newcomer, plan) == ()


@pytest.mark.parametrize(
    ("gpus", "evicts", "needless"),
    [(4, ["left", "right"], []), (2, ["left", "right"], ["left", "right"]), (4, ["left", "right", "far"], ["far"])],
)
def test_a_victim_that_could_have_stayed_is_found(gpus: int, evicts: list[str], needless: list[str]) -> None:
    """`left` and `right` share machine m, `far` has n; n comes after m in the region."""
    inventory = RegionCapacity(region(cluster("b", [gpu_machine("n", 4)]), cluster("c", [gpu_machine("m", 4)])))
    keys = {
        "left": hold(inventory, "left", tasks_on("m", [0, 1])),
        "right": hold(inventory, "right", tasks_on("m", [2, 3])),
        "far": hold(inventory, "far", tasks_on("n", range(4), cluster_name="b")),
    }
    victims = [keys[name] for name in evicts]
    for victim in victims:
        inventory.begin_eviction(victim)
    newcomer = hold(inventory, "newcomer", placed := tasks_on("m", range(gpus)), priority=0)
    actions: tuple[Action, ...] = (*(Evict(victim) for victim in victims), Start((placed,)))
    plan = Plan(newcomer.workload, inventory.region, actions, Score())
    assert list(needless_victims(inventory, newcomer, plan)) == [keys[name] for name in needless]
