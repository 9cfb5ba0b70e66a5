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
