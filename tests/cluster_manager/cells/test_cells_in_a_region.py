"""A region in which one cluster places in cells and one packs: plans name the cells, and what is applied holds them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from cluster_manager.cells.invariants import check_cells
from cluster_manager.cells.mechanism import Cells
from cluster_manager.cells.virtual_view import ViewKey
from domain.cells import CellHierarchy, CellLevel, ClusterCells, OwnedCells, VirtualCluster
from domain.identifiers import AttemptNumber, JobName, TenantId, VirtualClusterId
from domain.placement import AttemptKey
from domain.plan import Plan
from domain.rank import QueuePosition, Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.planner import plan_workload
from regional_scheduler.refusal import Refusal
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.rounds import Lot
from tests.cluster_manager.cells.worlds import Choices, choices
from tests.cluster_manager.fleets import A100, H100, cluster, cpu_machine, gpu_machine, region
from tests.cluster_manager.inventory_worlds import workload_of
from tests.examples import examples

LEVELS = tuple(CellLevel(name, split) for name, split in (("gpu", 1), ("switch", 2), ("socket", 2), ("node", 2)))
OVER_QUOTA = 6


def virtual_cluster(name: str, *cells: tuple[str, int]) -> VirtualCluster:
    return VirtualCluster(VirtualClusterId(name), tuple(OwnedCells("H100", level, count) for level, count in cells))


class SharedRegion:
    """Victims leave at once."""

    def __init__(self, *owners: VirtualCluster) -> None:
        racks = [gpu_machine("h0"), gpu_machine("h1"), cpu_machine("c0")], [gpu_machine("h2"), gpu_machine("h3")]
        divided = ClusterCells((CellHierarchy("H100", H100, LEVELS),), owners)
        in_cells = replace(cluster("cells", *racks), mechanism="cells", cells=divided)
        packed = cluster("packed", [gpu_machine("p0", 4, A100), cpu_machine("c1")])
        self.capacity = RegionCapacity(region(in_cells, packed))
        self.now_s = 0.0

    def plan(self, name: str, tenant: str, *jobs: JobSpecification, within_quota: bool = True) -> Plan | Refusal:
        workload = self._workload(name, tenant, *jobs)
        standing = Standing(2 if within_quota else OVER_QUOTA, 0)
        return plan_workload(self.capacity, workload, standing, self.now_s, within_quota=within_quota)

    def start(self, name: str, tenant: str, *jobs: JobSpecification, within_quota: bool = True) -> Plan:
        plan = self.plan(name, tenant, *jobs, within_quota=within_quota)
        assert isinstance(plan, Plan), plan
        self.apply(plan, self._workload(name, tenant, *jobs), within_quota=within_quota)
        return plan

    def apply(self, plan: Plan, workload: Workload, *, within_quota: bool) -> None:
        self.now_s += 1.0
        standing = Standing(2 if within_quota else OVER_QUOTA, 0)
        position = QueuePosition(workload.workload, standing, 0.0, 0.0, within_quota)
        apply_plan(self.capacity, plan, self.now_s, Lot(workload, position, AttemptNumber(1)))
        for victim in plan.evictions:
            self.capacity.release(victim)
        self.check()

    def check(self) -> None:
        self.capacity.check()
        mechanism = self.mechanism
        mechanism._work.bring_up_to_date(self.capacity.clusters[0])
        check_cells(mechanism._work.cells)
        assert not any(work.downgraded for work in mechanism._work.cells.work.values())

    @property
    def mechanism(self) -> Cells:
        mechanism = self.capacity.mechanisms[0]
        assert isinstance(mechanism, Cells)
        return mechanism

    def free_gpus(self, name: str) -> int:
        """Of the tenant's virtual cluster."""
        self.check()
        return self.mechanism._work.cells.views[ViewKey(VirtualClusterId(name), "H100")].free_gpus

    def _workload(self, name: str, tenant: str, *jobs: JobSpecification) -> Workload:
        workload = workload_of(name, *jobs)
        return replace(workload, specification=replace(workload.specification, tenant=TenantId(tenant)))


def gpus(tasks: int, count: int) -> JobSpecification:
    return JobSpecification(JobName("job"), tasks, TaskResources(gpus=count, gpu_model=H100), Emulated(1.0))


def cpus(count: float) -> JobSpecification:
    return JobSpecification(JobName("job"), 1, TaskResources(cpus=count, memory_gib=1.0), Emulated(1.0))


def test_a_plan_names_the_cells_and_what_is_applied_holds_them() -> None:
    shared = SharedRegion(virtual_cluster("a", ("node", 2)), virtual_cluster("b", ("node", 2)))
    plan = shared.start("one", "a", gpus(1, 8), gpus(2, 4), cpus(2.0))
    assert shared.free_gpus("a") == 0
    assert shared.free_gpus("b") == 16
    held = shared.capacity.holding(AttemptKey(plan.workload, AttemptNumber(1)))
    assert held is not None
    assert [(job, len(use.tasks)) for job, use in held.cells] == [("job-0", 1), ("job-1", 2)]
    assert isinstance(shared.plan("two", "a", gpus(1, 1)), Refusal)
    assert isinstance(shared.plan("two", "a", gpus(1, 1), within_quota=False), Plan)
    shared.start("three", "b", gpus(2, 8))


def test_over_quota_work_makes_room_for_the_owner() -> None:
    shared = SharedRegion(virtual_cluster("a", ("node", 2)), virtual_cluster("b", ("node", 2)))
    low = shared.start("low", "a", gpus(4, 8), within_quota=False)
    plan = shared.start("high", "b", gpus(2, 8))
    assert [victim.workload for victim in plan.evictions] == [low.workload]


def random_job(choose: Choices) -> JobSpecification:
    if choose.one_in(5):
        return cpus(1.0 + choose.below(8))
    return gpus(1 + choose.below(3), choose.of((1, 1, 2, 4, 8)))


OWNED_GPUS = {"a": 16, "b": 14}


@settings(max_examples=examples(50))
@given(choices(160))
def test_never_plans_more_than_an_owner_has_or_leaves_it_waiting_for_others(choose: Choices) -> None:
    owners = virtual_cluster("a", ("node", 2)), virtual_cluster("b", ("node", 1), ("socket", 1), ("switch", 1))
    shared = SharedRegion(*owners)
    alone = {owner.virtual_cluster: SharedRegion(owner) for owner in owners}
    for number in range(12):
        running = [holding.key for holding in shared.capacity.holdings()]
        if running and choose.one_in(4):
            key = choose.of(running)
            for world in (shared, *alone.values()):
                if world.capacity.holding(key) is not None:
                    world.capacity.release(key)
            continue
        jobs = [random_job(choose) for _ in range(2 if choose.one_in(4) else 1)]
        tenant, within_quota = choose.of("ab"), not choose.one_in(3)
        name = f"w{number}"
        exceeding = [job for job in jobs if job.tasks * job.resources.gpus > OWNED_GPUS[tenant]]
        if within_quota and exceeding and len(jobs) > 1:
            # Part of it would be guaranteed: what a private cluster says of all of it is no measure.
            continue
        plan = shared.plan(name, tenant, *jobs, within_quota=within_quota)
        if within_quota and not exceeding:
            private = alone[VirtualClusterId(tenant)]
            there = private.plan(name, tenant, *jobs)
            assert isinstance(plan, Plan) == isinstance(there, Plan)
            if isinstance(there, Plan):
                private.apply(there, private._workload(name, tenant, *jobs), within_quota=True)
        if isinstance(plan, Plan):
            shared.apply(plan, shared._workload(name, tenant, *jobs), within_quota=within_quota)
