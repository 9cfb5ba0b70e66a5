"""What the planner must never do, on random regions with a history; brute force says what could have been done."""

from collections import Counter
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from domain.diagnosis import Reason
from domain.fleet import Region
from domain.identifiers import JobName
from domain.placement import Holding
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload
from regional_scheduler.cluster_choice import FoundPlace, find_best_place
from regional_scheduler.planner import Refusal, plan_workload
from regional_scheduler.queries import query_of
from tests.cluster_manager.fleets import cluster, gpu_machine, hold, key_of, region, tasks_on
from tests.cluster_manager.inventory_worlds import (
    Step,
    World,
    all_arrays,
    jobs,
    regions,
    standings,
    steps,
    workload_of,
    workloads,
)
from tests.cluster_manager.plain_search import PlainMachine, after, plain_machines, scan_order, total_room
from tests.examples import examples


@dataclass
class Planned:
    """A world, and what was planned in it."""

    world: World
    workload: Workload
    standing: Standing
    outcome: Plan | Refusal

    @property
    def victims(self) -> list[Holding]:
        assert isinstance(self.outcome, Plan)
        evicted = set(self.outcome.evictions)
        return [holding for holding in self.world.inventory.holdings() if holding.key in evicted]

    def machines_without(self, gone: list[Holding]) -> list[PlainMachine]:
        """What is free with these holdings gone."""
        staying = [holding for holding in self.world.inventory.holdings() if holding not in gone]
        return plain_machines(self.world.region, self.world.states, staying)


@st.composite
def cases(draw: st.DrawFn) -> list[Planned]:
    """Several workloads, each planned by itself in a region with a history."""
    world = World.of(draw(regions()))
    for step in draw(steps()):
        world.take(step)
    newcomers = draw(st.lists(st.tuples(workloads(), standings()), min_size=3, max_size=6))
    planned = []
    for workload, standing in newcomers:
        outcome = plan_workload(world.inventory, workload, standing, world.now_s, within_quota=False)
        evicting = isinstance(outcome, Plan) and len(outcome.evictions) > 0
        event(f"{type(outcome).__name__}{' evicting' * evicting}, {len(workload.specification.jobs)} jobs")
        planned.append(Planned(world, workload, standing, outcome))
    return planned


def with_a_plan(planned: list[Planned]) -> list[tuple[Planned, Plan]]:
    return [(case, case.outcome) for case in planned if isinstance(case.outcome, Plan)]


@settings(max_examples=examples(60))
@given(cases())
def test_never_over_commits(planned: list[Planned]) -> None:
    """I1: what is planned is free, or held by a victim, and nobody else is on the same GPU."""
    for case, plan in with_a_plan(planned):
        newcomer = Holding(key_of("newcomer"), case.standing, 0.0, plan.placements)
        before = case.machines_without(case.victims)
        for machine in after(before, newcomer, -1):
            taken = tuple(old - new for old, new in zip(before[machine.number].free, machine.free, strict=True))
            assert all(left >= 0 for left, used in zip(machine.free, taken, strict=True) if used > 0)
            assert machine.takes_work or taken == (0, 0, 0)
        others = [holding for holding in case.world.inventory.holdings() if holding.key not in set(plan.evictions)]
        held = {(p.machine, gpu) for holding in others for p in holding.placements for gpu in p.gpu_indices}
        asked = [(p.machine, gpu) for p in plan.placements for gpu in p.gpu_indices]
        assert len(asked) == len(set(asked))
        assert not held & set(asked)
        with case.world.inventory.tentatively():
            case.world.carry_out(plan, case.standing)
            case.world.inventory.check()


@settings(max_examples=examples(60))
@given(cases())
def test_never_splits_a_gang(planned: list[Planned]) -> None:
    """I2: every task of every job is placed, a job's tasks in one cluster, each with what it asked for."""
    for case, plan in with_a_plan(planned):
        machines = {machine.name: machine for machine in plain_machines(case.world.region, case.world.states, ())}
        jobs_ = case.workload.specification.jobs
        expected = [(job.name, task) for job in jobs_ for task in range(job.tasks)]
        assert [(placement.job, placement.task) for placement in plan.placements] == expected
        for job in jobs_:
            mine = [placement for placement in plan.placements if placement.job == job.name]
            assert len({placement.cluster for placement in mine}) == 1
            for placement in mine:
                machine = machines[placement.machine]
                assert case.world.region.clusters[machine.cluster].cluster == placement.cluster
                assert machine.fits(job)
                assert (len(placement.gpu_indices), placement.millicpus, placement.mebibytes) == machine.need(job)


