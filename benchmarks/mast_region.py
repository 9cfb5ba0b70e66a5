"""A region as large as MAST's largest (§4.3.1), and workloads as large as MAST's (§5.1), for the planner's benchmarks."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cluster_manager.capacity.tables import GPUS, MILLICPUS, SHAPE
from domain.fleet import NO_GPU_MODEL, Cluster, Machine, Rack, Region
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
from domain.placement import AttemptKey, Holding
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity

CLUSTERS = 20
GPU_MACHINES = 2_500
CPU_MACHINES = 64_000
GPU_RACK_MACHINES = 16
CPU_RACK_MACHINES = 40
MODELS = (GpuModel("A100"), GpuModel("H100"))
NOW_S = 1_800_000_000.0

PRIORITY_SHARES = (0.03, 0.20, 0.16, 0.54, 0.002, 0.005, 0.063)
"""MAST §4.2, the 6 % without a priority counted as the lowest; normalised before use."""
GPU_QUANTILES = ((0.0, 1.0), (0.5, 16.0), (0.9, 64.0), (0.99, 128.0), (1.0, 512.0))
"""GPUs of a workload that uses any (MAST §5.1; the ends are ours)."""
MACHINE_QUANTILES = ((0.0, 1.0), (0.5, 72.0), (0.9, 180.0), (0.99, 205.0), (1.0, 400.0))
"""Machines of a workload (MAST §5.1; the ends are ours)."""


def mast_region(name: str = "region") -> Region:
    """20 clusters; 2,500 machines with 8 GPUs, half the clusters with each of two models; 64,000 without GPUs."""
    return Region(RegionId(name), tuple(_cluster(name, number) for number in range(CLUSTERS)))


def _cluster(region: str, number: int) -> Cluster:
    name = f"{region}-c{number:02}"
    model = MODELS[number % len(MODELS)]
    racks: list[Rack] = []
    for count, size, kind, shape in (
        (GPU_MACHINES // CLUSTERS, GPU_RACK_MACHINES, "gpu", (model, 8, 96.0, 1024.0)),
        (CPU_MACHINES // CLUSTERS, CPU_RACK_MACHINES, "cpu", (NO_GPU_MODEL, 0, 64.0, 256.0)),
    ):
        for first in range(0, count, size):
            rack = f"{name}-{kind}{first // size:02}"
            machines = tuple(
                Machine(MachineId(f"{rack}-{machine:02}"), *shape) for machine in range(min(size, count - first))
            )
            racks.append(Rack(RackId(rack), machines))
    return Cluster(ClusterId(name), tuple(racks))


@dataclass
class WorkloadSource:
    """Draws workloads; the same seed gives the same ones."""

    generator: np.random.Generator
    drawn: int = 0

    def quantile(self, table: tuple[tuple[float, float], ...]) -> int:
        """A draw from the distribution with these quantiles, log-linear between them."""
        shares, values = zip(*table, strict=True)
        return round(float(np.exp(np.interp(self.generator.random(), shares, np.log(values)))))

    def standing(self, most: int = 6) -> Standing:
        """A priority by MAST's shares, none worse than `most`."""
        shares = np.array(PRIORITY_SHARES[: most + 1])
        return Standing(int(self.generator.choice(most + 1, p=shares / shares.sum())), 0)

    def workload(self, *jobs: JobSpecification) -> Workload:
        self.drawn += 1
        name = f"w{self.drawn:06}"
        return Workload(WorkloadId(name), WorkloadSpecification(name, TenantId("tenant"), jobs), 0.0)

    def as_in_mast(self) -> Workload:
        """A GPU job and a CPU job, together on as many machines as MAST's."""
        gpus = self.quantile(GPU_QUANTILES)
        machines = max(1, self.quantile(MACHINE_QUANTILES) - max(1, gpus // 8))
        return self.workload(self.gpu_job(gpus), self.cpu_job(machines))

    def gpu_job(self, gpus: int) -> JobSpecification:
        """Whole machines from 8 GPUs on, else one task; half of them need a certain model, a third is consolidated."""
        tasks, of_each = (max(1, gpus // 8), 8) if gpus >= 8 else (1, gpus)
        model = ANY_GPU_MODEL if self.generator.random() < 0.5 else MODELS[int(self.generator.integers(2))]
        return JobSpecification(
            JobName("trainer"),
            tasks,
            TaskResources(gpus=of_each, gpu_model=model),
            Emulated(3600.0),
            consolidate=bool(self.generator.random() < 1 / 3),
        )

    def cpu_job(self, tasks: int) -> JobSpecification:
        """Preprocessing: each task takes a whole, half or quarter machine."""
        share = float(self.generator.choice([1.0, 0.5, 0.25]))
        return JobSpecification(
            JobName("reader"), tasks, TaskResources(cpus=64.0 * share, memory_gib=256.0 * share), Emulated(3600.0)
        )


@dataclass
class RunningRegion:
    """A region in which workloads run."""

    inventory: RegionCapacity
    source: WorkloadSource
    running: int = 0

    def start(self, workload: Workload, standing: Standing) -> bool:
        """Places a workload if that needs no eviction; says whether it was."""
        plan = plan_workload(self.inventory, workload, standing, NOW_S, within_quota=False)
        if not isinstance(plan, Plan) or plan.evictions:
            return False
        started_s = NOW_S - float(self.source.generator.exponential(4 * 3600.0))
        key = AttemptKey(workload.workload, AttemptNumber(1))
        self.inventory.hold(Holding(key, standing, started_s, plan.placements))
        self.running += 1
        return True

    def fill_to(self, gpu_share: float, cpu_share: float, running: int) -> None:
        """Starts workloads of about such a size that `running` of them make these shares, until they do.

        70 % have GPUs (MAST §5.1). What is left over when larger ones find no room is filled with smaller ones.
        """
        gpus_each = 8 * GPU_MACHINES * gpu_share / (0.7 * running)
        cpus_each = 64 * CPU_MACHINES * cpu_share / running
        for size in (1.0, 0.25, 0.05):
            refused = 0
            while refused < 20 and not self._reached(gpu_share, cpu_share):
                jobs = tuple(self._jobs(gpus_each * size, cpus_each * size, gpu_share, cpu_share))
                refused += not self.start(self.source.workload(*jobs), self.source.standing())

    def _jobs(
        self, gpus_each: float, cpus_each: float, gpu_share: float, cpu_share: float
    ) -> Iterator[JobSpecification]:
        generator = self.source.generator
        gpus_in_use, cpus_in_use = self.shares_in_use()
        if gpus_in_use < gpu_share and (generator.random() < 0.7 or cpus_in_use >= cpu_share):
            yield self.source.gpu_job(max(1, round(float(generator.exponential(gpus_each)))))
            if cpus_in_use >= cpu_share:
                return
        job = self.source.cpu_job(1)
        tasks = max(1, round(float(generator.exponential(cpus_each / (job.resources.cpus or 1.0)))))
        yield JobSpecification(job.name, tasks, job.resources, job.entry_point)

    def _reached(self, gpu_share: float, cpu_share: float) -> bool:
        gpus, cpus = self.shares_in_use()
        return gpus >= gpu_share and cpus >= cpu_share

    def shares_in_use(self) -> tuple[float, float]:
        """Of the GPUs, and of the CPUs on machines without GPUs."""
        free_gpus = free_millicpus = 0
        for cluster in self.inventory.clusters:
            arrays = cluster.arrays
            without = arrays.shapes[arrays.fixed[:, SHAPE], GPUS] == 0
            free_gpus += int(arrays.state[~without, GPUS].sum())
            free_millicpus += int(arrays.state[without, MILLICPUS].sum())
        return 1 - free_gpus / (8 * GPU_MACHINES), 1 - free_millicpus / (64_000 * CPU_MACHINES)
