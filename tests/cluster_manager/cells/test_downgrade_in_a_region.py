"""Work that yields loses its cells and goes on, in plans and in what is held; it gets cells again when there are some."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from cluster_manager.cells.invariants import check_cells
from cluster_manager.cells.mechanism import Cells
from domain.affinity import JobAffinity
from domain.cells import CellHierarchy, CellLevel, ClusterCells, OwnedCells, VirtualCluster, downgraded
from domain.fleet import Region
from domain.identifiers import AttemptNumber, JobName, MachineId, TenantId, VirtualClusterId, WorkloadId
from domain.placement import AttemptKey
from domain.plan import Downgrade, Evict, Plan, Restore, Start
from domain.rank import QueuePosition, Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from regional_scheduler.cell_changes import cell_changes
from regional_scheduler.plan_application import apply_actions, apply_plan
from regional_scheduler.planner import plan_workload
from regional_scheduler.refusal import Refusal
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.region_change import capacity_after_change
from regional_scheduler.rounds import Lot
from tests.cluster_manager.cells.worlds import Choices, choices
from tests.cluster_manager.fleets import H100, cluster, gpu_machine, region
from tests.examples import examples

LEVELS = tuple(CellLevel(name, split) for name, split in (("gpu", 1), ("switch", 2), ("socket", 2), ("node", 2)))
MACHINES = ("h0", "h1", "h2", "h3")
YIELDS = JobAffinity(yields_to_downgrade=True)


def owner(name: str, *cells: tuple[str, int]) -> VirtualCluster:
    return VirtualCluster(VirtualClusterId(name), tuple(OwnedCells("H100", level, count) for level, count in cells))


def described(*owners: VirtualCluster) -> Region:
    racks = [gpu_machine(name) for name in MACHINES[:2]], [gpu_machine(name) for name in MACHINES[2:]]
    divided = ClusterCells((CellHierarchy("H100", H100, LEVELS),), owners)
    return region(replace(cluster("c", *racks), mechanism="cells", cells=divided))


class Shared:
    """A region whose victims leave at once; every change is checked."""

    def __init__(self, *owners: VirtualCluster) -> None:
        self.capacity = RegionCapacity(described(*owners))
        self.now_s = 0.0

    @property
    def mechanism(self) -> Cells:
        (mechanism,) = self.capacity.mechanisms
        assert isinstance(mechanism, Cells)
        return mechanism

    def plan(
        self, name: str, tenant: str, priority: int, *jobs: tuple[int, int], yields: bool = False, quota: bool = True
    ) -> Plan | Refusal:
        workload = self._workload(name, tenant, *jobs, yields=yields)
        return plan_workload(self.capacity, workload, Standing(priority, 0), self.now_s, within_quota=quota)

    def start(
        self, name: str, tenant: str, priority: int, *jobs: tuple[int, int], yields: bool = False, quota: bool = True
    ) -> Plan:
        plan = self.plan(name, tenant, priority, *jobs, yields=yields, quota=quota)
        assert isinstance(plan, Plan), plan
        self.now_s += 1.0
        position = QueuePosition(plan.workload, Standing(priority, 0), 0.0, 0.0, quota)
        workload = self._workload(name, tenant, *jobs, yields=yields)
        apply_plan(self.capacity, plan, self.now_s, Lot(workload, position, AttemptNumber(1)))
        for victim in plan.evictions:
            self.capacity.release(victim)
        self.check()
        return plan

    def restore(self) -> tuple[Downgrade | Restore, ...]:
        changes = cell_changes(self.capacity)
        before = self.capacity.holdings()
        assert cell_changes(self.capacity) == changes, "looking changes nothing"
        apply_actions(self.capacity, changes, self.now_s)
        self.check()
        assert [held.placements for held in self.capacity.holdings()] == [held.placements for held in before]
        assert cell_changes(self.capacity) == ()
        return changes

    def check(self) -> None:
        self.capacity.check()
        work = self.mechanism._work
        work.bring_up_to_date(self.capacity.clusters[0])
        check_cells(work.cells)

    def is_downgraded(self, name: str) -> bool:
        held = self.capacity.holding(key(name))
        assert held is not None
        return any(use.downgraded for _, use in held.cells)

    def _workload(self, name: str, tenant: str, *jobs: tuple[int, int], yields: bool) -> Workload:
        affinity = YIELDS if yields else JobAffinity()
        made = tuple(
            JobSpecification(
                JobName(f"job-{n}"),
                tasks,
                TaskResources(gpus=gpus, cpus=1.0, memory_gib=1.0),
                Emulated(1.0),
                affinity=affinity,
            )
            for n, (tasks, gpus) in enumerate(jobs)
        )
        return Workload(WorkloadId(name), WorkloadSpecification(name, TenantId(tenant), made), 0.0)


def key(name: str) -> AttemptKey:
    return AttemptKey(WorkloadId(name), AttemptNumber(1))


def test_who_yields_goes_on_without_cells_and_gets_them_back() -> None:
    shared = Shared(owner("a", ("node", 1)))
    shared.start("low", "a", 5, (1, 8), yields=True)
    plan = shared.start("high", "a", 1, (1, 8))
    held = shared.capacity.holding(key("low"))
    assert held is not None
    assert [type(action) for action in plan.actions] == [Downgrade, Start]
    assert shared.is_downgraded("low")
    assert shared.restore() == ()
    shared.capacity.release(key("high"))
    (restored,) = shared.restore()
    assert isinstance(restored, Restore)
    assert not shared.is_downgraded("low")
    refused = shared.plan("next", "a", 5, (1, 8))
    assert isinstance(refused, Refusal)


def test_who_does_not_yield_is_evicted() -> None:
    shared = Shared(owner("a", ("node", 1)))
    shared.start("low", "a", 5, (1, 8))
    assert [type(action) for action in shared.start("high", "a", 1, (1, 8)).actions] == [Evict, Start]


def test_who_was_downgraded_is_evicted_by_whoever_owns_its_cells_whatever_the_standing() -> None:
    shared = Shared(owner("a", ("node", 1)), owner("b", ("node", 3)))
    shared.start("low", "a", 2, (1, 8), yields=True)
    shared.start("high", "a", 1, (1, 8))
    plan = shared.start("owner", "b", 6, (3, 8))
    assert plan.evictions == plan.own_cells == (key("low"),)


def test_several_jobs_of_one_workload_share_what_is_yielded() -> None:
    shared = Shared(owner("a", ("node", 2)))
    shared.start("one", "a", 5, (1, 8), yields=True)
    shared.start("two", "a", 5, (1, 8), yields=True)
    plan = shared.start("both", "a", 1, (1, 8), (1, 8))
    downgrades = [action.attempt for action in plan.actions if isinstance(action, Downgrade)]
    assert downgrades == [key("one"), key("two")]
    assert plan.evictions == ()


def test_work_whose_cells_are_gone_after_a_change_is_downgraded_and_restored_when_they_are_back() -> None:
    shared = Shared(owner("a", ("node", 2)))
    shared.start("one", "a", 3, (2, 8))
    shared.capacity = capacity_after_change(shared.capacity, described(owner("a", ("socket", 2))), {})
    (lost,) = shared.restore()
    assert isinstance(lost, Downgrade)
    assert shared.is_downgraded("one")
    shared.capacity = capacity_after_change(shared.capacity, described(owner("a", ("node", 2))), {})
    (back,) = shared.restore()
    assert isinstance(back, Restore)
    assert not shared.is_downgraded("one")


def test_owners_of_the_lowest_priority_reclaim_their_cells_from_work_of_their_own_standing() -> None:
    shared = Shared(owner("a", ("node", 4)))
    shared.start("low", "b", 6, (4, 8), quota=False)
    plan = shared.start("own", "a", 6, (1, 8))
    assert plan.evictions == plan.own_cells == (key("low"),)


@settings(max_examples=examples(150))
@given(choices())
def test_never_ends_who_yields_or_loses_track_of_its_cells(choose: Choices) -> None:
    """Two owners; nobody but work that does not yield, or is in cells that others own, is ever evicted."""
    shared = Shared(owner("a", ("node", 1), ("socket", 2)), owner("b", ("node", 1)))
    yielding: set[AttemptKey] = set()
    for number in range(12):
        if choose.one_in(3) and (held := shared.capacity.holdings()):
            shared.capacity.release(choose.of(held).key)
            shared.restore()
            continue
        name, tenant, priority = f"w{number:02}", choose.of("ab"), choose.of((1, 3, 5))
        jobs = [(1 + choose.below(2), choose.of((1, 2, 4, 8))) for _ in range(1 + choose.below(2))]
        yields, quota = choose.one_in(2), not choose.one_in(4)
        plan = shared.plan(name, tenant, priority if quota else 6, *jobs, yields=yields, quota=quota)
        if isinstance(plan, Refusal):
            continue
        for victim in plan.evictions:
            assert victim in plan.own_cells or victim not in yielding or _on_the_same_gpus(shared, victim, plan)
        shared.start(name, tenant, priority if quota else 6, *jobs, yields=yields, quota=quota)
        if yields:
            yielding.add(key(name))
        shared.restore()
    again = RegionCapacity(described(owner("a", ("node", 1), ("socket", 2)), owner("b", ("node", 1))))
    for holding in shared.capacity.holdings():
        again.hold(holding)
    assert cell_changes(again) == ()


def _on_the_same_gpus(shared: Shared, victim: AttemptKey, plan: Plan) -> bool:
    held = shared.capacity.holding(victim)
    assert held is not None
    taken: set[tuple[MachineId, int]] = {
        (placement.machine, gpu) for placement in plan.placements for gpu in placement.gpu_indices
    }
    return any((placement.machine, gpu) in taken for placement in held.placements for gpu in placement.gpu_indices)


def test_a_downgraded_use_says_so_in_what_is_held() -> None:
    shared = Shared(owner("a", ("node", 1)))
    plan = shared.start("low", "a", 5, (1, 8), yields=True)
    ((_, use),) = plan.cells
    shared.start("high", "a", 1, (1, 8))
    held = shared.capacity.holding(key("low"))
    assert held is not None
    assert held.cells[0][1] == downgraded(use)
