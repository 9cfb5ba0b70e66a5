"""Small emulated workloads that make sure of an occasion for what else depends on luck.

Jobs that are moved together, retuned CPUs, bound cells, and a table that is copied for who waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from domain.identifiers import GpuModel, JobName, RegionId, TableId, TenantId
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, TableInput, WorkloadSpecification
from formats.trace_workload import MODEL_LABEL
from services.demo.small_clusters import STAGED_GPUS_PER_MACHINE, STAGED_MACHINES, STAGED_MODEL
from services.demo.warehouse import FAR_TABLE
from services.wire.workloads import specification_to_proto
from topmast import Client

Steps = Sequence[Sequence[WorkloadSpecification]]
"""Each step is submitted when all workloads of the one before have been dispatched."""

_TENANT = TenantId("vision")
_SHORT_REAL_S = 6.0
_LONG_REAL_S = 30.0
_GANG_REAL_S = 5.0
_READER_REAL_S = 5.0
_CHECKPOINT_S = 300.0
_READER_MODEL = GpuModel("V100")
_OWNER = TenantId("ads")
_OWNER_REGION = RegionId("north")
_OWNER_MODEL = GpuModel("A100")
_OWNER_GPUS = 8
_OWNER_REAL_S = 5.0


def room_for_a_gang(clock_speed: float) -> Steps:
    """Every machine of the staged cluster is filled by a large workload and a small one. When the large ones end, no machine
    is whole for the gang: a small one is moved to the other. The one that lives on CPUs gets those that have become idle.
    """
    machines = range(1, STAGED_MACHINES + 1)
    large = STAGED_GPUS_PER_MACHINE - 1
    models = ("image", "language")
    return (
        [_staged(f"staged-large-{number}", large, _SHORT_REAL_S * clock_speed) for number in machines],
        [
            _staged(f"staged-small-{number}", 1, _LONG_REAL_S * clock_speed, trains=models[number % len(models)])
            for number in machines
        ],
        [_staged("staged-gang", STAGED_GPUS_PER_MACHINE, _GANG_REAL_S * clock_speed)],
    )


def reader_far_from_its_table(table: TableId, clock_speed: float) -> Steps:
    """No region that holds the table has GPUs of the model: it waits for a copy, and starts when that has come."""
    return ([_staged("staged-reader", 1, _READER_REAL_S * clock_speed, _READER_MODEL, reads=table)],)


def machine_of_its_own(clock_speed: float) -> Steps:
    """A whole machine for the tenant that owns one of a divided cluster: it gets its cells."""
    return (
        [
            replace(
                _staged("staged-owner", _OWNER_GPUS, _OWNER_REAL_S * clock_speed, _OWNER_MODEL),
                tenant=_OWNER,
                regions=(_OWNER_REGION,),
            )
        ],
    )


def _staged(
    name: str,
    gpus: int,
    duration_s: float,
    gpu_model: GpuModel = STAGED_MODEL,
    *,
    trains: str = "",
    reads: TableId | None = None,
) -> WorkloadSpecification:
    return WorkloadSpecification(
        name=name,
        tenant=_TENANT,
        jobs=(
            JobSpecification(
                JobName("train"),
                1,
                TaskResources(gpus=gpus, gpu_model=gpu_model),
                Emulated(duration_s, _CHECKPOINT_S),
            ),
        ),
        tables=(TableInput(reads),) if reads is not None else (),
        labels=(("kind", "staged"), *(((MODEL_LABEL, trains),) if trains else ())),
    )


class StagedWorkloads:
    """Submits steps, one after the other."""

    def __init__(self, client: Client, steps: Steps) -> None:
        self._client = client
        self._steps = steps
        self._next = 0
        self._awaited: list[str] = []
        self.submitted = 0

    @property
    def total(self) -> int:
        return sum(map(len, self._steps))

    @property
    def done(self) -> bool:
        """All have been submitted and dispatched."""
        return self._next == len(self._steps) and not self._awaited

    def step(self) -> None:
        """Submits the next step when it is its turn."""
        self._awaited = [name for name in self._awaited if not self._client.get(name).attempts]
        if not self._awaited and self._next < len(self._steps):
            specifications = self._steps[self._next]
            self._next += 1
            answers = [self._client.submit(specification_to_proto(one)) for one in specifications]
            self._awaited = [answer.workload for answer in answers]
            self.submitted += len(answers)


def all_staged(client: Client, clock_speed: float) -> tuple[StagedWorkloads, ...]:
    """Everything that is staged, beside each other."""
    return (
        StagedWorkloads(client, room_for_a_gang(clock_speed)),
        StagedWorkloads(client, reader_far_from_its_table(FAR_TABLE, clock_speed)),
        StagedWorkloads(client, machine_of_its_own(clock_speed)),
    )
