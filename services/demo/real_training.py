"""The part of the demo that is real: training jobs that fill a cluster, a better workload that wants it, and the return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.events import JsonValue
from domain.identifiers import GpuModel, JobName, RegionId, TenantId
from domain.resources import TaskResources
from domain.workload import Command, Emulated, JobSpecification, WorkloadSpecification
from services.demo.training_job import PAUSE_VARIABLE, STEPS_VARIABLE
from topmast import Client, Workload

STEPS = 600
_STEP_PAUSE_REAL_S = 0.03
_REGION = RegionId("north")
_MODEL = GpuModel("T4")
_GPUS = (4, 2, 2)
"""Together all T4 GPUs of cluster north-b."""
_TRAINING = Command(("python", "-P", "-m", "topmast_server", "services.demo.training_job"))
"""Not as a function: a task finds its user's modules, and `services` is none of them."""
PREEMPTOR_REAL_S = 8.0
PROGRESS_BEFORE_PREEMPTION = 100.0


def training_workloads() -> list[WorkloadSpecification]:
    """Real NumPy training, one process each, at a middle priority."""
    return [
        WorkloadSpecification(
            name=f"real-training-{index}",
            tenant=TenantId("research"),
            jobs=(
                JobSpecification(
                    JobName("train"),
                    1,
                    TaskResources(gpus=gpus, gpu_model=_MODEL),
                    _TRAINING,
                    environment=(
                        (STEPS_VARIABLE, str(STEPS)),
                        (PAUSE_VARIABLE, str(_STEP_PAUSE_REAL_S)),
                        ("OMP_NUM_THREADS", "1"),
                        ("OPENBLAS_NUM_THREADS", "1"),
                    ),
                ),
            ),
            regions=(_REGION,),
            labels=(("kind", "real"),),
        )
        for index, gpus in enumerate(_GPUS, 1)
    ]


def preemptor(clock_speed: float) -> WorkloadSpecification:
    """An emulated production workload that needs the whole cluster for a few real seconds."""
    return WorkloadSpecification(
        name="production-retraining",
        tenant=TenantId("ranking"),
        jobs=(
            JobSpecification(
                JobName("train"),
                2,
                TaskResources(gpus=4, gpu_model=_MODEL),
                Emulated(PREEMPTOR_REAL_S * clock_speed),
            ),
        ),
        regions=(_REGION,),
    )


@dataclass(frozen=True, slots=True)
class TrainingStory:
    """What became of one real training workload."""

    name: str
    state: str
    attempts: int
    preempted: int
    resumed_at_step: float | None
    steps: float

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "name": self.name,
            "state": self.state,
            "attempts": self.attempts,
            "preempted": self.preempted,
            "resumed_at_step": self.resumed_at_step,
            "steps": self.steps,
        }


def training_stories(client: Client, workloads: Sequence[str]) -> list[TrainingStory]:
    """What the service says about them."""
    return [_story(client.get(workload)) for workload in workloads]


def _story(workload: Workload) -> TrainingStory:
    resumed = [attempt.progress_at_start for attempt in workload.attempts[1:]]
    return TrainingStory(
        name=workload.specification.name,
        state=workload.state.value,
        attempts=len(workload.attempts),
        preempted=sum(attempt.end == "preempted" for attempt in workload.attempts),
        resumed_at_step=resumed[0] if resumed else None,
        steps=workload.progress,
    )
