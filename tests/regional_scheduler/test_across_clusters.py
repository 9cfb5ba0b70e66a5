"""A job that allows it is split over clusters where no single one has room, and never else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from domain.diagnosis import Reason
from domain.fleet import CELLS_MECHANISM, Region
from domain.identifiers import ClusterId, JobName, MachineId
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.plan import Evict, Plan, ScaleIn
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import BaseTasksOfJobs, Emulated, JobSpecification, WorkloadSpecification
from regional_scheduler.hosting import EmptyRegion
from regional_scheduler.planner import Refusal, plan_workload
from regional_scheduler.refusals.kinds import kind_of
from regional_scheduler.refusals.memory import RefusalMemory
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.several_clusters import CLUSTER_WEIGHT
from tests.cluster_manager.fleets import cluster, gpu_machine, key_of, region
from tests.cluster_manager.inventory_worlds import Step, World, jobs, regions, standings, steps, workload_of
from tests.cluster_manager.plain_search import plain_machines, total_room
from tests.examples import examples
from tests.regional_scheduler.test_several_jobs_exactly import can_place

NEWCOMER = Standing(3, 0)
MOST_TASKS = 100


def job_of(tasks: int, gpus: int = 8, *, split: bool = True) -> JobSpecification:
    resources = TaskResources(gpus=gpus, cpus=0.0, memory_gib=0.0)
    return JobSpecification(JobName("job"), tasks, resources, Emulated(60.0), across_clusters=split)


def region_of(*machines: int) -> Region:
    """A cluster for each number, of so many 8-GPU machines: a-0, a-1, ..., b-0, ..."""
    return region(
        *(
            cluster(name, [gpu_machine(f"{name}-{number}") for number in range(count)])
            for name, count in zip("abcdef", machines, strict=False)
        )
    )


def task_on(machine: str, number: int = 0, gpus: Sequence[int] = range(8)) -> TaskPlacement:
    """A task on a machine, whose name says its cluster."""
    return TaskPlacement(
        JobName("job"), number, ClusterId(machine[0]), MachineId(machine), tuple(gpus), millicpus=0, mebibytes=0
    )


def hold(
    inventory: RegionCapacity, name: str, *tasks: TaskPlacement, priority: int, base_tasks: BaseTasksOfJobs = ()
) -> None:
    inventory.hold(Holding(key_of(name), Standing(priority, 0), 0.0, tasks, base_tasks=base_tasks))


def plan_in(inventory: RegionCapacity, *jobs_: JobSpecification, standing: Standing = NEWCOMER) -> Plan | Refusal:
    return plan_workload(inventory, workload_of("newcomer", *jobs_), standing, 100.0, within_quota=False)


def planned(inventory: RegionCapacity, *jobs_: JobSpecification) -> Plan:
    outcome = plan_in(inventory, *jobs_)
    assert isinstance(outcome, Plan), outcome
    return outcome


def tasks_by_cluster(plan: Plan, job: str = "job-0") -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for placement in plan.placements:
        if placement.job == job:
            found.setdefault(placement.cluster, []).append(placement.task)
    return found


def test_splits_what_no_cluster_holds_over_as_few_as_possible_and_numbers_its_tasks_through() -> None:
    plan = planned(RegionCapacity(region_of(1, 3, 2)), job_of(5))
    assert tasks_by_cluster(plan) == {"b": [0, 1, 2], "c": [3, 4]}
    assert plan.score.spread == CLUSTER_WEIGHT
    assert isinstance(plan_in(RegionCapacity(region_of(1, 3, 2)), job_of(5, split=False)), Refusal)


def test_what_remains_goes_where_it_leaves_least_idle() -> None:
    inventory = RegionCapacity(region(cluster("a", [gpu_machine("a-0"), gpu_machine("a-1")]), *(
        cluster(name, [gpu_machine(f"{name}-0", gpus)]) for name, gpus in (("b", 8), ("c", 2))
    )))  # fmt: skip
    assert tasks_by_cluster(planned(inventory, job_of(9, 2))) == {"a": list(range(8)), "c": [8]}


def test_does_not_split_what_fits_in_one_cluster() -> None:
    plan = planned(RegionCapacity(region_of(1, 3, 2)), job_of(3))
    assert tasks_by_cluster(plan) == {"b": [0, 1, 2]}
    assert plan.score.spread == 0


def test_a_split_without_victims_comes_before_one_cluster_with_victims() -> None:
    inventory = RegionCapacity(region_of(2, 1))
    hold(inventory, "worse", task_on("a-0"), priority=6)
    plan = planned(inventory, job_of(2))
    assert tasks_by_cluster(plan) == {"a": [0], "b": [1]}
    assert not plan.evictions


def test_one_cluster_with_victims_comes_before_several_with_victims() -> None:
    inventory = RegionCapacity(region_of(2, 1))
    hold(inventory, "worse-a", task_on("a-0"), priority=6)
    hold(inventory, "worse-b", task_on("b-0"), priority=6)
    plan = planned(inventory, job_of(2))
    assert tasks_by_cluster(plan) == {"a": [0, 1]}
    assert plan.evictions == (key_of("worse-a"),)


def test_where_it_must_evict_it_uses_all_that_is_free_and_evicts_the_worst() -> None:
    inventory = RegionCapacity(region_of(2, 2))
    hold(inventory, "better", task_on("a-0"), priority=5)
    hold(inventory, "worse", task_on("b-0"), priority=6)
    plan = planned(inventory, job_of(3))
    assert tasks_by_cluster(plan) == {"b": [0, 1], "a": [2]}
    assert plan.evictions == (key_of("worse"),)
    assert [type(action) for action in plan.actions][:1] == [Evict]


def test_a_victim_in_two_clusters_leaves_once_for_both_parts() -> None:
    inventory = RegionCapacity(region_of(1, 1))
    hold(inventory, "both", task_on("a-0"), task_on("b-0", 1), priority=6)
    plan = planned(inventory, job_of(2))
    assert tasks_by_cluster(plan) == {"a": [0], "b": [1]}
    assert plan.evictions == (key_of("both"),)


def test_is_split_before_others_scale_in_for_it_and_with_it_where_it_must() -> None:
    inventory = RegionCapacity(region_of(2, 1))
    tasks = task_on("a-0"), task_on("a-1", 1, range(4))
    hold(inventory, "elastic", *tasks, priority=0, base_tasks=((JobName("job"), 1),))
    free = planned(inventory, job_of(3, 4))
    assert not [action for action in free.actions if isinstance(action, ScaleIn)]
    assert tasks_by_cluster(free) == {"b": [0, 1], "a": [2]}
    given_up = planned(inventory, job_of(4, 4))
    assert [action.attempt for action in given_up.actions if isinstance(action, ScaleIn)] == [key_of("elastic")]
    assert not given_up.evictions


def test_several_jobs_each_split_where_they_must_be() -> None:
    plan = planned(RegionCapacity(region_of(2, 2)), job_of(3), job_of(1, split=False))
    assert {job: len(tasks_by_cluster(plan, job)) for job in ("job-0", "job-1")} == {"job-0": 2, "job-1": 1}
    assert [(one.job, one.task) for one in plan.placements] == [("job-0", 0), ("job-0", 1), ("job-0", 2), ("job-1", 0)]


def test_clusters_divided_into_cells_take_no_parts() -> None:
    plain = region_of(2, 2)
    in_cells = replace(plain, clusters=(plain.clusters[0], replace(plain.clusters[1], mechanism=CELLS_MECHANISM)))
    refused = plan_in(RegionCapacity(in_cells), job_of(3))
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.CLUSTERS_TOO_SMALL
    assert "over which it may be split could hold 2" in refused.sentence
    hosting = EmptyRegion(in_cells).refusal(workload_of("newcomer", job_of(3)).specification)
    assert hosting is not None
    assert "may be split have room for at most 2" in hosting.sentence


def test_the_refusal_counts_what_all_clusters_have_together() -> None:
    inventory = RegionCapacity(region_of(2, 2))
    hold(inventory, "better", task_on("a-0"), priority=0)
    refused = plan_in(inventory, job_of(4))
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.room) == (Reason.NO_ROOM, (1, 2))
    assert "have room for no more than 3 together" in refused.sentence
    assert refused.diagnosis.cluster is None


def specification_of(job: JobSpecification) -> WorkloadSpecification:
    return workload_of("newcomer", job).specification


def test_could_ever_be_hosted_where_all_clusters_together_hold_it() -> None:
    hosting = EmptyRegion(region_of(2, 2))
    assert hosting.refusal(specification_of(job_of(4))) is None
    assert hosting.refusal(specification_of(job_of(4, split=False))) is not None
    assert hosting.refusal(specification_of(job_of(5))) is not None
    together = workload_of("newcomer", job_of(3), job_of(1, split=False)).specification
    assert hosting.refusal(together) is None
    assert hosting.refusal(workload_of("newcomer", job_of(3), job_of(2, split=False)).specification) is not None


def test_is_of_another_kind_than_one_that_must_be_in_one_cluster() -> None:
    assert kind_of(specification_of(job_of(4))) != kind_of(specification_of(job_of(4, split=False)))


@pytest.mark.parametrize("first_is_split", [True, False])
def test_a_refusal_covers_what_is_harder_to_place_only(first_is_split: bool) -> None:
    inventory = RegionCapacity(region_of(2, 2))
    hold(inventory, "better", task_on("a-0"), priority=0)
    hold(inventory, "worse", task_on("b-0"), priority=6)
    memory = RefusalMemory(inventory)
    first, other = (workload_of("w", job_of(4, split=split)) for split in (first_is_split, not first_is_split))
    refused = plan_workload(inventory, first, NEWCOMER, 100.0, within_quota=False)
    assert isinstance(refused, Refusal)
    memory.remember(first, NEWCOMER, refused, 100.0, within_quota=False)
    assert memory.fails(first, NEWCOMER, within_quota=False)
    assert memory.fails(other, NEWCOMER, within_quota=False) == first_is_split


@settings(max_examples=examples(60))
@given(regions(3, 2, 2), steps(8), jobs(4), standings(), st.sampled_from((0.4, 0.7, 0.9, 1.0, 1.1)))
def test_never_refuses_what_fits_split_and_never_splits_what_fits_in_one(
    tiny: Region, history: list[Step], one: JobSpecification, standing: Standing, share: float
) -> None:
    """One job: exact, by counting what is left when all go that may, in each cluster and in all together."""
    world = World.of(tiny)
    for step in history:
        world.take(step)
    clusters, counted = range(len(tiny.clusters)), replace(one, tasks=MOST_TASKS)

    def rooms(gone: set[AttemptKey]) -> list[int]:
        staying = [holding for holding in world.inventory.holdings() if holding.key not in gone]
        machines = plain_machines(tiny, world.states, staying)
        return [total_room([m for m in machines if m.cluster == number], counted) for number in clusters]

    worse = {h.key for h in world.inventory.holdings() if h.key not in world.leaving and standing < h.standing}
    now, at_most = rooms(set()), rooms(worse)
    job = replace(one, tasks=max(1, min(round(share * sum(at_most)), MOST_TASKS)), across_clusters=True)
    workload = workload_of("newcomer", job)
    outcome = plan_workload(world.inventory, workload, standing, world.now_s, within_quota=False)
    assert isinstance(outcome, Plan) == (sum(at_most) >= job.tasks)
    if isinstance(outcome, Refusal):
        event("refused")
        assert outcome.room == tuple(min(room, job.tasks) for room in at_most) or sum(outcome.room) < job.tasks
        return
    parts = Counter(placement.cluster for placement in outcome.placements)
    event(f"{min(len(parts), 2)} clusters, {'victims' if outcome.evictions else 'free'}")
    assert [placement.task for placement in outcome.placements] == list(range(job.tasks))
    assert bool(outcome.evictions) == (sum(now) < job.tasks)
    if max(now) >= job.tasks or (sum(now) < job.tasks and max(at_most) >= job.tasks):
        assert len(parts) == 1
    assert outcome.score.spread // CLUSTER_WEIGHT == len(parts) - 1
    if not outcome.evictions:
        # As few clusters as there may be: the largest rooms together.
        largest = sorted(now, reverse=True)
        assert sum(largest[: len(parts) - 1]) < job.tasks
    with world.inventory.tentatively():
        world.carry_out(outcome, standing)
        world.inventory.check()
    for spared in outcome.evictions:
        left = rooms(set(outcome.evictions) - {spared})
        there = {cluster.cluster: left[number] for number, cluster in enumerate(tiny.clusters)}
        assert any(there[name] < tasks for name, tasks in parts.items())


def test_jobs_of_which_one_must_be_split_are_placed_where_no_order_of_them_fits() -> None:
    """Split jobs go where there is the most room first; the last job, which is kept whole, then finds too little in any cluster."""
    inventory = RegionCapacity(region_of(1, 2))
    plan = planned(inventory, job_of(3, 4), job_of(2, 3), job_of(3, 2, split=False))
    assert len(plan.placements) == 8
    assert len(tasks_by_cluster(plan, "job-2")) == 1
    check_held(inventory, plan)


def check_held(inventory: RegionCapacity, plan: Plan) -> None:
    """The plan fits, with its victims gone, and each job's tasks are numbered through, the largest part first."""
    with inventory.tentatively():
        for victim in plan.evictions:
            inventory.begin_eviction(victim)
        inventory.hold(Holding(key_of("newcomer"), NEWCOMER, 100.0, plan.placements))
        inventory.check()
    for job in {placement.job for placement in plan.placements}:
        parts = list(tasks_by_cluster(plan, job).values())
        assert [task for part in parts for task in sorted(part)] == list(range(sum(map(len, parts))))


