"""Several jobs are never refused where they fit: every way to place them is tried by a plain search, on small regions."""

from __future__ import annotations

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from domain.fleet import Cluster, Machine, Rack, Region
from domain.identifiers import AttemptNumber, ClusterId, GpuModel, JobName, MachineId, RackId, RegionId
from domain.placement import AttemptKey, Holding
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.inventory_worlds import jobs, regions, workload_of
from tests.cluster_manager.plain_search import PlainMachine, plain_machines
from tests.examples import examples

BEST, WORST = Standing(0, 0), Standing(6, 0)


def can_place(machines: list[PlainMachine], jobs_: tuple[JobSpecification, ...]) -> bool:
    """Whether all jobs fit at once, each in one cluster unless it may be split: task by task, on every machine."""
    if not jobs_:
        return True
    first, rest = jobs_[0], jobs_[1:]
    if first.across_clusters:
        return _can_place_in(machines, first, rest, None, 0, first.tasks)
    clusters = sorted({machine.cluster for machine in machines})
    return any(_can_place_in(machines, first, rest, cluster, 0, first.tasks) for cluster in clusters)


def _can_place_in(
    machines: list[PlainMachine],
    job: JobSpecification,
    rest: tuple[JobSpecification, ...],
    cluster: int | None,
    start: int,
    left: int,
) -> bool:
    if left == 0:
        return can_place(machines, rest)
    for number in range(start, len(machines)):
        machine = machines[number]
        if cluster is not None and machine.cluster != cluster:
            continue
        for tasks in range(min(machine.room(job), left), 0, -1):
            gpus, millicpus, mebibytes = machine.need(job)
            changed = list(machines)
            changed[number] = machine.plus((gpus * tasks, millicpus * tasks, mebibytes * tasks), -1)
            if _can_place_in(changed, job, rest, cluster, number + 1, left - tasks):
                return True
    return False


def machines_of_eight(name: str, number: int) -> tuple[Machine, ...]:
    return tuple(Machine(MachineId(f"{name}-m{n}"), GpuModel("H100"), 8, 80.0, 800.0) for n in range(number))


def job_of(tasks: int, gpus: int) -> JobSpecification:
    return JobSpecification(JobName("job"), tasks, TaskResources(gpus, GpuModel("H100"), 0.0, 0.0), Emulated(60.0))


def small_regions() -> st.SearchStrategy[Region]:
    return regions(most_clusters=2, most_racks=1, most_machines=3)


@settings(max_examples=examples(150))
@given(small_regions(), st.lists(jobs(3), min_size=2, max_size=4).map(tuple), st.booleans())
def test_never_refuses_jobs_that_fit_an_empty_or_emptied_region(
    region: Region, jobs_: tuple[JobSpecification, ...], full: bool
) -> None:
    assume(sum(job.tasks for job in jobs_) <= 9)
    capacity = RegionCapacity(region)
    if full:
        # Attempts that may all be evicted hold every machine.
        for number, machine in enumerate(region.machines()):
            if machine.gpus:
                job = JobSpecification(JobName("job"), 1, TaskResources(machine.gpus, cpus=0.0), Emulated(60.0))
                plan = plan_workload(capacity, workload_of(f"w{number}", job), WORST, 0.0, within_quota=False)
                if isinstance(plan, Plan):
                    key = AttemptKey(plan.workload, AttemptNumber(1))
                    capacity.hold(Holding(key, WORST, float(number), plan.placements))
    workload = workload_of("newcomer", *jobs_)
    plan = plan_workload(capacity, workload, BEST, 100.0, within_quota=True)
    fits = can_place(plain_machines(region, {}, ()), jobs_)
    event(f"fits: {fits}, full: {full}")
    assert isinstance(plan, Plan) == fits
    if isinstance(plan, Plan):
        with capacity.tentatively():
            for victim in plan.evictions:
                capacity.begin_eviction(victim)
            capacity.hold(Holding(AttemptKey(plan.workload, AttemptNumber(1)), BEST, 100.0, plan.placements))
            capacity.check()
    capacity.check()


def test_jobs_that_no_order_places_one_after_the_other_are_placed() -> None:
    """Best fit in each cluster leaves the last job too little, whichever goes first."""
    clusters = tuple(
        Cluster(ClusterId(name), (Rack(RackId(f"{name}-r"), machines_of_eight(name, number)),))
        for name, number in (("a", 1), ("b", 2))
    )
    capacity = RegionCapacity(Region(RegionId("here"), clusters))
    jobs_ = (job_of(1, 4), job_of(3, 2), job_of(2, 4), job_of(1, 5))
    plan = plan_workload(capacity, workload_of("newcomer", *jobs_), BEST, 0.0, within_quota=True)
    assert isinstance(plan, Plan)
    assert len(plan.placements) == 7
    assert plan.evictions == ()


def test_of_those_that_hold_the_machines_only_the_needed_leave() -> None:
    """Who is beside the machines that the exact search has chosen stays, and so does who leaves enough there."""
    region = Region(RegionId("here"), (Cluster(ClusterId("c"), (Rack(RackId("r"), machines_of_eight("c", 4)),)),))
    capacity = RegionCapacity(region)
    for number in range(4):
        plan = plan_workload(capacity, workload_of(f"w{number}", job_of(1, 8)), WORST, 0.0, within_quota=False)
        assert isinstance(plan, Plan)
        capacity.hold(Holding(AttemptKey(plan.workload, AttemptNumber(1)), WORST, float(number), plan.placements))
    sizes = (5, 4, 3, 2, 2)
    jobs_ = tuple(job_of(1, gpus) for gpus in sizes)
    plan = plan_workload(capacity, workload_of("newcomer", *jobs_), BEST, 10.0, within_quota=True)
    assert isinstance(plan, Plan)
    assert len(plan.evictions) <= 3
    assert sum(len(placement.gpu_indices) for placement in plan.placements) == sum(sizes)
