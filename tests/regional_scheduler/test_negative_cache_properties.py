"""What must never happen: a workload that could be placed is refused because of something remembered."""

from hypothesis import event, given, settings
from hypothesis import strategies as st

from domain.fleet import Region
from domain.placement import Plan
from domain.rank import Standing
from domain.workload import JobSpecification, Workload
from regional_scheduler.negative_cache import NegativeCache
from regional_scheduler.planner import Refusal, plan_workload
from tests.cluster_manager.inventory_worlds import (
    Fill,
    Step,
    Submit,
    World,
    jobs,
    regions,
    standings,
    steps,
    submissions,
    workload_of,
    workloads,
)


@st.composite
def asked(draw: st.DrawFn) -> tuple[Workload, Standing]:
    return draw(workloads()), draw(standings())


@settings(max_examples=100)
@given(
    regions(2, 2, 3),
    steps(4),
    st.lists(asked(), min_size=4, max_size=8),
    st.lists(steps(2), min_size=2, max_size=6),
)
def test_never_refuses_a_workload_that_could_be_placed(
    region: Region, history: list[Step], questions: list[tuple[Workload, Standing]], changes: list[list[Step]]
) -> None:
    """After every few changes all are asked; whenever the cache refuses, a planner without a cache refuses too."""
    world = World.of(region)
    for step in history:
        world.take(step)
    cache = NegativeCache()
    world.inventory.watch(cache)
    remembered = 0
    for change in changes:
        for workload, standing in questions:
            plan = plan_workload(world.inventory, workload, standing, world.now_s)
            if cache.fails(workload, standing):
                assert isinstance(plan, Refusal), plan
            elif isinstance(plan, Refusal):
                cache.remember(workload, standing, plan)
                remembered += 1
        for step in change:
            world.take(step)
    event(f"hits: {min(cache.hits, 3)}, remembered: {min(remembered, 3)}")


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
    refusal = plan_workload(world.inventory, workload_of("smaller", smaller), better, world.now_s)
    if isinstance(refusal, Refusal):
        cache.remember(workload_of("smaller", smaller), better, refusal)
    if cache.fails(workload_of("larger", larger), worse):
        event("covered")
        assert isinstance(plan_workload(world.inventory, workload_of("larger", larger), worse, world.now_s), Refusal)


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
            outcome = plan_workload(world.inventory, workload, standing, world.now_s)
            if isinstance(outcome, Refusal):
                cache.remember(workload, standing, outcome)
            else:
                plans.append(outcome)
                world.carry_out(outcome, standing)
                for victim in outcome.evictions:
                    world.end(victim)
        placed.append(plans)
    assert placed[0] == placed[1]
