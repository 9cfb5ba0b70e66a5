"""What a job may ask of cells: levels by name, groups as trees, pinned cells; end to end through a region's planner."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from cluster_manager.cells.hierarchy import chains_of
from domain.affinity import CellAffinity, JobAffinity, TaskGroup
from domain.cells import CellHierarchy, CellLevel, ClusterCells, OwnedCells, PinnedCell, VirtualCluster
from domain.diagnosis import Reason
from domain.fleet import Cluster
from domain.identifiers import JobName, MachineId, TenantId, VirtualClusterId, WorkloadId
from domain.placement import Holding, TaskPlacement
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from regional_scheduler.hosting import EmptyRegion
from regional_scheduler.planner import plan_workload
from regional_scheduler.refusal import Refusal
from regional_scheduler.refusal_in_cells import in_words_of_cells
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.cells.worlds import Choices, choices
from tests.cluster_manager.fleets import H100, cluster, gpu_machine, hold, key_of, region, tasks_on
from tests.examples import examples

LEVELS = tuple(
    CellLevel(name, split) for name, split in (("gpu", 1), ("switch", 2), ("socket", 2), ("node", 2), ("row", 2))
)
A, B = VirtualClusterId("a"), VirtualClusterId("b")
SWITCH, SOCKET, NODE, ROW = (CellAffinity(name) for name in ("switch", "socket", "node", "row"))
GPUS_OF = {"switch": 2, "socket": 4, "node": 8, "machine": 8, "row": 16, "rack": 16}


def in_cells(*owners: VirtualCluster) -> Cluster:
    """Four machines of eight GPUs in two rows."""
    described = cluster("cells", [gpu_machine("h0"), gpu_machine("h1")], [gpu_machine("h2"), gpu_machine("h3")])
    divided = ClusterCells((CellHierarchy("H100", H100, LEVELS),), owners)
    return replace(described, mechanism="cells", cells=divided)


def shared(*owners: VirtualCluster) -> RegionCapacity:
    return RegionCapacity(region(in_cells(*owners)))


def owner(name: VirtualClusterId, *cells: tuple[str, int], pinned: tuple[PinnedCell, ...] = ()) -> VirtualCluster:
    return VirtualCluster(name, tuple(OwnedCells("H100", level, count) for level, count in cells), pinned)


def job(tasks: int, gpus: int, affinity: JobAffinity) -> JobSpecification:
    resources = TaskResources(gpus=gpus, cpus=0.0, memory_gib=0.0)
    return JobSpecification(JobName("job"), tasks, resources, Emulated(1.0), affinity=affinity)


def planned(
    capacity: RegionCapacity, one: JobSpecification, tenant: str = "a", *, within_quota: bool = True
) -> Plan | Refusal:
    workload = Workload(WorkloadId("w"), WorkloadSpecification("w", TenantId(tenant), (one,)), 0.0)
    return plan_workload(capacity, workload, Standing(2, 0), 0.0, within_quota=within_quota)


def places(plan: Plan | Refusal) -> tuple[TaskPlacement, ...]:
    assert isinstance(plan, Plan), plan
    return plan.placements


def cell_of(placement: TaskPlacement, gpus: int) -> set[int]:
    """The cells of so many GPUs that its GPUs are in."""
    machine = int(placement.machine[1:])
    return {(machine * 8 + gpu) // gpus for gpu in placement.gpu_indices}


def together(placements: tuple[TaskPlacement, ...], within: CellAffinity) -> bool:
    cells = {cell for placement in placements for cell in cell_of(placement, GPUS_OF[within.level])}
    return len(cells) == 1


def test_the_tasks_of_a_group_are_numbered_one_after_the_other() -> None:
    capacity = shared(owner(A, ("row", 2)))
    pairs = JobAffinity(ROW, (TaskGroup(3, NODE), TaskGroup(2, SOCKET, count=2), TaskGroup(1)))
    found = places(planned(capacity, job(8, 2, pairs)))
    assert [placement.task for placement in found] == list(range(8))
    assert together(found, ROW)
    assert together(found[:3], NODE)
    assert together(found[3:5], SOCKET)
    assert together(found[5:7], SOCKET)


def groups(choose: Choices, tasks: int, depth: int = 0) -> tuple[TaskGroup, ...]:
    made: list[TaskGroup] = []
    while tasks:
        each = 1 + choose.below(tasks)
        inner = groups(choose, each, depth + 1) if depth < 1 and choose.below(2) else ()
        level = choose.of((None, SWITCH, SOCKET, NODE, ROW, CellAffinity("machine"), CellAffinity("rack")))
        made.append(TaskGroup(each, level, inner))
        tasks -= each
    return tuple(made)


def check_groups(found: tuple[TaskPlacement, ...], asked: tuple[TaskGroup, ...]) -> None:
    first = 0
    for group in asked:
        for _ in range(group.count):
            here = found[first : first + group.tasks]
            assert group.within is None or together(here, group.within)
            check_groups(here, group.groups)
            first += group.tasks
    assert first == len(found) or not asked


@settings(max_examples=examples(200))
@given(choices())
def test_never_places_a_gang_farther_apart_than_it_asks(choose: Choices) -> None:
    capacity = shared(owner(A, ("row", 2)))
    tasks = 1 + choose.below(8)
    within = choose.of((None, NODE, ROW))
    asked = JobAffinity(within, groups(choose, tasks))
    guaranteed = choose.below(2) == 1
    plan = planned(capacity, job(tasks, 1 + choose.below(4), asked), within_quota=guaranteed)
    if isinstance(plan, Plan):
        assert within is None or together(plan.placements, within)
        check_groups(plan.placements, asked.groups)


def test_a_level_that_no_chain_has_is_refused_when_hard_and_ignored_when_preferred() -> None:
    capacity = shared(owner(A, ("row", 2)))
    assert isinstance(planned(capacity, job(2, 1, JobAffinity(CellAffinity("pod")))), Refusal)
    assert isinstance(planned(capacity, job(2, 1, JobAffinity(CellAffinity("pod", hard=False)))), Plan)


CORNER = PinnedCell("corner", "H100", "socket", MachineId("h3"), 5)


def test_only_work_within_quota_of_its_owner_gets_a_pinned_cell_and_only_its_gpus() -> None:
    capacity = shared(owner(A, ("node", 1), pinned=(CORNER,)), owner(B, ("node", 1)))
    asked = job(2, 2, JobAffinity(pinned_cell="corner"))
    found = places(planned(capacity, asked))
    assert {(placement.machine, *placement.gpu_indices) for placement in found} == {("h3", 4, 5), ("h3", 6, 7)}
    assert isinstance(planned(capacity, asked, within_quota=False), Refusal)
    assert isinstance(planned(capacity, asked, "b"), Refusal)
    assert isinstance(planned(capacity, job(3, 2, asked.affinity)), Refusal)


# ---------------------------------------------------------------- what no cluster could ever hold


def refused(empty: EmptyRegion, one: JobSpecification, tenant: str = "a") -> tuple[Reason, str] | None:
    refusal = empty.refusal(WorkloadSpecification("w", TenantId(tenant), (one,)))
    return (refusal.diagnosis.reason, refusal.diagnosis.field) if refusal is not None else None


def test_a_gang_that_no_cell_could_ever_hold_is_refused_with_the_field() -> None:
    empty = EmptyRegion(region(in_cells(owner(A, ("node", 1), pinned=(CORNER,)))))
    assert refused(empty, job(2, 8, JobAffinity(ROW))) is None
    assert refused(empty, job(3, 8, JobAffinity(ROW))) == (Reason.TOPOLOGY, "jobs[0].affinity.within")
    assert refused(empty, job(3, 8, JobAffinity(CellAffinity("row", hard=False)))) is None
    assert refused(empty, job(2, 1, JobAffinity(CellAffinity("pod")))) == (Reason.TOPOLOGY, "jobs[0].affinity.within")
    of_three = JobAffinity(ROW, (TaskGroup(3, SOCKET, count=2),))
    assert refused(empty, job(6, 2, of_three)) == (Reason.TOPOLOGY, "jobs[0].affinity.groups")
    pinned = job(1, 4, JobAffinity(pinned_cell="corner"))
    assert refused(empty, pinned) is None
    assert refused(empty, pinned, "b") == (Reason.TOPOLOGY, "jobs[0].pinned_cell")
    misspelt = job(1, 4, JobAffinity(pinned_cell="cornr"))
    refusal = empty.refusal(WorkloadSpecification("w", TenantId("a"), (misspelt,)))
    assert refusal is not None
    assert refusal.sentence.endswith("pinned cells of tenant a in cluster cells: corner"), refusal.sentence
    refusal = empty.refusal(WorkloadSpecification("w", TenantId("b"), (pinned,)))
    assert refusal is not None
    assert refusal.sentence.endswith("pinned cells of tenant b in cluster cells: none"), refusal.sentence
    refusal = empty.refusal(WorkloadSpecification("w", TenantId("a"), (job(3, 8, JobAffinity(ROW)),)))
    assert refusal is not None
    assert refusal.sentence.startswith("3 tasks of 8 GPUs")
    assert refusal.sentence.endswith(
        "are asked for within one row; no cluster of region here could ever hold them like that: "
        "cluster cells has gpu, switch, socket, node, row"
    ), refusal.sentence


def test_packing_could_hold_what_fits_on_one_machine_or_into_one_rack() -> None:
    packed = replace(in_cells(), mechanism="packing", cells=ClusterCells())
    empty = EmptyRegion(region(packed))
    machine, rack = JobAffinity(CellAffinity("machine")), JobAffinity(CellAffinity("rack"))
    assert refused(empty, job(2, 4, machine)) is None
    assert refused(empty, job(3, 4, machine)) == (Reason.TOPOLOGY, "jobs[0].affinity.within")
    assert refused(empty, job(2, 8, rack)) is None
    assert refused(empty, job(3, 8, rack)) == (Reason.TOPOLOGY, "jobs[0].affinity.within")
    assert refused(empty, job(2, 1, JobAffinity(groups=(TaskGroup(2, NODE),)))) is not None
    divided = EmptyRegion(region(in_cells()))
    assert refused(divided, job(2, 1, JobAffinity(SWITCH))) is None


def test_cells_could_hold_close_together_only_what_their_machines_have_cpus_for() -> None:
    """A machine has 96 CPUs."""
    empty, machine = EmptyRegion(region(in_cells())), JobAffinity(CellAffinity("node"))

    def tasks_of(cpus: float, tasks: int, affinity: JobAffinity) -> JobSpecification:
        return replace(job(tasks, 1, affinity), resources=TaskResources(gpus=1, cpus=cpus, memory_gib=1.0))

    assert refused(empty, tasks_of(48.0, 2, machine)) is None
    assert refused(empty, tasks_of(48.0, 3, machine)) == (Reason.TOPOLOGY, "jobs[0].affinity.within")
    assert refused(empty, tasks_of(48.0, 4, JobAffinity(ROW))) is None
    assert refused(empty, tasks_of(48.0, 5, JobAffinity(ROW))) == (Reason.TOPOLOGY, "jobs[0].affinity.within")
    in_sockets = JobAffinity(NODE, (TaskGroup(3, SOCKET, count=2),))
    assert refused(empty, tasks_of(16.0, 6, in_sockets)) is None, "three in each socket of one machine"


def test_every_mechanism_has_cells_called_machine_and_rack() -> None:
    (chain,) = chains_of(in_cells(), in_cells().cells.hierarchies)
    assert (chain.level_called("machine"), chain.level_called("rack")) == (4, 5)


# ---------------------------------------------------------------- why it waits


def told(
    capacity: RegionCapacity, one: JobSpecification, tenant: str = "a", *, within_quota: bool = True
) -> tuple[Reason, str, str, str]:
    refusal = planned(capacity, one, tenant, within_quota=within_quota)
    assert isinstance(refusal, Refusal)
    specification = WorkloadSpecification("w", TenantId(tenant), (one,))
    found = in_words_of_cells(capacity, specification, refusal, Standing(2, 0), 0.0, within_quota=within_quota)
    return found.reason, found.diagnosis.cells_asked, found.diagnosis.cells_owned, found.sentence


OWNED = "1 node and 2 socket of chain H100"


def test_a_wait_for_more_than_is_owned_says_so_with_the_cells_asked_for_and_owned() -> None:
    capacity = shared(owner(A, ("node", 1), ("socket", 2)), owner(B, ("node", 2)))
    start(capacity, "others", job(3, 8, JobAffinity()), "guest")
    assert told(capacity, job(2, 8, JobAffinity())) == (
        Reason.NO_ROOM,
        "2 tasks of 8 GPUs",
        OWNED,
        (
            f"job job: in cluster cells it asks for 2 tasks of 8 GPUs; its virtual cluster owns {OWNED}; that could never hold it, "
            "so it uses what others leave idle: not enough GPUs are idle and close enough"
        ),
    )
    assert told(capacity, job(2, 8, JobAffinity(ROW)), "b")[:2] == (Reason.NO_ROOM, "2 tasks of 8 GPUs within one row")


def test_a_wait_for_cells_in_use_says_so() -> None:
    capacity = shared(owner(A, ("node", 1)), owner(B, ("node", 3)))
    start(capacity, "first", job(1, 8, JobAffinity()))
    reason, _, owned, sentence = told(capacity, job(1, 8, JobAffinity()))
    assert (reason, owned) == (Reason.NO_ROOM, "1 node of chain H100")
    assert sentence.endswith("too many of these are in use by work that it may not evict")
    start(capacity, "others", job(3, 8, JobAffinity()), "b")
    reason, asked, owned, sentence = told(capacity, job(1, 1, JobAffinity()), within_quota=False)
    assert (reason, asked, owned) == (Reason.NO_ROOM, "1 task of 1 GPU", "")
    assert sentence.endswith("asks for 1 task of 1 GPU; not enough GPUs are idle and close enough")


def test_a_cluster_without_cells_that_is_large_enough_comes_closer() -> None:
    packed = cluster("packed", [gpu_machine(f"p{n}") for n in range(2)])
    capacity = RegionCapacity(region(in_cells(owner(A, ("node", 1)), owner(B, ("node", 3))), packed))
    start(capacity, "others", job(3, 8, JobAffinity()), "b")
    hold(capacity, "there", tasks_on("p0", range(8), cluster_name="packed"), priority=0)
    reason, _, owned, sentence = told(capacity, job(2, 8, JobAffinity()))
    assert (reason, owned) == (Reason.NO_ROOM, "")
    assert "cluster cells: it asks for 2 tasks of 8 GPUs; its virtual cluster owns 1 node of chain H100" in sentence


def start(capacity: RegionCapacity, name: str, one: JobSpecification, tenant: str = "a") -> None:
    plan = planned(capacity, one, tenant)
    assert isinstance(plan, Plan)
    capacity.hold(Holding(key_of(name), Standing(2, 0), 0.0, plan.placements, cells=plan.cells))
