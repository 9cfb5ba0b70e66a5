"""What the benchmarks of the whole service have in common: a fleet, many tenants, many small workloads."""

from __future__ import annotations

from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ClusterId, GpuModel, JobName, MachineId, RackId, RegionId, TenantId
from domain.resources import Quota, TaskResources
from domain.tenant import LOWEST_PRIORITY, Tenant
from domain.workload import Emulated, JobSpecification, WorkloadSpecification

_MACHINES_PER_RACK = 20


def many_machines(regions: int, clusters_per_region: int, machines_per_cluster: int) -> Fleet:
    """8-GPU machines of one model, 96 CPUs each."""
    return Fleet(
        tuple(
            Region(
                RegionId(f"region-{r}"),
                tuple(_cluster(f"region-{r}-cluster-{c}", machines_per_cluster) for c in range(clusters_per_region)),
            )
            for r in range(regions)
        )
    )


def _cluster(name: str, machines: int) -> Cluster:
    racks: dict[int, list[Machine]] = {}
    for number in range(machines):
        machine = Machine(MachineId(f"{name}-{number:04}"), GpuModel("A100"), 8, 96.0, 1024.0)
        racks.setdefault(number // _MACHINES_PER_RACK, []).append(machine)
    return Cluster(
        ClusterId(name), tuple(Rack(RackId(f"{name}-rack-{rack}"), tuple(held)) for rack, held in racks.items())
    )


def many_tenants(count: int, gpus_each: int) -> tuple[Tenant, ...]:
    """Tenants of all priorities but the lowest, in turn."""
    return tuple(
        Tenant(TenantId(f"tenant-{number:04}"), number % LOWEST_PRIORITY, Quota.of({GpuModel("any"): gpus_each}))
        for number in range(count)
    )


def small_workload(number: int, tenants: int, duration_s: float, shapes: int = 1) -> WorkloadSpecification:
    """One task on one GPU, emulated; with so many different amounts of CPUs, no two neighbours of a tenant alike."""
    shape = number // tenants % shapes
    resources = (
        TaskResources(gpus=1)
        if shapes == 1
        else TaskResources(gpus=1, cpus=1.0 + shape % 10, memory_gib=8.0 + shape // 10)
    )
    return WorkloadSpecification(
        name=f"workload-{number}",
        tenant=TenantId(f"tenant-{number % tenants:04}"),
        jobs=(JobSpecification(JobName("main"), 1, resources, Emulated(duration_s)),),
    )
