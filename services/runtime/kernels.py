"""Compiles what decides, once per installation, so that no region is busy compiling while it should answer.

Numba keeps the machine code beside the modules (or in NUMBA_CACHE_DIR); with that, this takes a second.
"""

from __future__ import annotations

import numpy as np

from cluster_manager.inventory import Inventory
from domain.fleet import Cluster, Machine, Rack, Region
from domain.identifiers import (
    ANY_GPU_MODEL,
    ClusterId,
    GpuModel,
    JobName,
    MachineId,
    RackId,
    RegionId,
    TenantId,
    WorkloadId,
)
from domain.rank import Standing
from domain.resources import Quota, TaskResources
from domain.tenant import Tenant
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from global_scheduler.scan_pass import scan_pass
from global_scheduler.scan_settings import ScanSettings
from global_scheduler.view_builder import PendingRows, RunningRows, build_scan_view
from regional_scheduler.planner import plan_workload

_TENANT = TenantId("nobody")
_NAME = WorkloadId("nothing")


def compile_kernels() -> None:
    """Has the smallest possible workload ranked and planned: that compiles every kernel, or loads it."""
    machine = Machine(MachineId("machine"), GpuModel("model"), 1, 1.0, 1.0)
    region = Region(RegionId("region"), (Cluster(ClusterId("cluster"), (Rack(RackId("rack"), (machine,)),)),))
    job = JobSpecification(JobName("job"), 1, TaskResources(gpus=1), Emulated(1.0))
    workload = Workload(_NAME, WorkloadSpecification("nothing", _TENANT, (job,)), 0.0)
    plan_workload(Inventory(region), workload, Standing(0, 0), 0.0)
    none = np.empty(0)
    pending = PendingRows(
        workloads=[_NAME],
        tenants=[_TENANT],
        submitted_s=[0.0],
        gpu_model=[str(ANY_GPU_MODEL)],
        gpus=[1],
        cpus=[0.0],
        more_gpus=[None],
        level=[0],
        stored_priority=[None],
        stored_level=[0],
        stored_credit=[0.0],
        stored_within_quota=[False],
    )
    running = RunningRows([], none, [], none, none, none, none, none, [])
    tenants = [Tenant(_TENANT, 0, Quota.of({ANY_GPU_MODEL: 1}))]
    scan_pass(build_scan_view(tenants, {}, running, pending, ScanSettings()), 0.0)


if __name__ == "__main__":
    compile_kernels()
