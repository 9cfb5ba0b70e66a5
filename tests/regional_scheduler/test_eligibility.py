"""Which regions take part in the auction of a workload, and what no region could ever host."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_placement.catalog import Catalog
from domain.diagnosis import Reason
from domain.fleet import Cluster, Machine, Rack, Region
from domain.identifiers import (
    ANY_GPU_MODEL,
    ClusterId,
    GpuModel,
    JobName,
    MachineId,
    RackId,
    RegionId,
    TableId,
    TenantId,
    WorkloadId,
)
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.table import Table
from domain.workload import Emulated, JobSpecification, TableInput, Workload, WorkloadSpecification
from regional_scheduler.eligibility import abandonment
from regional_scheduler.gang_search import GangDemand, SearchGivenUp, fit_together
from regional_scheduler.hosting import EmptyRegion, HostingRegions
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from tests.examples import examples

EAST, WEST = RegionId("east"), RegionId("west")
A100, V100, H100 = GpuModel("a100"), GpuModel("v100"), GpuModel("h100")
CLICKS = TableId("clicks")


def machines(
    cluster: str, count: int, model: GpuModel, gpus: int, cpus: float, memory_gib: float
) -> tuple[Machine, ...]:
    return tuple(Machine(MachineId(f"{cluster}-{i}"), model, gpus, cpus, memory_gib) for i in range(count))


def region(name: RegionId, **clusters: Sequence[Machine]) -> Region:
    return Region(
        name,
        tuple(Cluster(ClusterId(cluster), (Rack(RackId(cluster), tuple(has)),)) for cluster, has in clusters.items()),
    )


def job(tasks: int, resources: TaskResources, name: str = "train") -> JobSpecification:
    return JobSpecification(JobName(name), tasks, resources, Emulated(1.0))


def specification(
    *jobs: JobSpecification, tables: tuple[TableInput, ...] = (), regions: tuple[RegionId, ...] = ()
) -> WorkloadSpecification:
    return WorkloadSpecification("w", TenantId("t"), jobs, tables=tables, regions=regions)


def east() -> EmptyRegion:
    """Two clusters: three machines with 8 A100s each, and two with 4 V100s beside one with CPUs only."""
    return EmptyRegion(
        region(
            EAST,
            e1=machines("e1", 3, A100, 8, 64.0, 512.0),
            e2=machines("e2", 2, V100, 4, 32.0, 256.0) + machines("e2-cpu", 1, GpuModel(""), 0, 128.0, 1024.0),
        )
    )


DIRECTORY = Catalog([Table(CLICKS, 10**12, home=WEST, replicas=(EAST,))])
FITS = job(2, TaskResources(gpus=8, gpu_model=A100))


# ---------------------------------------------------------------- eligibility


def test_a_region_with_data_and_hardware_is_eligible() -> None:
    assert abandonment(east(), specification(FITS, tables=(TableInput(CLICKS),)), DIRECTORY) is None


def test_a_region_that_the_workload_does_not_allow_abandons() -> None:
    abandoned = abandonment(east(), specification(FITS, regions=(WEST,)), DIRECTORY)
    assert abandoned is not None
    assert abandoned.reason is Reason.REGION_NOT_ALLOWED
    assert abandoned.sentence == "the workload allows only west"


def test_a_region_without_the_hardware_abandons() -> None:
    abandoned = abandonment(east(), specification(job(1, TaskResources(gpus=1, gpu_model=H100))), DIRECTORY)
    assert abandoned is not None
    assert abandoned.reason is Reason.NO_SUCH_GPU_MODEL
    assert abandoned.sentence == "GPUs of model h100 are asked for; region east has a100, v100"


def test_a_region_without_the_data_abandons_and_names_the_tables() -> None:
    inputs = (TableInput(CLICKS), TableInput(CLICKS, fresh=True), TableInput(TableId("views")))
    abandoned = abandonment(east(), specification(FITS, tables=inputs), DIRECTORY)
    assert abandoned is not None
    assert abandoned.reason is Reason.NO_DATA
    assert abandoned.missing_tables == (CLICKS, TableId("views"))
    assert abandoned.sentence == "table clicks is not here but fresh only in west; table views is not here but nowhere"


def test_lack_of_data_is_only_the_reason_when_nothing_else_is() -> None:
    fresh = (TableInput(CLICKS, fresh=True),)
    too_large = specification(job(1, TaskResources(gpus=16)), tables=fresh)
    assert reason_for(too_large) is Reason.TASK_TOO_LARGE
    elsewhere = specification(FITS, tables=fresh, regions=(WEST,))
    assert reason_for(elsewhere) is Reason.REGION_NOT_ALLOWED


def reason_for(asked: WorkloadSpecification) -> Reason | None:
    abandoned = abandonment(east(), asked, DIRECTORY)
    return abandoned.reason if abandoned is not None else None


# ---------------------------------------------------------------- hosting


def hosts(empty: EmptyRegion, asked: WorkloadSpecification) -> bool:
    return empty.refusal(asked) is None


def refused(resources: TaskResources, tasks: int = 1) -> tuple[Reason, str, str]:
    refusal = east().refusal(specification(FITS, job(tasks, resources, "other")))
    assert refusal is not None
    return refusal.reason, refusal.diagnosis.field, refusal.sentence


def test_a_model_that_the_region_has_not_is_named() -> None:
    assert refused(TaskResources(gpus=1, gpu_model=H100)) == (
        Reason.NO_SUCH_GPU_MODEL,
        "jobs[1].resources.gpu_model",
        "GPUs of model h100 are asked for; region east has a100, v100",
    )


@pytest.mark.parametrize(
    ("resources", "field", "sentence"),
    [
        (
            TaskResources(gpus=16),
            "jobs[1].resources.gpus",
            "a task asks for 16 GPUs; no such machine of region east has more than 8",
        ),
        (
            TaskResources(gpus=5, gpu_model=V100),
            "jobs[1].resources.gpus",
            "a task asks for 5 GPUs; no such machine of region east has more than 4",
        ),
        (
            TaskResources(gpus=1, cpus=65.0),
            "jobs[1].resources.cpus",
            "a task asks for 65 CPUs beside 1 GPUs; no such machine of region east has more than 64",
        ),
        (
            TaskResources(gpus=0, cpus=100.0, memory_gib=1024.5),
            "jobs[1].resources.memory_gib",
            "a task asks for 1024.5 GiB of memory beside 100 CPUs; no such machine of region east has more than 1024",
        ),
        (
            TaskResources(gpus=1, gpu_model=V100, memory_gib=300.0),
            "jobs[1].resources.memory_gib",
            "a task asks for 300 GiB of memory beside 1 v100 GPUs; no such machine of region east has more than 256",
        ),
    ],
)
def test_a_task_that_is_too_large_names_the_field_and_the_largest_machine(
    resources: TaskResources, field: str, sentence: str
) -> None:
    assert refused(resources) == (Reason.TASK_TOO_LARGE, field, sentence)


def test_too_many_tasks_for_every_cluster_says_how_many_there_is_room_for() -> None:
    assert refused(TaskResources(gpus=4), tasks=7) == (
        Reason.TOO_MANY_TASKS,
        "jobs[1].tasks",
        (
            "7 tasks of 4 GPUs, its share of CPUs, its share of memory are asked for in one cluster; region east has"
            " room for at most 6, in cluster e1"
        ),
    )


def test_jobs_that_fit_alone_but_not_together_are_refused() -> None:
    """Three tasks fill the three machines; there is no place for the fourth."""
    whole = TaskResources(gpus=8)
    refusal = east().refusal(specification(job(3, whole, "first"), job(1, whole, "second")))
    assert refusal is not None
    assert (refusal.reason, refusal.diagnosis.field) == (Reason.JOBS_DO_NOT_FIT_TOGETHER, "jobs")
    assert [number.quantity for number in refusal.diagnosis.numbers] == ["gpus", "cpus", "memory_gib"]
    assert refusal.sentence == (
        "each of the 2 jobs fits into a cluster of region east, but not all at once: together they ask for 32 GPUs,"
        " 256 CPUs and 2048 GiB, the region has 32 GPUs, 384 CPUs and 3072 GiB"
    )
    assert hosts(east(), specification(job(2, whole, "first"), job(1, whole, "second")))


def test_a_region_without_machines_hosts_nothing() -> None:
    empty = EmptyRegion(region(EAST))
    for resources in (TaskResources(gpus=1), TaskResources(gpus=0, cpus=1.0, memory_gib=1.0)):
        assert not hosts(empty, specification(job(1, resources)))


def test_the_closest_region_says_why_no_region_could_host_it() -> None:
    small = region(WEST, w1=machines("w1", 4, A100, 8, 64.0, 512.0))
    regions = HostingRegions([region(EAST, e1=machines("e1", 3, A100, 8, 64.0, 512.0)), small])
    asked = TaskResources(gpus=8)
    refusal = regions.refusal(specification(job(5, asked)))
    assert refusal is not None
    assert refusal.diagnosis.region == WEST
    assert "room for at most 4" in refusal.sentence
    restricted = regions.refusal(specification(job(5, asked), regions=(EAST,)))
    assert restricted is not None
    assert restricted.diagnosis.region == EAST
    assert regions.refusal(specification(job(4, asked))) is None
    assert regions.refusal(specification(job(4, asked), regions=(EAST,))) is not None


# ---------------------------------------------------------------- against brute force

shapes = st.sampled_from([(A100, 2), (A100, 4), (V100, 2), (GpuModel(""), 0)])


@st.composite
def small_regions(draw: st.DrawFn) -> Region:
    clusters = {}
    for number in range(draw(st.integers(1, 2))):
        kinds = draw(st.lists(shapes, min_size=1, max_size=2))
        clusters[f"c{number}"] = tuple(
            machine
            for index, (model, gpus) in enumerate(kinds)
            for machine in machines(f"c{number}-{index}", 1, model, gpus, 4.0, 8.0)
        )
    return region(EAST, **clusters)


@st.composite
def small_jobs(draw: st.DrawFn) -> JobSpecification:
    gpus = draw(st.integers(0, 4))
    cpus = draw(st.sampled_from([None, 0.5, 1.0, 2.0, 3.0]))
    memory_gib = draw(st.sampled_from([None, 1.0, 3.0, 8.0]))
    resources = TaskResources(
        gpus=gpus,
        gpu_model=draw(st.sampled_from([ANY_GPU_MODEL, A100, V100, H100])),
        cpus=1.0 if gpus == 0 and cpus is None else cpus,
        memory_gib=1.0 if gpus == 0 and memory_gib is None else memory_gib,
    )
    return job(draw(st.integers(1, 3)), resources)


def fits_somehow(region: Region, jobs: Sequence[JobSpecification]) -> bool:
    """The dumb twin: every cluster for every job, every machine for every task."""
    return any(
        _fits(
            {machine.machine: [machine.gpus * 1.0, machine.cpus, machine.memory_gib] for machine in region.machines()},
            [(task, cluster) for task, cluster in zip(jobs, chosen, strict=True) for _ in range(task.tasks)],
        )
        for chosen in itertools.product(region.clusters, repeat=len(jobs))
    )


def _fits(free: dict[MachineId, list[float]], tasks: Sequence[tuple[JobSpecification, Cluster]]) -> bool:
    if not tasks:
        return True
    (first, cluster), rest = tasks[0], tasks[1:]
    asked = first.resources
    for machine in cluster.machines():
        if asked.gpus and (machine.gpus == 0 or asked.gpu_model not in (ANY_GPU_MODEL, machine.gpu_model)):
            continue
        share = asked.gpus / machine.gpus if asked.gpus else 0.0
        need = [
            float(asked.gpus),
            machine.cpus * share if asked.cpus is None else asked.cpus,
            machine.memory_gib * share if asked.memory_gib is None else asked.memory_gib,
        ]
        room = free[machine.machine]
        if all(has >= needs for has, needs in zip(room, need, strict=True)):
            left = [has - needs for has, needs in zip(room, need, strict=True)]
            if _fits(free | {machine.machine: left}, rest):
                return True
    return False


@given(small_regions(), small_jobs())
def test_never_misjudges_a_single_job(small: Region, asked: JobSpecification) -> None:
    assert hosts(EmptyRegion(small), specification(asked)) == fits_somehow(small, [asked])


@settings(max_examples=examples(200))
@given(small_regions(), st.lists(small_jobs(), min_size=2, max_size=3))
def test_never_misjudges_several_jobs(small: Region, asked: list[JobSpecification]) -> None:
    jobs = [job(one.tasks, one.resources, f"job-{index}") for index, one in enumerate(asked)]
    assert hosts(EmptyRegion(small), specification(*jobs)) == fits_somehow(small, jobs)


def test_jobs_that_must_share_machines_are_seen_to_fit() -> None:
    """On machines with 8 GPUs, 5 and 3 go together; six machines hold five and seven of them, but not six and seven."""
    six = EmptyRegion(region(EAST, e1=machines("e1", 6, A100, 8, 64.0, 512.0)))
    fives, threes = TaskResources(gpus=5), TaskResources(gpus=3)
    assert hosts(six, specification(job(5, fives, "first"), job(7, threes, "second")))
    assert not hosts(six, specification(job(6, fives, "first"), job(7, threes, "second")))


def test_jobs_go_to_different_clusters_where_they_must() -> None:
    """The first would fit into either cluster, the second only beside nothing."""
    two = region(EAST, e1=machines("e1", 2, A100, 8, 64.0, 512.0), e2=machines("e2", 2, V100, 8, 64.0, 512.0))
    either, only_a100 = TaskResources(gpus=8), TaskResources(gpus=8, gpu_model=A100)
    assert hosts(EmptyRegion(two), specification(job(2, either, "first"), job(2, only_a100, "second")))
    assert not hosts(EmptyRegion(two), specification(job(3, either, "first"), job(1, only_a100, "second")))


def test_a_workload_too_contrived_to_judge_has_the_benefit_of_the_doubt() -> None:
    """Seven jobs of odd sizes that nearly fill the machines: there are too many ways to try them all."""
    many = EmptyRegion(region(EAST, e1=machines("e1", 60, A100, 8, 64.0, 512.0)))
    jobs = tuple(
        job(60, TaskResources(gpus=1, cpus=float(cpus), memory_gib=float(memory_gib)), f"job-{cpus}")
        for cpus, memory_gib in ((3, 61), (5, 59), (7, 67), (9, 71), (11, 73), (13, 53), (15, 127))
    )
    with pytest.raises(SearchGivenUp):
        fit_together(many.clusters, [GangDemand(one.tasks, one.resources) for one in jobs])
    assert hosts(many, specification(*jobs))


@given(small_regions(), st.lists(small_jobs(), min_size=1, max_size=3))
def test_never_refuses_what_the_planner_can_place(small: Region, asked: list[JobSpecification]) -> None:
    jobs = tuple(job(one.tasks, one.resources, f"job-{index}") for index, one in enumerate(asked))
    workload = Workload(WorkloadId("w"), specification(*jobs), 0.0)
    if isinstance(plan_workload(RegionCapacity(small), workload, Standing(0, 0), 0.0, within_quota=False), Plan):
        assert hosts(EmptyRegion(small), workload.specification)


def test_what_was_judged_once_is_remembered_by_shape() -> None:
    """The names of workloads and jobs do not matter; a lookup is all that a like submission costs."""
    asked = east()
    first = asked.refusal(specification(job(7, TaskResources(gpus=4), "one")))
    again = asked.refusal(specification(job(7, TaskResources(gpus=4), "two"), tables=(TableInput(CLICKS),)))
    assert first is not None
    assert first is again
