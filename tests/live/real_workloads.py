"""Workloads for a real service: training processes of our own, and emulated company for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from domain.fleet import Fleet, Region
from domain.identifiers import ANY_GPU_MODEL, JobName
from domain.resources import Quota, TaskResources
from domain.tenant import Tenant
from domain.workload import Emulated, JobSpecification, PythonCallable, RetryPolicy, WorkloadSpecification
from tests.live.patient_training import RELEASE_VARIABLE
from tests.live.world import A100, EAST, RANKING, RESEARCH, V100, WEST, gpu_cluster, one_job

CLOCK_SPEED = 60.0
_REPOSITORY = Path(__file__).resolve().parents[2]
SMALL_FLEET = Fleet((Region(EAST, (gpu_cluster("east-a", A100, 2),)), Region(WEST, (gpu_cluster("west-a", V100, 2),))))
TWO_TENANTS = (Tenant(RANKING, 1, Quota.of({ANY_GPU_MODEL: 16})), Tenant(RESEARCH, 3, Quota.of({ANY_GPU_MODEL: 16})))


def training(name: str, release: Path, *, retries: int = 0, function: str = "train") -> WorkloadSpecification:
    """A real process in the east that trains until the file is there. Within quota, so that nothing may preempt it."""
    retry = RetryPolicy(max_retries=retries, backoff_s=10.0, backoff_cap_s=10.0)
    job = JobSpecification(
        JobName("train"),
        1,
        TaskResources(gpus=1, gpu_model=A100),
        PythonCallable(f"tests.live.patient_training:{function}"),
        # Its module is found where this one is: the working directory of the task is empty.
        environment=tuple(sorted(((RELEASE_VARIABLE, str(release)), ("PYTHONPATH", str(_REPOSITORY))))),
    )
    return WorkloadSpecification(name, RANKING, (job,), retry=retry)


def emulated(
    count: int, rng: np.random.Generator, *, shortest_s: float = 120.0, longest_s: float = 360.0
) -> list[WorkloadSpecification]:
    """Of both tenants in turn, of one GPU to a whole machine."""
    return [
        one_job(
            f"emulated-{number}",
            (RANKING, RESEARCH)[number % 2],
            Emulated(float(rng.uniform(shortest_s, longest_s)), 60.0),
            gpus=int(rng.integers(1, 9)),
        )
        for number in range(count)
    ]
