"""Regions written down by hand: short enough to read in a test."""

from __future__ import annotations

from collections.abc import Iterable

from domain.fleet import NO_GPU_MODEL, Cluster, Machine, Rack, Region
from domain.identifiers import AttemptNumber, ClusterId, GpuModel, JobName, MachineId, RackId, RegionId, WorkloadId
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.rank import Standing
from regional_scheduler.region_capacity import RegionCapacity

H100 = GpuModel("H100")
A100 = GpuModel("A100")


def gpu_machine(name: str, gpus: int = 8, model: GpuModel = H100) -> Machine:
    """12 CPUs and 128 GiB for each GPU."""
    return Machine(MachineId(name), model, gpus, 12.0 * gpus, 128.0 * gpus)


def cpu_machine(name: str, cpus: float = 64.0, memory_gib: float = 256.0) -> Machine:
    return Machine(MachineId(name), NO_GPU_MODEL, 0, cpus, memory_gib)


def cluster(name: str, *racks: Iterable[Machine]) -> Cluster:
    """A cluster of these racks, named after it."""
    return Cluster(
        ClusterId(name), tuple(Rack(RackId(f"{name}-r{number}"), tuple(rack)) for number, rack in enumerate(racks))
    )


def region(*clusters: Cluster) -> Region:
    return Region(RegionId("here"), clusters)


def key_of(name: str) -> AttemptKey:
    return AttemptKey(WorkloadId(name), AttemptNumber(1))


def tasks_on(
    machine: str, gpus: Iterable[int] = (), cpus: float = 0.0, memory_gib: float = 0.0, cluster_name: str = "c"
) -> TaskPlacement:
    """One task on one machine of cluster `c`."""
    return TaskPlacement(
        JobName("job"),
        0,
        ClusterId(cluster_name),
        MachineId(machine),
        tuple(gpus),
        round(cpus * 1000),
        round(memory_gib * 1024),
    )


def hold(
    inventory: RegionCapacity,
    name: str,
    *placements: TaskPlacement,
    priority: int = 6,
    level: int = 0,
    since: float = 0.0,
) -> AttemptKey:
    """Lets a workload hold these; returns its attempt."""
    key = key_of(name)
    inventory.hold(Holding(key, Standing(priority, level), since, placements))
    return key
