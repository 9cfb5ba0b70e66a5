"""Who leaves for owners of cells: nobody twice, nobody needlessly, and nobody again and again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_manager.mechanism import Place, Shortfall
from domain.cells import CellHierarchy, ClusterCells
from domain.fleet import MachineState
from domain.identifiers import AttemptNumber, GpuModel, JobName, MachineId, TenantId
from domain.placement import Holding, TaskPlacement
from domain.plan import Plan
from domain.rank import QueuePosition, Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.rounds import Lot
from tests.cluster_manager.cells.test_cells_in_a_region import LEVELS, SharedRegion, cpus, gpus, virtual_cluster
from tests.cluster_manager.cells.test_cells_mechanism import World
from tests.cluster_manager.fleets import A100, H100, cluster, gpu_machine, key_of, region
from tests.cluster_manager.inventory_worlds import workload_of


def one_machine_left() -> SharedRegion:
    """Two tenants own two nodes each, and only h0 takes work, with 96 CPUs."""
    shared = SharedRegion(virtual_cluster("a", ("node", 2)), virtual_cluster("b", ("node", 2)))
    for machine in ("p0", "c0", "c1", "h1", "h2", "h3"):
        shared.capacity.set_machine_state(MachineId(machine), MachineState.DRAINING)
    return shared


def test_who_leaves_for_one_job_of_a_workload_makes_no_room_for_the_next() -> None:
    shared = one_machine_left()
    for name in ("low-1", "low-2"):
        shared.start(name, "x", cpus(40.0), within_quota=False)
    plan = shared.start("owner", "a", gpus(1, 4), gpus(1, 4))
    assert [victim.workload for victim in plan.evictions] == ["low-1", "low-2"]


@pytest.mark.parametrize("names", [("small", "big"), ("big", "small")])
def test_who_is_not_needed_once_another_one_leaves_stays(names: tuple[str, str]) -> None:
    shared = one_machine_left()
    for name in names:
        shared.start(name, "x", cpus({"small": 4.0, "big": 80.0}[name]), within_quota=False)
    # 48 CPUs come with the GPUs, 12 are free.
    plan = shared.start("owner", "a", gpus(1, 4))
    assert [victim.workload for victim in plan.evictions] == ["big"]


def part(model: GpuModel, count: int) -> JobSpecification:
    return JobSpecification(JobName("job"), 1, TaskResources(gpus=count, gpu_model=model), Emulated(1.0))


@pytest.mark.parametrize("second", [part(H100, 4), cpus(10.0)], ids=["gpus", "cpus"])
def test_who_pushes_an_owner_out_elsewhere_does_not_get_its_cells(second: JobSpecification) -> None:
    """Each could have the other leave for ever: by standing where none has cells, and as the owner where one has."""
    divided = ClusterCells((CellHierarchy("H100", H100, LEVELS),), (virtual_cluster("owner", ("node", 1)),))
    in_cells = replace(cluster("cells", [gpu_machine("h0")]), mechanism="cells", cells=divided)
    capacity = RegionCapacity(region(in_cells, cluster("packed", [gpu_machine("p0", 8, A100)])))
    workloads: dict[str, tuple[Workload, Standing]] = {}
    for name, tenant, standing, jobs in (
        ("better", "guest", Standing(1, 0), (part(A100, 8), second)),
        ("owner's", "owner", Standing(3, 0), (part(H100, 8), part(A100, 2))),
    ):
        workload = workload_of(name, *jobs)
        specification = replace(workload.specification, tenant=TenantId(tenant))
        workloads[name] = replace(workload, specification=specification), standing
    started: list[tuple[str, list[str]]] = []
    for turn in range(10):
        for name, (workload, standing) in workloads.items():
            if any(holding.key.workload == name for holding in capacity.holdings()):
                continue
            now_s = 10.0 * turn
            plan = plan_workload(capacity, workload, standing, now_s, within_quota=True)
            if not isinstance(plan, Plan):
                continue
            position = QueuePosition(workload.workload, standing, 0.0, 0.0, within_quota=True)
            apply_plan(capacity, plan, now_s, Lot(workload, position, AttemptNumber(1 + len(started))))
            for victim in plan.evictions:
                capacity.release(victim)
            started.append((name, [victim.workload for victim in plan.evictions]))
    assert started == [("better", []), ("owner's", ["better"])]


def test_the_worst_standing_leaves_first_whatever_it_holds() -> None:
    """Were it the one without GPUs, it could in turn push the owner out elsewhere, by standing, while others fill its place."""
    world = World(virtual_cluster("a", ("node", 4)))
    for number in range(4):
        machine = MachineId(f"h{number}")
        for name, priority, gpus_there, millicpus in (("better", 0, (), 40_000), ("worse", 1, (0, 1, 2, 3), 50_000)):
            task = TaskPlacement(JobName("job"), 0, world.view.cluster, machine, gpus_there, millicpus, 0)
            key = key_of(f"{name}-{number}")
            world.view.hold(Holding(key, Standing(priority, 0), 0.0, (task,), tenant=TenantId("guest")))
    place = world.start("owner", world.query(1, 4, "a", priority=5, cpus=40.0))
    assert [victim.key.workload for victim in place.victims] == ["worse-0"]


def test_cells_elsewhere_keep_no_cpus_of_other_owners() -> None:
    world = World(virtual_cluster("a", ("node", 3)), virtual_cluster("b", ("node", 1)))
    cells = world.find(world.query(1, 8, "b"))
    assert isinstance(cells, Place)
    assert cells.cells is not None
    (in_cells,) = world.placements(cells)
    without_gpus = tuple(
        TaskPlacement(JobName("cpus"), number, world.view.cluster, MachineId(name), (), 90_000, 0)
        for number, name in enumerate(name for name in ("h0", "h1", "h2", "h3") if name != in_cells.machine)
    )
    key = key_of("b")
    world.view.hold(
        Holding(
            key,
            Standing(4, 0),
            0.0,
            (in_cells, *without_gpus),
            cells=((in_cells.job, cells.cells),),
            tenant=TenantId("b"),
        )
    )
    place = world.find(world.query(1, 8, "a", priority=5))
    assert isinstance(place, Place)
    assert [victim.key for victim in place.victims] == [key]
    assert place.own_cells == (key,)
    world.view.set_machine_state(MachineId("a0"), MachineState.DOWN)
    world.view.set_machine_state(MachineId("a1"), MachineState.DOWN)
    # For guests it stays, however well they stand: it would come back as an owner, and push them out.
    assert isinstance(world.find(world.query(1, 1, "guest", priority=0)), Shortfall)
