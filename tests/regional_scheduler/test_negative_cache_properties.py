"""What must never happen: a workload that could be placed is refused because of something remembered."""

from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from domain.fleet import MachineState, Region
from domain.identifiers import JobName
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload
from regional_scheduler.negative_cache import NegativeCache
from regional_scheduler.planner import Refusal, plan_workload
from tests.cluster_manager.inventory_worlds import (
    Fill,
    Step,
    Submit,
    Switch,
    World,
    changes,
    jobs,
    regions,
    rules,
    standings,
    submissions,
    workload_of,
    workloads,
)


@st.composite
def full_worlds(draw: st.DrawFn) -> World:
    """A region without room for much, held by attempts of all standings; some machines are not up."""
    world = World.of(draw(regions(2, 2, 3)), draw(rules()))
    for step in draw(st.lists(st.builds(Switch, st.integers(0, 12), st.sampled_from(MachineState)), max_size=2)):
        world.take(step)
    for fill in draw(st.lists(st.builds(Fill, jobs(2), standings()), min_size=1, max_size=3)):
        world.take(fill)
    # What is still idle goes to tasks that take whole machines, so that whoever is refused is refused for want of room.
    whole = JobSpecification(JobName("whole"), 1, TaskResources(gpus=1, cpus=0.0, memory_gib=0.0), Emulated(1.0))
    world.take(Fill(whole, draw(standings())))
    world.take(Fill(replace(whole, resources=TaskResources(cpus=8.0, memory_gib=16.0)), draw(standings())))
    return world


@settings(max_examples=150)
@given(
    full_worlds(),
    st.lists(st.tuples(workloads(most_jobs=2, most_tasks=3), standings()), min_size=3, max_size=6),
    st.lists(changes(), min_size=3, max_size=10),
)
def test_never_refuses_a_workload_that_could_be_placed(
    world: World, questions: list[tuple[Workload, Standing]], history: list[Step]
) -> None:
    """After every change all are asked; whenever the cache refuses, a planner without a cache refuses too."""
    cache = NegativeCache()
    world.inventory.watch(cache)
    ended = 0
    for step in history:
        for workload, standing in questions:
            plan = plan_workload(world.inventory, workload, standing, world.now_s, within_quota=False)
            if cache.fails(workload, standing):
                assert isinstance(plan, Refusal), plan
            elif isinstance(plan, Refusal):
                cache.remember(workload, standing, plan)
        before = len(cache)
        world.take(step)
        ended += len(cache) < before
    event(f"hits: {min(cache.hits, 3)}, entries ended: {min(ended, 3)}")


@given(regions(2, 2, 2), st.builds(Fill, jobs(2), st.just(Standing(3, 0))), jobs(4), jobs(8), standings(), standings())
def test_never_says_of_a_larger_job_that_it_fails_when_it_does_not(
    region: Region,
    fill: Fill,
    smaller: JobSpecification,
    larger: JobSpecification,
    better: Standing,
    worse: Standing,
) -> None:
    """Dominance alone, without any change in between."""
    world = World.of(region)
    world.take(fill)
    cache = NegativeCache()
    refusal = plan_workload(world.inventory, workload_of("smaller", smaller), better, world.now_s, within_quota=False)
    if isinstance(refusal, Refusal):
        cache.remember(workload_of("smaller", smaller), better, refusal)
    if cache.fails(workload_of("larger", larger), worse):
        event("covered")
        assert isinstance(
            plan_workload(world.inventory, workload_of("larger", larger), worse, world.now_s, within_quota=False),
            Refusal,
        )


@settings(max_examples=60)
@given(regions(2, 2, 2), st.lists(submissions(), min_size=2, max_size=12))
def test_never_changes_what_is_decided(region: Region, history: list[Submit]) -> None:
    """The same workloads, asked twice each, with the cache and without: the same are placed in the same places."""
    placed: list[list[Plan]] = []
    for caching in (False, True):
        world = World.of(region)
        cache = NegativeCache()
        world.inventory.watch(cache)
        plans: list[Plan] = []
        for step in (*history, *history):
            workload, standing = workload_of(world.next_name(), *step.jobs), step.standing
            if caching and cache.fails(workload, standing):
                continue
            outcome = plan_workload(world.inventory, workload, standing, world.now_s, within_quota=False)
            if isinstance(outcome, Refusal):
                cache.remember(workload, standing, outcome)
            else:
                plans.append(outcome)
                world.carry_out(outcome, standing)
                for victim in outcome.evictions:
                    world.end(victim)
        placed.append(plans)
    assert placed[0] == placed[1]
