"""Plans that are asked for, applied to the capacity of a region in every order: it is never over-committed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.capacity.errors import InventoryError
from domain.fleet import Cluster, Machine, Rack, Region
from domain.identifiers import (
    ANY_GPU_MODEL,
    AttemptNumber,
    ClusterId,
    GpuModel,
    JobName,
    MachineId,
    RackId,
    RegionId,
    TenantId,
    WorkloadId,
)
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.placement_changes import ImpossibleAction, check_gang
from domain.plan import Migrate, Plan
from domain.rank import QueuePosition, Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.requested_plans import AttemptToChange, plan_migration, plan_resize, plan_retune
from regional_scheduler.rounds import Lot
from tests.examples import examples
from tests.live.world import A100, gpu_cluster

MAIN = JobName("main")


def small_region() -> Region:
    """Two clusters of three machines of four GPUs."""
    clusters = []
    for name in ("a", "b"):
        machines = tuple(Machine(MachineId(f"{name}{n}"), GpuModel("V100"), 4, 16.0, 64.0) for n in range(3))
        clusters.append(Cluster(ClusterId(name), (Rack(RackId(f"{name}-r"), machines),)))
    return Region(RegionId("r"), tuple(clusters))


@dataclass
class LiveWorld:
    """What runs, and the places that are kept for what migrates."""

    inventory: RegionCapacity = field(default_factory=lambda: RegionCapacity(small_region()))
    running: dict[str, AttemptToChange] = field(default_factory=dict)
    migrating: dict[str, AttemptKey] = field(default_factory=dict)
    submitted: int = 0
    now: float = 0.0

    def apply(self, plan: Plan, lot: Lot | None = None) -> bool:
        """Whether it was possible."""
        try:
            with self.inventory.tentatively():
                apply_plan(self.inventory, plan, self.now, lot)
        except InventoryError:
            return False
        apply_plan(self.inventory, plan, self.now, lot)
        return True

    def take_over(self, name: str) -> None:
        attempt = self.running[name]
        holding = self.inventory.holding(attempt.key)
        assert holding is not None
        check_gang(attempt.key, attempt.specification, holding.placements)
        self.running[name] = replace(attempt, placements=holding.placements)


Step: TypeAlias = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "resize", "resize", "retune", "migrate", "arrive", "end"]),
        st.integers(0, 7),
        st.integers(1, 8),
    ),
    max_size=40,
)


def submit(live: LiveWorld, tasks: int) -> None:
    live.submitted += 1
    name = WorkloadId(f"w{live.submitted}")
    resources = TaskResources(gpus=1, gpu_model=ANY_GPU_MODEL, cpus=2.0, memory_gib=8.0)
    job = JobSpecification(MAIN, 1 + tasks % 3, resources, Emulated(1.0), max_tasks=6)
    workload = Workload(name, WorkloadSpecification(name, TenantId("t"), (job,)), live.now)
    standing = Standing(3, 0)
    plan = plan_workload(live.inventory, workload, standing, live.now, within_quota=True)
    if not isinstance(plan, Plan):
        return
    lot = Lot(workload, QueuePosition(name, standing, 0.0, live.now, within_quota=True), AttemptNumber(1))
    assert live.apply(plan, lot)
    live.running[name] = AttemptToChange(lot.key, workload.specification, plan.placements, guaranteed=True)


def take(live: LiveWorld, step: Step) -> None:
    kind, which, amount = step
    live.now += 1.0
    free = sorted(name for name in live.running if name not in live.migrating)
    if kind == "submit":
        submit(live, amount)
    elif kind == "arrive" and live.migrating:
        name = sorted(live.migrating)[which % len(live.migrating)]
        successor = live.migrating.pop(name)
        attempt = live.running[name]
        holding = live.inventory.holding(successor)
        assert holding is not None
        live.inventory.release(attempt.key)
        live.inventory.release(successor)
        live.inventory.hold(Holding(successor, Standing(3, 0), live.now, holding.placements))
        live.running[name] = replace(attempt, key=successor, placements=holding.placements)
    elif free:
        name = free[which % len(free)]
        attempt = live.running[name]
        if kind == "end":
            live.inventory.release(attempt.key)
            del live.running[name]
            return
        try:
            plan = plan_of(live, kind, attempt, amount)
        except ImpossibleAction:
            return
        if live.apply(plan):
            if any(isinstance(action, Migrate) for action in plan.actions):
                live.migrating[name] = attempt.key.successor
            live.take_over(name)


def plan_of(live: LiveWorld, kind: str, attempt: AttemptToChange, amount: int) -> Plan:
    if kind == "resize":
        return plan_resize(live.inventory, attempt, MAIN, amount, live.now)
    if kind == "retune":
        return plan_retune(live.inventory, attempt, MAIN, 0.75 * amount, 4.0 * amount)
    cluster = (None, ClusterId("a"), ClusterId("b"))[amount % 3]
    return plan_migration(live.inventory, attempt, cluster, live.now)


@settings(max_examples=examples(30), deadline=None)
@given(STEPS)
def test_never_over_commits_a_machine_nor_tears_a_gang(steps: list[Step]) -> None:
    live = LiveWorld()
    for step in steps:
        take(live, step)
        live.inventory.check()
    for name in sorted(live.running):
        live.take_over(name)


def test_a_place_that_is_kept_makes_nobody_its_victim() -> None:
    live = LiveWorld()
    submit(live, 1)
    (attempt,) = live.running.values()
    plan = plan_migration(live.inventory, attempt, ClusterId("b"), 1.0)
    assert live.apply(plan)
    job = JobSpecification(MAIN, 6, TaskResources(gpus=4, cpus=2.0, memory_gib=8.0), Emulated(1.0))
    greedy = Workload(WorkloadId("greedy"), WorkloadSpecification("greedy", TenantId("t"), (job,)), 2.0)
    assert not isinstance(plan_workload(live.inventory, greedy, Standing(0, 0), 2.0, within_quota=False), Plan)


def test_a_job_that_is_not_elastic_says_what_makes_it_so() -> None:
    live = LiveWorld()
    job = JobSpecification(MAIN, 1, TaskResources(gpus=1, cpus=2.0, memory_gib=8.0), Emulated(1.0))
    rigid = WorkloadSpecification("rigid", TenantId("t"), (job,))
    attempt = AttemptToChange(AttemptKey(WorkloadId("rigid"), AttemptNumber(1)), rigid, (), guaranteed=True)
    with pytest.raises(ImpossibleAction, match=r"is not elastic .* submitted with max_tasks"):
        plan_resize(live.inventory, attempt, MAIN, 2, 0.0)


def test_nothing_is_moved_into_a_cluster_with_cells() -> None:
    """Neither where it is asked for by name, nor where any machines will do."""
    divided = replace(gpu_cluster("divided", A100, 2), mechanism="cells")
    region = Region(RegionId("east"), (divided, gpu_cluster("full", A100, 1), gpu_cluster("packed", A100, 1)))
    inventory = RegionCapacity(region)
    job = JobSpecification(MAIN, 1, TaskResources(gpus=8, gpu_model=A100), Emulated(1.0))
    specification = WorkloadSpecification("moves", TenantId("t"), (job,))
    key = AttemptKey(WorkloadId("moves"), AttemptNumber(1))
    there = TaskPlacement(MAIN, 0, ClusterId("full"), MachineId("full-m0"), tuple(range(8)), 96_000, 786_432)
    inventory.hold(Holding(key, Standing(1, 0), 0.0, (there,)))
    attempt = AttemptToChange(key, specification, (there,), guaranteed=True)
    with pytest.raises(ImpossibleAction, match="cluster divided is divided into cells: nothing is moved into it"):
        plan_migration(inventory, attempt, ClusterId("divided"), 1.0)
    (action,) = plan_migration(inventory, attempt, None, 1.0).actions
    assert isinstance(action, Migrate)
    assert {placement.cluster for placement in action.placements} == {"packed"}
    other = AttemptKey(WorkloadId("other"), AttemptNumber(1))
    filling = there._replace(cluster=ClusterId("packed"), machine=MachineId("packed-m0"))
    inventory.hold(Holding(other, Standing(1, 0), 0.0, (filling,)))
    with pytest.raises(ImpossibleAction, match="cannot go on elsewhere"):
        plan_migration(inventory, attempt, None, 1.0)
