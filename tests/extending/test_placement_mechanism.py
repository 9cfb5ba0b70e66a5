from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace

from cluster_manager.mechanisms import MECHANISMS
from domain.identifiers import JobName
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.fleets import cluster, gpu_machine, region
from tests.cluster_manager.inventory_worlds import workload_of
from tests.extending.packages import ExamplePackage, modules_of


def test_the_example_mechanism_takes_guaranteed_work_beside_packing(install: Callable[[ExamplePackage], None]) -> None:
    install(ExamplePackage("guaranteed-only", {}, modules_of("A placement mechanism")))
    mechanism = importlib.import_module("guaranteed_only").GuaranteedOnly
    everyone = cluster("everyone", [gpu_machine("e0", 4)])
    reserved = replace(cluster("reserved", [gpu_machine("r0", 8)]), mechanism="guaranteed_only")
    capacity = RegionCapacity(
        region(everyone, reserved), mechanisms={**MECHANISMS, "guaranteed_only": lambda _view: mechanism()}
    )
    small, large = (
        workload_of("w", JobSpecification(JobName("job"), 1, TaskResources(gpus=gpus), Emulated(1.0)))
        for gpus in (4, 8)
    )
    best = Standing(0, 0)
    guaranteed = plan_workload(capacity, large, best, 0.0, within_quota=True)
    assert isinstance(guaranteed, Plan)
    assert {placement.machine for placement in guaranteed.placements} == {"r0"}
    assert not isinstance(plan_workload(capacity, large, best, 0.0, within_quota=False), Plan)
    opportunistic = plan_workload(capacity, small, best, 0.0, within_quota=False)
    assert isinstance(opportunistic, Plan)
    assert {placement.machine for placement in opportunistic.placements} == {"e0"}
