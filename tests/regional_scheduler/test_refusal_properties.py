"""What must never happen: a workload that could be placed is refused because of something remembered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from cluster_manager.cells.hierarchy import chains_of
from domain.cells import ClusterCells, OwnedCells, VirtualCluster
from domain.fleet import CELLS_MECHANISM, DEFAULT_MECHANISM, Cluster, MachineState, Region
from domain.identifiers import JobName, VirtualClusterId
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload
from regional_scheduler.planner import Refusal, plan_workload
from regional_scheduler.refusals import entries, memory, releases
from regional_scheduler.refusals.memory import RefusalMemory
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.first_fit import WITH_FIRST_FIT
from tests.cluster_manager.inventory_worlds import (
    Fill,
    MakeElastic,
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
from tests.examples import examples


class Ask(NamedTuple):
    """A workload that seeks a place."""

    workload: Workload
    standing: Standing
    within_quota: bool

    def plan(self, world: World) -> Plan | Refusal:
        """By the planner, which remembers nothing."""
        return plan_workload(world.inventory, self.workload, self.standing, world.now_s, within_quota=self.within_quota)

    def is_refused(self, memory: RefusalMemory) -> bool:
        """By one of the two questions that memory takes; both must agree with the planner."""
        question = memory.question(self.workload.specification, within_quota=self.within_quota)
        known = memory.refuses(question, self.standing)
        return memory.fails(self.workload, self.standing, within_quota=self.within_quota) or known

    def remember(self, memory: RefusalMemory, refusal: Refusal, now_s: float) -> None:
        memory.remember(self.workload, self.standing, refusal, now_s, within_quota=self.within_quota)


def may_be_split(ask: Ask) -> Ask:
    """The same, but that its first job may be split over clusters."""
    specification = ask.workload.specification
    first, *others = specification.jobs
    jobs_ = (replace(first, across_clusters=True), *others)
    return ask._replace(workload=replace(ask.workload, specification=replace(specification, jobs=jobs_)))


@cache
def asks(most_tasks: int = 3) -> st.SearchStrategy[Ask]:
    return st.builds(Ask, workloads(most_jobs=2, most_tasks=most_tasks), standings(), st.booleans())


SWITCHES = st.lists(st.builds(Switch, st.integers(0, 12), st.sampled_from(MachineState)), max_size=2)
FILLS = st.lists(st.builds(Fill, jobs(2), standings()), min_size=1, max_size=3)


@st.composite
def full_worlds(draw: st.DrawFn, mechanisms: Sequence[str] = (DEFAULT_MECHANISM,)) -> World:
    """A region without room for much, held by attempts of all standings, some of them spared; some machines are down.

    The mechanisms take turns from cluster to cluster.
    """
    plain = draw(regions(2, 2, 3))
    clusters = [replace(one, mechanism=mechanisms[n % len(mechanisms)]) for n, one in enumerate(plain.clusters)]
    region = replace(
        plain, clusters=tuple([half_owned(one) if one.mechanism == CELLS_MECHANISM else one for one in clusters])
    )
    world = World(region, RegionCapacity(region, mechanisms=WITH_FIRST_FIT, rule=draw(rules())))
    for step in draw(SWITCHES):
        world.take(step)
    for fill in draw(FILLS):
        world.take(fill)
    # What is still idle goes to tasks that take whole machines, so that whatever is refused is refused for want of room.
    whole = JobSpecification(JobName("whole"), 1, TaskResources(gpus=1, cpus=0.0, memory_gib=0.0), Emulated(1.0))
    world.take(Fill(whole, draw(standings())))
    world.take(Fill(replace(whole, resources=TaskResources(cpus=8.0, memory_gib=16.0)), draw(standings())))
    for holding in world.inventory.holdings():
        if draw(st.booleans()):
            world.inventory.release(holding.key)
            world.inventory.hold(holding._replace(spared=True))
    return world


def half_owned(cluster: Cluster) -> Cluster:
    """The cluster in cells, of which the tenant of all workloads owns half the machines of each kind."""
    owned = [OwnedCells(chain.name, "machine", len(chain.machines) // 2) for chain in chains_of(cluster)]
    owner = VirtualCluster(VirtualClusterId("tenant"), tuple(cells for cells in owned if cells.cells))
    return replace(cluster, cells=ClusterCells((), (owner,)))


def assert_never_wrong(world: World, questions: list[Ask], history: list[Step]) -> None:
    """After every change all are asked; whenever memory refuses, the planner, which has none, refuses too."""
    memory = RefusalMemory(world.inventory)
    ended = 0
    for step in history:
        for ask in questions:
            plan = ask.plan(world)
            if ask.is_refused(memory):
                assert isinstance(plan, Refusal), plan
            elif isinstance(plan, Refusal):
                ask.remember(memory, plan, world.now_s)
        before = len(memory)
        world.take(step)
        ended += len(memory) < before
    event(f"hits: {min(memory.hits, 3)}, entries ended: {min(ended, 3)}")


@settings(max_examples=examples(150))
@given(full_worlds(), st.lists(asks(), min_size=3, max_size=6), st.lists(changes(), min_size=3, max_size=10))
def test_never_refuses_a_workload_that_could_be_placed(world: World, questions: list[Ask], history: list[Step]) -> None:
    assert_never_wrong(world, questions, history)


@settings(max_examples=examples(150))
@given(
    full_worlds((CELLS_MECHANISM, DEFAULT_MECHANISM)),
    st.lists(st.builds(MakeElastic, st.integers(0, 50), st.integers(0, 2)), min_size=2, max_size=6),
    st.lists(asks(), min_size=3, max_size=6),
    st.lists(changes() | st.builds(MakeElastic, st.integers(0, 50), st.integers(0, 2)), min_size=3, max_size=10),
)
def test_never_refuses_what_could_be_placed_when_others_scale_in(
    world: World, elastic: list[MakeElastic], questions: list[Ask], history: list[Step]
) -> None:
    for step in elastic:
        world.take(step)
    assert_never_wrong(world, questions, history)


@settings(max_examples=examples(50))
@given(
    full_worlds((DEFAULT_MECHANISM, DEFAULT_MECHANISM)) | full_worlds((CELLS_MECHANISM, DEFAULT_MECHANISM)),
    st.lists(st.builds(MakeElastic, st.integers(0, 50), st.integers(0, 2)), max_size=4),
    st.lists(asks(6) | asks(6).map(may_be_split), min_size=3, max_size=6),
    st.lists(changes(), min_size=3, max_size=10),
)
def test_never_refuses_what_could_be_split_for_what_could_not(
    world: World, elastic: list[MakeElastic], questions: list[Ask], history: list[Step]
) -> None:
    for step in elastic:
        world.take(step)
    assert_never_wrong(world, [*questions, *map(may_be_split, questions)], history)


@settings(max_examples=examples(500))
@given(
    full_worlds((DEFAULT_MECHANISM, "first_fit")),
    st.lists(asks(), min_size=3, max_size=6),
    st.lists(changes(), min_size=3, max_size=10),
)
def test_never_refuses_where_two_mechanisms_are_side_by_side(
    world: World, questions: list[Ask], history: list[Step]
) -> None:
    assert_never_wrong(world, questions, history)


@settings(max_examples=examples(150))
@given(
    full_worlds((CELLS_MECHANISM, DEFAULT_MECHANISM)),
    st.lists(asks(), min_size=3, max_size=6),
    st.lists(changes(), min_size=3, max_size=10),
)
def test_never_refuses_in_cells_what_could_be_placed(world: World, questions: list[Ask], history: list[Step]) -> None:
    """There a better standing alone evicts nobody: what ends is news for everybody."""
    assert_never_wrong(world, questions, history)


@settings(max_examples=examples(150))
@given(full_worlds(), st.lists(asks(), min_size=4, max_size=8), st.lists(changes(), min_size=4, max_size=10))
def test_never_refuses_wrongly_when_it_has_to_forget(world: World, questions: list[Ask], history: list[Step]) -> None:
    """With limits so small that entries, questions and releases are dropped all the time."""
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr(entries, "ENTRIES_REMEMBERED", 8)
        limits.setattr(releases, "RELEASES_REMEMBERED", 2)
        limits.setattr(memory, "QUESTIONS_REMEMBERED", 2)
        assert_never_wrong(world, questions, history)


@settings(max_examples=examples(200))
@given(
    full_worlds(),
    st.lists(asks(), min_size=2, max_size=6),
    st.lists(changes(), max_size=3),
    st.lists(submissions(), min_size=1, max_size=4),
)
def test_never_refuses_wrongly_with_what_is_supposed(
    world: World, questions: list[Ask], history: list[Step], wins: list[Submit]
) -> None:
    """Wins are placed tentatively one after the other; what is refused meanwhile is forgotten with them."""
    memory = RefusalMemory(world.inventory)
    for ask in questions:
        if isinstance(plan := ask.plan(world), Refusal):
            ask.remember(memory, plan, world.now_s)
    for step in history:
        world.take(step)
    with world.inventory.tentatively(), memory.supposing():
        for win in wins:
            for ask in questions:
                plan = ask.plan(world)
                if memory.fails(ask.workload, ask.standing, within_quota=ask.within_quota):
                    assert isinstance(plan, Refusal), plan
                elif isinstance(plan, Refusal):
                    ask.remember(memory, plan, world.now_s)
            placed = plan_workload(
                world.inventory, workload_of(world.next_name(), *win.jobs), win.standing, world.now_s, within_quota=True
            )
            if isinstance(placed, Plan) and not placed.evictions:
                world.carry_out(placed, Standing(0, 0))
    for ask in questions:
        if ask.is_refused(memory):
            assert isinstance(ask.plan(world), Refusal)


@settings(max_examples=examples(300))
@given(full_worlds(), asks(4), asks(8))
def test_never_says_of_a_larger_job_that_it_fails_when_it_does_not(world: World, smaller: Ask, larger: Ask) -> None:
    """Dominance alone, without any change in between."""
    memory = RefusalMemory(world.inventory)
    refusal = smaller.plan(world)
    if isinstance(refusal, Refusal):
        smaller.remember(memory, refusal, world.now_s)
    if memory.fails(larger.workload, larger.standing, within_quota=larger.within_quota):
        event("covered")
        assert isinstance(larger.plan(world), Refusal)


@settings(max_examples=examples(60))
@given(regions(2, 2, 2), st.lists(submissions(), min_size=2, max_size=12))
def test_never_changes_what_is_decided(region: Region, history: list[Submit]) -> None:
    """The same workloads, asked twice each, with the cache and without: the same are placed in the same places."""
    placed: list[list[Plan]] = []
    for caching in (False, True):
        world = World.of(region)
        cache = RefusalMemory(world.inventory)
        plans: list[Plan] = []
        for step in (*history, *history):
            workload, standing = workload_of(world.next_name(), *step.jobs), step.standing
            if caching and cache.fails(workload, standing, within_quota=False):
                continue
            outcome = plan_workload(world.inventory, workload, standing, world.now_s, within_quota=False)
            if isinstance(outcome, Refusal):
                cache.remember(workload, standing, outcome, world.now_s, within_quota=False)
            else:
                plans.append(outcome)
                world.carry_out(outcome, standing)
                for victim in outcome.evictions:
                    world.end(victim)
        placed.append(plans)
    assert placed[0] == placed[1]
