"""Why a workload has no place, or was refused, for programs."""

from __future__ import annotations

from dataclasses import dataclass

from topmast.v1 import workload_pb2


@dataclass(frozen=True, slots=True)
class DiagnosisNumbers:
    """So much is asked for, and so much is there at most; `quantity` is tasks, gpus, cpus or memory_gib."""

    quantity: str
    asked: float
    available: float


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why the last auction gave a workload no place, or why its submission was refused: what the closest region says.

    `reason` is one of those that docs/events.md lists. Names that do not apply are "". `since_s` None: it depends on
    nothing that runs.
    """

    reason: str
    region: str
    cluster: str
    job: str
    field: str
    numbers: tuple[DiagnosisNumbers, ...]
    tables: tuple[str, ...]
    since_s: float | None
    cells_asked: str = ""
    """In a cluster divided into cells: what the job asks for, and what its tenant owns there."""
    cells_owned: str = ""


def diagnosis_from_proto(message: workload_pb2.Diagnosis) -> Diagnosis:
    return Diagnosis(
        reason=message.reason,
        region=message.region,
        cluster=message.cluster,
        job=message.job,
        field=message.field,
        numbers=tuple(DiagnosisNumbers(number.quantity, number.asked, number.available) for number in message.numbers),
        tables=tuple(message.tables),
        since_s=message.since_s if message.HasField("since_s") else None,
        cells_asked=message.cells_asked,
        cells_owned=message.cells_owned,
    )


@dataclass(frozen=True, slots=True)
class CapacityHolder:
    """What holds what a waiting workload could use: a workload of the same tenant, or (`workload` "") all those of other tenants
    at this priority together, `workloads` of them. `gpus` are of the models that are asked for."""

    workload: str
    name: str
    priority: int
    workloads: int
    gpus: int
    cpus: float


@dataclass(frozen=True, slots=True)
class OutOfUse:
    """Machines that a waiting workload could use if they took work: `state` is draining or down. `gpus` are all of theirs, also
    those that still have work."""

    state: str
    machines: int
    gpus: int


@dataclass(frozen=True, slots=True)
class RegionDiagnosis:
    """Why one region has no place for a waiting workload; `holders` (those with most first) and `out_of_use` only where room
    is what is missing."""

    diagnosis: Diagnosis
    holders: tuple[CapacityHolder, ...]
    out_of_use: tuple[OutOfUse, ...] = ()


def region_diagnosis_from_proto(message: workload_pb2.RegionDiagnosis) -> RegionDiagnosis:
    return RegionDiagnosis(
        diagnosis_from_proto(message.diagnosis),
        tuple(
            CapacityHolder(one.workload, one.name, one.priority, one.workloads, one.gpus, one.cpus)
            for one in message.holders
        ),
        tuple(OutOfUse(one.state, one.machines, one.gpus) for one in message.out_of_use),
    )