@settings(max_examples=examples(60))
@given(cases())
def test_never_evicts_an_equal_or_better_standing(planned: list[Planned]) -> None:
    """I5; nor anybody twice, nor anybody who is leaving already; and the score says whom."""
    for case, plan in with_a_plan(planned):
        assert len(case.victims) == len(plan.evictions) == len(set(plan.evictions))
        assert all(case.standing < victim.standing for victim in case.victims)
        assert not set(plan.evictions) & case.world.leaving
        counts = Counter(victim.standing.priority for victim in case.victims)
        assert plan.score.preempted_by_priority == tuple(counts[priority] for priority in range(7))
        assert plan.score.reclaim_class == (2 if case.victims else 0)
        running_s = sum(case.world.now_s - victim.started_s for victim in case.victims)
        assert plan.score.preempted_running_s == -running_s


@settings(max_examples=examples(100))
@given(cases())
def test_never_evicts_somebody_unnecessary(planned: list[Planned]) -> None:
    """Without any one of the victims, the jobs do not all find a place in the clusters that they were given."""
    for case, plan in with_a_plan(planned):
        cluster_ids = [cluster.cluster for cluster in case.world.region.clusters]
        cluster_of = {placement.job: cluster_ids.index(placement.cluster) for placement in plan.placements}
        jobs_ = sorted(case.workload.specification.jobs, key=demand, reverse=True)
        clusters = [cluster_of[job.name] for job in jobs_]
        for spared in case.victims:
            if len(jobs_) == 1:
                machines = case.machines_without([victim for victim in case.victims if victim is not spared])
                here = [machine for machine in machines if machine.cluster == clusters[0]]
                assert total_room(here, jobs_[0]) < jobs_[0].tasks
            else:
                assert not all_fit_without(case, spared, jobs_, clusters)


def all_fit_without(case: Planned, spared: Holding, jobs_: list[JobSpecification], clusters: list[int]) -> bool:
    """Whether the planner's own packing places all jobs in these clusters when only the other victims go."""
    inventory = case.world.inventory
    tenant = case.workload.specification.tenant
    queries = [query_of(inventory, job, tenant, case.standing, 0.0, within_quota=False) for job in jobs_]
    with inventory.tentatively():
        for victim in case.victims:
            if victim is not spared:
                inventory.release(victim.key)
        with inventory.supposing():
            for query, cluster in zip(queries, clusters, strict=True):
                found = find_best_place(inventory, query, cluster)
                if not isinstance(found, FoundPlace):
                    return False
                inventory.suppose_charged(found.position, found.place.entries)
    return True


def demand(job: JobSpecification) -> tuple[float, ...]:
    """By this the planner puts the most demanding job first; the names stand for the order of submission."""
    millicpus = -1 if job.resources.cpus is None else job.resources.cpus * 1000
    mebibytes = -1 if job.resources.memory_gib is None else job.resources.memory_gib * 1024
    return (
        job.tasks * job.resources.gpus,
        job.tasks * millicpus,
        job.tasks * mebibytes,
        -int(job.name.removeprefix("job-")),
    )


@settings(max_examples=examples(60))
@given(cases())
def test_never_changes_the_inventory_and_never_decides_otherwise_the_second_time(planned: list[Planned]) -> None:
    inventory = planned[0].world.inventory
    inventory.check()
    arrays = [array.copy() for array in all_arrays(inventory)]
    for case in planned:
        assert (
            plan_workload(inventory, case.workload, case.standing, case.world.now_s, within_quota=False) == case.outcome
        )
    after_it = all_arrays(inventory)
    assert all(np.array_equal(old, new) for old, new in zip(arrays, after_it, strict=True))


