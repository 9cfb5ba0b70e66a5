"""I15: among the attempts of one standing those leave whose eviction destroys the least work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

from domain.eviction import EvictionRule, VictimChoice
from domain.fleet import Cluster, Machine, Rack, Region
from domain.identifiers import AttemptNumber, ClusterId, GpuModel, JobName, MachineId, RackId, RegionId, WorkloadId
from domain.placement import AttemptKey, Holding
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.work_destroyed import UNITS_PER_GPU_S, unsaved_s, work_destroyed
from domain.workload import Emulated, JobSpecification
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.inventory_worlds import jobs, regions, workload_of
from tests.cluster_manager.plain_search import PlainMachine, plain_machines, total_room
from tests.examples import examples

SPARING = EvictionRule(victims=VictimChoice.LEAST_WORK_DESTROYED, restart_cost_s=60.0)
PUBLISHED = EvictionRule(victims=VictimChoice.PUBLISHED)
NOW_S = 10_000.0
BEST = Standing(0, 0)


def plain_work(holding: Holding) -> int:
    """The rule in plain words: GPU-seconds since the last checkpoint, and the restart cost, over all its GPUs."""
    gpus = sum(len(placement.gpu_indices) for placement in holding.placements)
    weight = 100 * gpus or max(1, sum(placement.millicpus for placement in holding.placements) // 1000)
    lost_s = NOW_S - (holding.started_s if holding.saved_s is None else holding.saved_s)
    if holding.checkpoint_interval_s:
        lost_s %= holding.checkpoint_interval_s
    return weight * int((lost_s + SPARING.restart_cost_s) * 1000)


@dataclass(frozen=True)
class Running:
    """An attempt that may have found a place."""

    job: JobSpecification
    standing: Standing
    age_s: float
    saved_after_s: float
    interval_s: float


def fill(region: Region, running: Sequence[Running], rule: EvictionRule) -> RegionCapacity:
    """The region with those of the attempts that find a place beside the earlier ones."""
    capacity = RegionCapacity(region, rule=rule)
    for number, one in enumerate(running):
        workload = workload_of(f"w{number}", one.job)
        plan = plan_workload(capacity, workload, BEST, NOW_S, within_quota=False)
        if isinstance(plan, Plan) and not plan.evictions:
            key = AttemptKey(workload.workload, AttemptNumber(1))
            started_s = NOW_S - one.age_s
            capacity.hold(
                Holding(
                    key,
                    one.standing,
                    started_s,
                    plan.placements,
                    saved_s=started_s + one.saved_after_s * one.age_s,
                    checkpoint_interval_s=one.interval_s,
                )
            )
    return capacity


def fits_without(machines: Sequence[PlainMachine], job: JobSpecification, gone: Sequence[Holding]) -> bool:
    """Whether the job has capacity with these gone."""
    free = {machine.name: machine for machine in machines}
    for holding in gone:
        for placement in holding.placements:
            amounts = len(placement.gpu_indices), placement.millicpus, placement.mebibytes
            free[placement.machine] = free[placement.machine].plus(amounts, 1)
    return total_room(list(free.values()), job) >= job.tasks


def by_standing(victims: Sequence[Holding], standings: Sequence[Standing]) -> tuple[int, ...]:
    """The work that their eviction destroys, of the best standing first."""
    return tuple(sum(plain_work(victim) for victim in victims if victim.standing == one) for one in standings)


def least_by_standing(
    machines: Sequence[PlainMachine], job: JobSpecification, all_: Sequence[Holding]
) -> tuple[int, ...]:
    """The least of all choices that there are: every one of them is tried."""
    standings = sorted({holding.standing for holding in all_})
    return min(
        by_standing(choice, standings)
        for number in range(len(all_) + 1)
        for choice in combinations(all_, number)
        if fits_without(machines, job, choice)
    )


def running_attempts() -> st.SearchStrategy[list[Running]]:
    # Everything small, so that there are several ways to make room.
    return st.lists(
        st.builds(
            Running,
            jobs(4),
            st.builds(Standing, st.sampled_from((3, 6)), st.integers(0, 1)),
            st.sampled_from((10.0, 300.0, 700.0, 5_000.0)),
            st.sampled_from((0.0, 0.0, 0.5, 1.0)),
            st.sampled_from((0.0, 0.0, 450.0)),
        ),
        min_size=2,
        max_size=9,
    )


@settings(max_examples=examples(150))
@given(regions(most_clusters=1, most_racks=2), running_attempts(), jobs(6))
def test_never_destroys_more_work_than_another_choice(
    region: Region, running: list[Running], job: JobSpecification
) -> None:
    """Not even where gangs hold several machines, and machines are shared."""
    assume(job.resources.gpus > 0)  # others look for machines of last resort first, whatever that destroys
    capacity = fill(region, running, SPARING)
    plan = plan_workload(capacity, workload_of("newcomer", job), BEST, NOW_S, within_quota=True)
    event("no plan" if not isinstance(plan, Plan) else f"{len(plan.evictions)} victims")
    if not isinstance(plan, Plan) or not plan.evictions:
        return
    everybody = [holding for holding in capacity.holdings() if holding.placements]
    machines = plain_machines(region, {}, capacity.holdings())
    victims = [holding for holding in everybody if holding.key in plan.evictions]
    standings = sorted({holding.standing for holding in everybody})
    assert fits_without(machines, job, victims)
    least = least_by_standing(machines, job, everybody)
    chosen = by_standing(victims, standings)
    # The search does not look for what is better by less than a hundred-thousandth of a GPU-second for each task.
    assert all(mine <= its + job.tasks for mine, its in zip(chosen, least, strict=True)) or chosen <= least
    by_priority = [0.0] * 7
    for victim in victims:
        by_priority[victim.standing.priority] += plain_work(victim) / UNITS_PER_GPU_S
    assert plan.score.work_destroyed_by_priority == pytest.approx(tuple(by_priority))


# The very cases that the rule is for.


def machines_of_eight(number: int, cluster: str = "c", first: int = 0) -> Cluster:
    machines = [Machine(MachineId(f"{cluster}-m{n}"), GpuModel("H100"), 8, 96.0, 1024.0) for n in range(first, number)]
    return Cluster(ClusterId(cluster), (Rack(RackId(f"{cluster}-r"), tuple(machines)),))


def gang(tasks: int, gpus: int = 8) -> JobSpecification:
    return JobSpecification(JobName("job"), tasks, TaskResources(gpus, GpuModel("H100"), 0.0, 0.0), Emulated(60.0))


def victims_for(
    running: Sequence[Running], newcomer: JobSpecification, rule: EvictionRule, *clusters: Cluster
) -> list[WorkloadId]:
    capacity = fill(Region(RegionId("here"), clusters), running, rule)
    plan = plan_workload(capacity, workload_of("newcomer", newcomer), BEST, NOW_S, within_quota=True)
    assert isinstance(plan, Plan)
    return [victim.workload for victim in plan.evictions]


def test_one_gpu_is_not_made_room_for_by_a_gang_of_512() -> None:
    """64 attempts of one GPU of the same priority run beside it, all for less long."""
    low = Standing(6, 0)
    running = [Running(gang(64), low, 5_000.0, 0.0, 0.0)]
    running += [Running(gang(1, 1), low, 1_000.0 - number, 0.0, 0.0) for number in range(64)]
    assert victims_for(running, gang(1, 1), PUBLISHED, machines_of_eight(72)) == ["w0"]
    # The youngest of the small ones has the least to lose.
    assert victims_for(running, gang(1, 1), SPARING, machines_of_eight(72)) == ["w64"]


def test_several_small_ones_leave_rather_than_a_gang_in_another_cluster() -> None:
    low = Standing(6, 0)
    running = [Running(gang(8), low, 5_000.0, 0.0, 0.0)]
    running += [Running(gang(1, 1), low, 1_000.0 - number, 0.0, 0.0) for number in range(8)]
    clusters = machines_of_eight(8, "a"), machines_of_eight(1, "b")
    assert victims_for(running, gang(1, 2), PUBLISHED, *clusters) == ["w0"]
    assert victims_for(running, gang(1, 2), SPARING, *clusters) == ["w7", "w8"]


def test_who_has_just_saved_leaves() -> None:
    low = Standing(6, 0)
    running = [Running(gang(1), low, 500.0, 0.0, 0.0), Running(gang(1), low, 5_000.0, 1.0, 0.0)]
    assert victims_for(running, gang(1, 1), SPARING, machines_of_eight(2)) == ["w1"]
    # At 10,000 s one that saves every 2,500 s has saved this moment, and one every 3,000 s 1,000 s ago.
    running = [Running(gang(1), low, 10_000.0, 0.0, 3_000.0), Running(gang(1), low, 10_000.0, 0.0, 2_500.0)]
    assert victims_for(running, gang(1, 1), SPARING, machines_of_eight(2)) == ["w1"]


def test_of_choices_that_destroy_the_same_the_one_of_fewest_victims_is_taken() -> None:
    low = Standing(6, 0)
    running = [Running(gang(1, 1), low, 500.0, 0.0, 0.0) for _ in range(8)] + [Running(gang(1), low, 500.0, 0.0, 0.0)]
    assert victims_for(running, gang(1), SPARING, machines_of_eight(2)) == ["w8"]


def test_a_lower_priority_leaves_however_much_work_it_loses() -> None:
    running = [Running(gang(1), Standing(5, 0), 1.0, 0.0, 0.0), Running(gang(64), Standing(6, 0), 9_000.0, 0.0, 0.0)]
    assert victims_for(running, gang(1, 1), SPARING, machines_of_eight(65)) == ["w1"]
    running = [Running(gang(1), Standing(6, 0), 1.0, 0.0, 0.0), Running(gang(64), Standing(6, 1), 9_000.0, 0.0, 0.0)]
    assert victims_for(running, gang(1, 1), SPARING, machines_of_eight(65)) == ["w1"]


def test_a_choice_among_many_is_made_all_the_same() -> None:
    """The search ends after so many steps, with a choice that suffices and of which nobody can stay."""
    low = Standing(6, 0)
    running = [
        Running(gang(1 + number % 3, 1 + number % 5), low, 37.0 * (1 + number % 11), 0.0, 0.0) for number in range(150)
    ]
    capacity = fill(Region(RegionId("here"), (machines_of_eight(40),)), running, SPARING)
    newcomer = gang(12)
    plan = plan_workload(capacity, workload_of("newcomer", newcomer), BEST, NOW_S, within_quota=True)
    assert isinstance(plan, Plan)
    machines = plain_machines(Region(RegionId("here"), (machines_of_eight(40),)), {}, capacity.holdings())
    victims = [holding for holding in capacity.holdings() if holding.key in plan.evictions]
    assert victims
    assert fits_without(machines, newcomer, victims)
    for victim in victims:
        assert not fits_without(machines, newcomer, [one for one in victims if one is not victim])


@given(st.floats(0.0, 1e6), st.sampled_from((0.0, 0.5, 60.0, 1e5)), st.floats(0.0, 1e6), st.integers(1, 100_000))
@example(0.3, 0.1, 0.3 + 3 * 0.1, 8)
def test_lost_work_is_never_negative_nor_more_than_an_interval(
    saved_s: float, interval_s: float, now: float, weight: int
) -> None:
    lost_s = unsaved_s(saved_s, interval_s, now)
    assert 0.0 <= lost_s <= max(now - saved_s, 0.0)
    assert not interval_s or lost_s <= interval_s
    assert work_destroyed(weight, lost_s, 0.001) > 0


@pytest.mark.parametrize("cost_s", [0.0, -1.0, math.nan, math.inf])
def test_no_eviction_is_free(cost_s: float) -> None:
    with pytest.raises(ValueError, match="restart_cost_s must be from"):
        EvictionRule(restart_cost_s=cost_s)


def test_of_a_gang_in_two_clusters_each_knows_the_whole_weight_and_what_is_saved() -> None:
    capacity = RegionCapacity(
        Region(RegionId("here"), (machines_of_eight(2, "a"), machines_of_eight(2, "b"))), rule=SPARING
    )
    plan = plan_workload(capacity, workload_of("gang", gang(2), gang(1)), BEST, 0.0, within_quota=True)
    assert isinstance(plan, Plan)
    key = AttemptKey(plan.workload, AttemptNumber(1))
    capacity.hold(Holding(key, Standing(6, 0), 0.0, plan.placements))
    capacity.begin_run(key, 100.0)
    capacity.save_work(key, 400.0)
    capacity.save_work(key, 300.0)  # heard of late
    for part in (cluster.holding(key) for cluster in capacity.clusters):
        assert part is not None
        assert (part.weight, part.saved_s) == (2_400, 400.0)
    whole = capacity.holding(key)
    assert whole is not None
    assert whole.work_destroyed(60.0, 500.0) == 2_400 * 160_000
    capacity.check()