@settings(max_examples=examples(200))
@given(
    regions(most_clusters=3, most_racks=1, most_machines=2),
    st.lists(st.tuples(jobs(3), st.booleans()), min_size=2, max_size=3),
    st.booleans(),
)
def test_never_refuses_several_jobs_that_fit_if_those_are_split_that_may_be(
    region: Region, drawn: list[tuple[JobSpecification, bool]], full: bool
) -> None:
    jobs_ = tuple(replace(job, across_clusters=split) for job, split in drawn)
    inventory = RegionCapacity(region)
    if full:
        for number, machine in enumerate(region.machines()):
            if machine.gpus:
                filler = JobSpecification(JobName("job"), 1, TaskResources(machine.gpus, cpus=0.0), Emulated(60.0))
                outcome = plan_workload(
                    inventory, workload_of(f"w{number}", filler), Standing(6, 0), 0.0, within_quota=False
                )
                if isinstance(outcome, Plan):
                    key = key_of(f"w{number}")
                    inventory.hold(Holding(key, Standing(6, 0), float(number), outcome.placements))
    plan = plan_in(inventory, *jobs_)
    fits = can_place(plain_machines(region, {}, ()), jobs_)
    event(f"fits: {fits}, full: {full}, split: {isinstance(plan, Plan) and plan.score.spread >= CLUSTER_WEIGHT}")
    assert isinstance(plan, Plan) == fits
    assert (EmptyRegion(region).refusal(workload_of("newcomer", *jobs_).specification) is None) == fits
    if isinstance(plan, Plan):
        check_held(inventory, plan)


