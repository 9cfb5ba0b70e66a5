"""What is submitted during a run: emulated workloads, and real ones that say when they begin and end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from domain.fleet import Fleet, Region
from domain.identifiers import ANY_GPU_MODEL, GpuModel, JobName
from domain.resources import Quota, TaskResources
from domain.tenant import Tenant
from domain.workload import Command, Emulated, JobSpecification, RetryPolicy, WorkloadSpecification
from tests.live.world import A100, EAST, RANKING, RESEARCH, V100, VISION, WEST, cpu_cluster, gpu_cluster

FLEET = Fleet(
    (
        Region(EAST, (gpu_cluster("east-a", A100, 4), cpu_cluster("east-b", 1))),
        Region(WEST, (gpu_cluster("west-a", V100, 4),)),
    )
)
SMALL_FLEET = Fleet((Region(EAST, (gpu_cluster("east-a", A100, 4),)), Region(WEST, (gpu_cluster("west-a", V100, 4),))))
TENANTS = (
    Tenant(VISION, 0, Quota.of({ANY_GPU_MODEL: 16})),
    Tenant(RANKING, 2, Quota.of({ANY_GPU_MODEL: 64})),
    Tenant(RESEARCH, 3, Quota.of({ANY_GPU_MODEL: 64})),
)
CLOCK_SPEED = 60.0
_OFTEN = RetryPolicy(max_retries=500, backoff_s=30.0, backoff_cap_s=60.0)


@dataclass(frozen=True, slots=True)
class Witness:
    """Where real tasks say what they do: `lines`, and who met another attempt of the same workload: `overlaps`."""

    folder: Path

    @property
    def lines(self) -> Path:
        return self.folder / "lines"

    @property
    def overlaps(self) -> Path:
        return self.folder / "overlaps"

    def begin(self) -> None:
        (self.folder / "locks").mkdir(parents=True)
        self.lines.touch()
        self.overlaps.touch()

    def script(self, seconds: float) -> str:
        """The lock is held by whatever the task has started, as long as any of it lives, detached or not."""
        name = '"$TOPMAST_WORKLOAD $TOPMAST_ATTEMPT"'
        return (
            f"exec 9>>{self.folder}/locks/$TOPMAST_WORKLOAD; flock -n 9 || echo {name} >> {self.overlaps};"
            f" echo begin {name} >> {self.lines}; setsid sleep 10000 & sleep {seconds:.1f};"
            f" echo end {name} >> {self.lines}"
        )


def emulated(name: str, rng: np.random.Generator) -> WorkloadSpecification:
    """Half a second to five, of one GPU to four, anywhere."""
    tenant = (RANKING, RESEARCH)[int(rng.integers(2))]
    work = Emulated(float(rng.uniform(30.0, 300.0)), 30.0)
    job = JobSpecification(
        JobName("main"),
        int(rng.integers(1, 3)),
        TaskResources(gpus=int(rng.integers(1, 5)), gpu_model=ANY_GPU_MODEL),
        work,
    )
    return WorkloadSpecification(name, tenant, (job,), retry=_OFTEN)


def real(name: str, witness: Witness, seconds: float, model: GpuModel = ANY_GPU_MODEL) -> WorkloadSpecification:
    """A process of one GPU, and another one that it has detached from itself."""
    job = JobSpecification(
        JobName("main"), 1, TaskResources(gpus=1, gpu_model=model), Command(("sh", "-c", witness.script(seconds)))
    )
    return WorkloadSpecification(name, RANKING, (job,), retry=_OFTEN)


def probe(name: str, region: str, *, is_real: bool) -> WorkloadSpecification:
    """The shortest there is, of the best tenant, that can run in this region only."""
    model = {"east": A100, "west": V100}[region]
    work = Command(("true",)) if is_real else Emulated(6.0, 6.0)
    job = JobSpecification(JobName("main"), 1, TaskResources(gpus=1, gpu_model=model), work)
    return WorkloadSpecification(name, VISION, (job,), retry=_OFTEN)