def brute_force_places(machines: list[PlainMachine], job: JobSpecification, tasks: int) -> bool:
    """Whether so many tasks can be put on these machines, by trying: task by task on every machine."""
    if tasks == 0:
        return True
    for index, machine in enumerate(machines):
        need = machine.need(job)
        if machine.fits(job) and all(n == 0 or n <= f for n, f in zip(need, machine.free, strict=True)):
            # Identical tasks: those that are left go to this machine or a later one.
            rest = [machine.plus(need, -1), *machines[index + 1 :]]
            if brute_force_places(rest, job, tasks - 1):
                return True
    return False


@settings(max_examples=examples(200))
@given(regions(2, 2, 2), steps(8), jobs(4), standings())
def test_never_refuses_a_job_that_brute_force_can_place(
    tiny: Region, history: list[Step], job: JobSpecification, standing: Standing
) -> None:
    """One job: exact. Everybody worse gone, cluster by cluster, every way to put the tasks."""
    world = World.of(tiny)
    for step in history:
        world.take(step)
    workload = workload_of("newcomer", job)
    outcome = plan_workload(world.inventory, workload, standing, world.now_s, within_quota=False)
    leaving = world.leaving
    staying = [h for h in world.inventory.holdings() if h.key in leaving or not standing < h.standing]
    machines = plain_machines(tiny, world.states, staying)
    possible = any(
        brute_force_places([machine for machine in machines if machine.cluster == cluster], job, job.tasks)
        for cluster in range(len(tiny.clusters))
    )
    event(f"possible: {possible}")
    assert isinstance(outcome, Plan) == possible
    if isinstance(outcome, Refusal):
        rooms = [
            total_room([machine for machine in machines if machine.cluster == cluster], job)
            for cluster in range(len(tiny.clusters))
        ]
        assert all(told >= there for told, there in zip(outcome.room, rooms, strict=True))
        assert outcome.reason in {
            Reason.NO_MACHINE_FITS,
            Reason.CLUSTERS_TOO_SMALL,
            Reason.NO_ROOM,
        }


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(st.integers(1, 6), st.sampled_from((4, 5, 6))), min_size=1, max_size=7), st.integers(1, 12))
def test_never_evicts_more_than_brute_force_would(sizes: list[tuple[int, int]], wanted: int) -> None:
    """For tasks of one GPU each: of those who were scanned until there was enough, no other choice that suffices
    evicts fewer of the best priority, or as many of that and fewer of the next, and so on."""
    world = world_of_single_machine_workloads(sizes)
    resources = TaskResources(gpus=1, cpus=0.0, memory_gib=0.0)
    job = JobSpecification(JobName("job"), wanted, resources, Emulated(1.0))
    outcome = plan_workload(
        world.inventory, workload_of("newcomer", job), Standing(0, 0), world.now_s, within_quota=False
    )
    assert isinstance(outcome, Plan) == (wanted <= sum(size for size, _ in sizes))
    if isinstance(outcome, Refusal):
        return
    scanned: list[Holding] = []
    for holding in sorted(world.inventory.holdings(), key=scan_order):
        if gpus_of(scanned) >= wanted:
            break
        scanned.append(holding)
    evicted = [holding for holding in scanned if holding.key in outcome.evictions]
    assert len(evicted) == len(outcome.evictions)
    best = min(
        (
            by_priority(list(choice))
            for count in range(len(scanned) + 1)
            for choice in combinations(scanned, count)
            if gpus_of(list(choice)) >= wanted
        ),
    )
    assert by_priority(evicted) == best


def world_of_single_machine_workloads(sizes: list[tuple[int, int]]) -> World:
    """One cluster; a machine for each (GPUs, priority), wholly held by a workload of that size and priority."""
    world = World.of(region(cluster("c", [gpu_machine(f"m{n}", gpus) for n, (gpus, _) in enumerate(sizes)])))
    for number, (gpus, priority) in enumerate(sizes):
        hold(world.inventory, f"w{number}", tasks_on(f"m{number}", range(gpus)), priority=priority, since=float(number))
    return world


def gpus_of(holdings: list[Holding]) -> int:
    return sum(len(placement.gpu_indices) for holding in holdings for placement in holding.placements)


def by_priority(holdings: list[Holding]) -> tuple[int, ...]:
    return tuple(sum(holding.standing.priority == priority for holding in holdings) for priority in range(7))
