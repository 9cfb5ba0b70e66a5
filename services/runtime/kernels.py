"""Compiles what decides, once per installation, so that no region is busy compiling while it should answer.

Numba keeps the machine code beside the modules (or in NUMBA_CACHE_DIR); with that, this takes a second.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from domain.fleet import Cluster, Machine, MachineState, Rack, Region
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
from domain.rank import Standing
from domain.resources import Quota, TaskResources
from domain.tenant import Tenant
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from global_scheduler.scan_pass import scan_pass
from global_scheduler.scan_settings import ScanSettings
from global_scheduler.view_builder import PendingRows, RunningRows, build_scan_view
from regional_scheduler.planner import plan_workload
from regional_scheduler.queries import query_of
from regional_scheduler.refusal import Refusal
from regional_scheduler.refusals.memory import RefusalMemory
from regional_scheduler.region_capacity import RegionCapacity

_TENANT = TenantId("warm-up")
_NAME = WorkloadId("nothing")


def compile_kernels() -> None:
    """Has the smallest possible workloads ranked, planned and evicted: that compiles every kernel, or loads it."""
    machine = Machine(MachineId("machine"), GpuModel("model"), 1, 1.0, 1.0)
    region = Region(RegionId("region"), (Cluster(ClusterId("cluster"), (Rack(RackId("rack"), (machine,)),)),))
    job = JobSpecification(JobName("job"), 1, TaskResources(gpus=1), Emulated(1.0))
    workload = Workload(_NAME, WorkloadSpecification("nothing", _TENANT, (job,)), 0.0)
    _plan_and_evict(region, workload)
    none = np.empty(0)
    pending = PendingRows(
        workloads=[_NAME],
        tenants=[_TENANT],
        submitted_s=[0.0],
        gpu_model=[str(ANY_GPU_MODEL)],
        gpus=[1],
        cpus=[0.0],
        more_gpus=[None],
        stored_priority=[None],
        stored_level=[0],
        stored_credit=[0.0],
        stored_within_quota=[False],
        queued_since_s=[0.0],
        attained_gpu_s=[0.0],
        attained_s=[0.0],
        first_started_s=[math.inf],
    )
    running = RunningRows([], none, [], none, none, none, none, none, [], none, none, none, none)
    tenants = [Tenant(_TENANT, 0, Quota.of({ANY_GPU_MODEL: 1}))]
    scan_pass(build_scan_view(tenants, {}, running, pending, ScanSettings()), 0.0)


def _plan_and_evict(region: Region, newcomer: Workload) -> None:
    """Lets a newcomer of two jobs evict two attempts, so that every kernel of planning and charging runs once."""
    inventory = RegionCapacity(region)
    refusals = RefusalMemory(inventory)
    machine = next(region.machines()).machine
    cluster = region.clusters[0].cluster
    key = AttemptKey(WorkloadId("victim"), AttemptNumber(1))
    placement = TaskPlacement(JobName("job"), 0, cluster, machine, (0,), 1000, 1024)
    inventory.hold(Holding(key, Standing(1, 0), 0.0, (placement,)))
    plan_workload(inventory, newcomer, Standing(0, 0), 0.0, within_quota=False)
    refusal = plan_workload(inventory, newcomer, Standing(1, 0), 0.0, within_quota=False)
    if isinstance(refusal, Refusal):
        refusals.remember(newcomer, Standing(1, 0), refusal, 0.0, within_quota=False)
    query = query_of(inventory, newcomer.specification.jobs[0], _TENANT, Standing(0, 0), 0.0, within_quota=False)
    inventory.mechanisms[0].required_victims(query, (key,), inventory.clusters[0])
    two_jobs = tuple(replace(newcomer.specification.jobs[0], name=JobName(name)) for name in ("first", "second"))
    specification = replace(newcomer.specification, jobs=two_jobs)
    plan_workload(inventory, replace(newcomer, specification=specification), Standing(0, 0), 0.0, within_quota=False)
    inventory.replace_placements(key, (placement,))
    inventory.set_machine_state(machine, MachineState.DOWN)
    inventory.set_machine_state(machine, MachineState.UP)
    inventory.begin_eviction(key)
    inventory.release(key)
    refusals.fails(newcomer, Standing(1, 0), within_quota=False)


if __name__ == "__main__":
    compile_kernels()