def test_jobs_that_never_fit_are_refused_though_one_may_be_split() -> None:
    """If all clusters were one three whole jobs of two machines each would fit; in two clusters of three machines two do."""
    empty = EmptyRegion(region_of(3, 3))
    whole = job_of(2, 5, split=False)
    assert empty.refusal(workload_of("fits", whole, whole, job_of(2)).specification) is None
    for never in ((whole, whole, whole, job_of(1, 3)), (whole, whole, job_of(3))):
        refusal = empty.refusal(workload_of("never", *never).specification)
        assert refusal is not None
        assert refusal.diagnosis.reason is Reason.JOBS_DO_NOT_FIT_TOGETHER


def test_a_part_that_evicts_stays_in_its_cluster() -> None:
    """A single task of it would find a place without victims where machines are divided into cells, which take no parts."""
    clusters = [cluster(name, [gpu_machine(f"{name}-0")]) for name in "abc"]
    clusters[0] = replace(clusters[0], mechanism=CELLS_MECHANISM)
    inventory = RegionCapacity(region(*clusters))
    for name in "bc":
        hold(inventory, f"there-{name}", task_on(f"{name}-0"), priority=6)
    plan = planned(inventory, job_of(2))
    assert tasks_by_cluster(plan) == {"b": [0], "c": [1]}
    assert sorted(plan.evictions) == [key_of("there-b"), key_of("there-c")]
