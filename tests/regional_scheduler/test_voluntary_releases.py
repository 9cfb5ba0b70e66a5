"""What running attempts can do without counts as room: flexible tasks go before anybody is evicted, and no more than needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from domain.identifiers import JobName
from domain.placement import AttemptKey, Holding
from domain.placement_changes import placements_after
from domain.plan import SCALES_IN, Evict, Plan, ScaleIn, Start, TaskName
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload
from regional_scheduler.planner import Refusal, plan_workload
from regional_scheduler.refusals.memory import RefusalMemory
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.voluntary_releases import VoluntaryRelease
from tests.cluster_manager.fleets import cluster, gpu_machine, key_of, region, tasks_on
from tests.cluster_manager.inventory_worlds import (
    World,
    elastic_steps,
    jobs,
    regions,
    standings,
    workload_of,
    workloads,
)
from tests.cluster_manager.plain_search import PlainMachine, after, plain_machines, total_room
from tests.examples import examples

EQUAL = Standing(3, 0)
BETTER = Standing(2, 0)


def hold_elastic(
    inventory: RegionCapacity, name: str, base_tasks: int, *places: tuple[str, tuple[int, ...]]
) -> AttemptKey:
    """An attempt with a task in each of these places, of which only the first ones are base tasks."""
    placements = [tasks_on(machine, gpus)._replace(task=task) for task, (machine, gpus) in enumerate(places)]
    key = key_of(name)
    inventory.hold(Holding(key, EQUAL, 0.0, tuple(placements), base_tasks=((JobName("job"), base_tasks),)))
    return key


def two_machines() -> RegionCapacity:
    return RegionCapacity(region(cluster("c", [gpu_machine("m1"), gpu_machine("m2")])))


def job(gpus: int, tasks: int = 1) -> JobSpecification:
    return JobSpecification(JobName("job"), tasks, TaskResources(gpus=gpus, cpus=0.0, memory_gib=0.0), Emulated(60.0))


def plan(inventory: RegionCapacity, *jobs_: JobSpecification, standing: Standing = EQUAL) -> Plan | Refusal:
    return plan_workload(inventory, workload_of("new", *jobs_), standing, 100.0, within_quota=False)


def released(outcome: Plan | Refusal) -> list[tuple[str, int]]:
    """Whose tasks go, by number."""
    assert isinstance(outcome, Plan)
    return [
        (str(action.attempt.workload), name.task)
        for action in outcome.actions
        if isinstance(action, ScaleIn)
        for name in action.released
    ]


def test_takes_nothing_while_something_is_free() -> None:
    inventory = two_machines()
    hold_elastic(inventory, "elastic", 1, ("m1", (0, 1)), ("m1", (2, 3)))
    outcome = plan(inventory, job(8))
    assert released(outcome) == []
    assert isinstance(outcome, Plan)
    assert outcome.score.reclaim_class == 0


def test_scales_in_the_fewest_tasks_and_says_so_before_the_start() -> None:
    inventory = two_machines()
    hold_elastic(inventory, "a", 1, ("m1", (0, 1)), ("m1", (2, 3)), ("m1", (4, 5)), ("m1", (6, 7)))
    hold_elastic(inventory, "b", 1, ("m2", (0, 1)), ("m2", (2, 3, 4, 5)), ("m2", (6,)))
    outcome = plan(inventory, job(4))
    assert released(outcome) == [("b", 1)]
    assert isinstance(outcome, Plan)
    assert [type(action) for action in outcome.actions] == [ScaleIn, Start]
    assert outcome.score.reclaim_class == SCALES_IN
    inventory.check()


def test_of_as_few_tasks_the_smallest_that_suffice_go() -> None:
    inventory = two_machines()
    hold_elastic(inventory, "a", 1, ("m1", (0,)), ("m1", (1, 2, 3, 4)), ("m1", (5, 6)), ("m1", (7,)))
    hold_elastic(inventory, "b", 1, ("m2", tuple(range(8))))
    assert released(plan(inventory, job(1))) == [("a", 3)]
    assert released(plan(inventory, job(2))) == [("a", 2)]
    assert released(plan(inventory, job(3))) == [("a", 1)]
    assert released(plan(inventory, job(5))) == [("a", 1), ("a", 3)]


def test_base_tasks_of_equals_are_not_to_be_had() -> None:
    inventory = two_machines()
    hold_elastic(inventory, "a", 2, ("m1", (0, 1, 2, 3)), ("m1", (4, 5, 6)), ("m1", (7,)))
    hold_elastic(inventory, "b", 1, ("m2", tuple(range(8))))
    outcome = plan(inventory, job(2))
    assert isinstance(outcome, Refusal)
    assert outcome.room == (0,)
    assert released(plan(inventory, job(1))) == [("a", 2)]


def test_evicts_nobody_where_scaling_in_is_enough() -> None:
    inventory = two_machines()
    hold_elastic(inventory, "a", 1, ("m1", (0, 1, 2, 3)), ("m1", (4, 5, 6, 7)))
    hold_elastic(inventory, "b", 1, ("m2", tuple(range(8))))
    outcome = plan(inventory, job(4), standing=BETTER)
    assert released(outcome) == [("a", 1)]
    assert isinstance(outcome, Plan)
    assert outcome.evictions == ()


def test_where_somebody_is_evicted_no_task_goes_for_nothing() -> None:
    inventory = two_machines()
    elastic = hold_elastic(inventory, "a", 1, ("m1", (0, 1, 2, 3)), ("m1", (4, 5)), ("m1", (6, 7)))
    hold_elastic(inventory, "b", 1, ("m2", tuple(range(6))), ("m2", (6, 7)))
    outcome = plan(inventory, job(8), standing=BETTER)
    assert isinstance(outcome, Plan)
    assert len(outcome.evictions) == 1
    assert released(outcome) == ([("b", 1)] if outcome.evictions == (key_of("b"),) else [])
    assert [type(one) for one in outcome.actions] in ([Evict, Start], [ScaleIn, Evict, Start])
    assert inventory.holding(elastic) is not None


def test_several_jobs_take_from_several() -> None:
    inventory = two_machines()
    hold_elastic(inventory, "a", 1, ("m1", (0, 1, 2, 3)), ("m1", (4, 5)), ("m1", (6, 7)))
    hold_elastic(inventory, "b", 1, ("m2", (0,)), ("m2", (1, 2, 3, 4)), ("m2", (5, 6, 7)))
    outcome = plan(inventory, job(4), job(2))
    assert isinstance(outcome, Plan)
    assert 2 <= len(released(outcome)) <= 3
    with inventory.tentatively():
        apply(inventory, outcome)


class _HalfTheCpus:
    """Each task can do with half of them."""

    def releases_of(self, holding: Holding) -> Iterator[VoluntaryRelease]:
        for placement in holding.placements:
            yield VoluntaryRelease(holding.key, placement, placement._replace(millicpus=placement.millicpus // 2))


@pytest.mark.parametrize("gpus", [6, 8])
def test_a_flexible_task_that_could_hold_less_goes_as_a_whole(gpus: int) -> None:
    inventory = RegionCapacity(region(cluster("c", [gpu_machine("m1")])))
    inventory.voluntary.add_source(_HalfTheCpus())
    placements = [
        tasks_on("m1", places)._replace(task=task, millicpus=4_000) for task, places in enumerate([(0, 1), (2, 3)])
    ]
    holding = Holding(key_of("elastic"), EQUAL, 0.0, tuple(placements), base_tasks=((JobName("job"), 1),))
    inventory.hold(holding)
    with inventory.voluntary.released(inventory.voluntary.all()):
        left = inventory.holding(holding.key)
        assert left is not None
        assert [(one.task, one.millicpus) for one in left.placements] == [(0, 2_000)]
    outcome = plan(inventory, job(gpus))
    if gpus == 6:
        assert released(outcome) == [("elastic", 1)]
    else:
        assert isinstance(outcome, Refusal)


def test_who_is_leaving_gives_up_nothing_more() -> None:
    inventory = two_machines()
    key = hold_elastic(inventory, "a", 1, ("m1", (0, 1, 2, 3)), ("m1", (4, 5, 6, 7)))
    hold_elastic(inventory, "b", 1, ("m2", tuple(range(8))))
    inventory.begin_eviction(key)
    assert isinstance(plan(inventory, job(4)), Refusal)


def test_a_change_under_way_is_waited_for_where_that_takes_time() -> None:
    inventory = two_machines()
    inventory.voluntary.changes_take_time = True
    memory = RefusalMemory(inventory)
    key = hold_elastic(inventory, "a", 1, ("m1", (0, 1)), ("m1", (2, 3)), ("m1", (4, 5)), ("m1", (6, 7)))
    hold_elastic(inventory, "b", 1, ("m2", tuple(range(8))))
    first = plan(inventory, job(2))
    assert len(released(first)) == 1
    with inventory.tentatively():
        apply(inventory, first)
        assert isinstance(plan(inventory, job(2)), Refusal)
    assert released(plan(inventory, job(2))) == released(first)
    apply(inventory, first)
    workload = workload_of("new", job(2))
    refusal = plan_workload(inventory, workload, EQUAL, 100.0, within_quota=False)
    assert isinstance(refusal, Refusal)
    memory.remember(workload, EQUAL, refusal, 100.0, within_quota=False)
    assert memory.fails(workload, EQUAL, within_quota=False)
    inventory.change_carried_out(key)
    assert not memory.fails(workload, EQUAL, within_quota=False)
    assert len(released(plan(inventory, job(2)))) == 1


def apply(inventory: RegionCapacity, outcome: Plan | Refusal, newcomer: str = "newcomer") -> None:
    """What the plan does to the capacity; the newcomer stands as it was asked for."""
    assert isinstance(outcome, Plan)
    for action in outcome.actions:
        match action:
            case ScaleIn():
                holding = inventory.holding(action.attempt)
                assert holding is not None
                inventory.replace_placements(action.attempt, placements_after(action, holding.placements))
            case Evict(victim):
                inventory.begin_eviction(victim)
            case Start(placements):
                inventory.hold(Holding(key_of(newcomer), EQUAL, 100.0, placements))
            case _:
                pytest.fail(f"nobody asked for {action}")


# Random worlds.


class Planned:
    """A world with elastic attempts, and what was planned in it."""

    def __init__(self, world: World, workload: Workload, standing: Standing) -> None:
        self.world = world
        self.workload = workload
        self.standing = standing
        self.outcome = plan_workload(world.inventory, workload, standing, world.now_s, within_quota=False)

    def machines_without(
        self, tasks: Sequence[tuple[AttemptKey, TaskName]], *, victims_stay: bool = False
    ) -> list[PlainMachine]:
        """What is free with these tasks gone, and all victims unless they stay."""
        gone = self.outcome.evictions if isinstance(self.outcome, Plan) and not victims_stay else ()
        staying = [
            holding._replace(
                placements=tuple(
                    p for p in holding.placements if (holding.key, TaskName(p.job, p.task)) not in set(tasks)
                )
            )
            for holding in self.world.inventory.holdings()
            if holding.key not in gone
        ]
        return plain_machines(self.world.region, self.world.states, staying)

    @property
    def flexible(self) -> list[tuple[AttemptKey, TaskName]]:
        """All flexible tasks of attempts that are not leaving."""
        return [
            (holding.key, TaskName(placement.job, placement.task))
            for holding in self.world.inventory.holdings()
            if holding.key not in self.world.leaving
            for placement in holding.placements
            if placement.task >= dict(holding.base_tasks).get(placement.job, placement.task + 1)
        ]

    @property
    def released(self) -> list[tuple[AttemptKey, TaskName]]:
        assert isinstance(self.outcome, Plan)
        return [(one.attempt, n) for one in self.outcome.actions if isinstance(one, ScaleIn) for n in one.released]

    def fits(self, tasks: Sequence[tuple[AttemptKey, TaskName]], *, victims_stay: bool = False) -> bool:
        """Whether the only job fits in some cluster with these tasks gone."""
        machines = self.machines_without(tasks, victims_stay=victims_stay)
        (job_,) = self.workload.specification.jobs
        return any(
            total_room([machine for machine in machines if machine.cluster == number], job_) >= job_.tasks
            for number in range(len(self.world.region.clusters))
        )


@st.composite
def cases(draw: st.DrawFn, newcomers: st.SearchStrategy[Workload]) -> list[Planned]:
    world = World.of(draw(regions(2, 2, 3)))
    for step in draw(elastic_steps()):
        world.take(step)
    planned = [
        Planned(world, workload, standing)
        for workload, standing in draw(st.lists(st.tuples(newcomers, standings()), min_size=3, max_size=5))
    ]
    for case in planned:
        if isinstance(case.outcome, Plan):
            event(f"scales in {bool(case.released)}, evicts {bool(case.outcome.evictions)}")
    return planned


ONE_JOB = jobs(4).map(lambda one: workload_of("newcomer", one))


@settings(max_examples=examples(60))
@given(cases(workloads()))
def test_never_over_commits_nor_takes_a_base_task(planned: list[Planned]) -> None:
    """I1 and I2; and what goes comes before what it makes room for."""
    for case in planned:
        if not isinstance(case.outcome, Plan):
            continue
        assert set(case.released) <= set(case.flexible)
        assert not {key for key, _ in case.released} & set(case.outcome.evictions)
        assert isinstance(case.outcome.actions[-1], Start)
        held = [
            (p.machine, gpu)
            for holding in case.world.inventory.holdings()
            if holding.key not in case.outcome.evictions
            for p in holding.placements
            if (holding.key, TaskName(p.job, p.task)) not in set(case.released)
            for gpu in p.gpu_indices
        ]
        asked = [(p.machine, gpu) for p in case.outcome.placements for gpu in p.gpu_indices]
        assert len(asked) == len(set(asked))
        assert not set(held) & set(asked)
        newcomer = Holding(key_of("newcomer"), case.standing, 0.0, case.outcome.placements)
        before = case.machines_without(case.released)
        for machine in after(before, newcomer, -1):
            taken = [old - new for old, new in zip(before[machine.number].free, machine.free, strict=True)]
            assert all(left >= 0 for left, used in zip(machine.free, taken, strict=True) if used > 0)
        with case.world.inventory.tentatively():
            case.world.carry_out(case.outcome, case.standing)
            case.world.inventory.check()


@settings(max_examples=examples(100))
@given(cases(ONE_JOB))
def test_never_evicts_where_scaling_in_is_enough_nor_scales_in_for_nothing(planned: list[Planned]) -> None:
    for case in planned:
        if isinstance(case.outcome, Refusal):
            assert not case.fits(case.flexible)
            continue
        if case.outcome.evictions:
            assert not case.fits(case.flexible, victims_stay=True)
        elif case.released:
            assert not case.fits(())
        (used,) = {p.cluster for p in case.outcome.placements}
        (job_,) = case.workload.specification.jobs
        number = [one.cluster for one in case.world.region.clusters].index(used)
        for spared in case.released:
            machines = case.machines_without([one for one in case.released if one != spared])
            assert total_room([machine for machine in machines if machine.cluster == number], job_) < job_.tasks


@settings(max_examples=examples(100))
@given(cases(jobs(1).filter(lambda one: one.resources.gpus > 0).map(lambda one: workload_of("newcomer", one))))
def test_never_scales_in_more_tasks_than_a_job_of_one_task_needs(planned: list[Planned]) -> None:
    """Brute force: no smaller set of flexible tasks makes room."""
    for case in planned:
        if isinstance(case.outcome, Plan) and case.released and not case.outcome.evictions:
            for fewer in combinations(case.flexible, len(case.released) - 1):
                assert not case.fits(fewer)
