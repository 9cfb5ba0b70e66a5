"""Why a workload waits or is refused: one reason to count by, with the numbers, the place and since when.

A sentence for people stands beside each diagnosis, made where it is made; programs read the diagnosis.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from domain.events import JsonValue
from domain.identifiers import ClusterId, JobName, RegionId, TableId


class Reason(StrEnum):
    """From the most lasting to the most passing; the values stand in event logs and in the database."""

    REGION_NOT_ALLOWED = "region_not_allowed"
    """The workload names other regions."""
    NO_SUCH_GPU_MODEL = "no_such_gpu_model"
    """No machine of the region has GPUs of the model."""
    TASK_TOO_LARGE = "task_too_large"
    """No machine of the region could ever hold one task."""
    TOO_MANY_TASKS = "too_many_tasks"
    """No cluster of the region could ever hold all tasks of the job."""
    TOPOLOGY = "topology"
    """There is enough, but nowhere as close together as the job asks for, or not in the cells that it asks for: of no
    cluster, even when empty, or of none that its tenant owns cells of."""
    JOBS_DO_NOT_FIT_TOGETHER = "jobs_do_not_fit_together"
    """Each job fits into the empty region, but not all of them at once."""
    NO_DATA = "no_data"
    """Nothing but input tables is missing: the region may run the workload once they are there."""
    NO_MACHINE_FITS = "no_machine_fits"
    """No machine that takes work now could hold one task, even with nothing else on it."""
    CLUSTERS_TOO_SMALL = "clusters_too_small"
    """No cluster could hold all tasks of the job on machines that take work now, even with nothing else in it."""
    NO_ROOM_TOGETHER = "no_room_together"
    """Each job finds room as things are, but not all of them together."""
    KNOWN_TO_FAIL = "known_to_fail"
    """A smaller job found no room, and nothing has changed that since. The numbers are those of the smaller job."""
    NO_ROOM = "no_room"
    """A job alone finds no room in any cluster, even with everything evicted that it may evict."""
    HELD_FOR_OTHERS = "held_for_others"
    """A job alone would find room, but on machines that are kept for a gang that has waited for longer."""
    PLANNING_FAILED = "planning_failed"
    """An error of the service itself, which is in the log of the region: it cannot say whether there is room."""
    NO_ANSWER = "no_answer"
    """No region answered at all, or one did not that may hold the data which all others lack."""


_PERMANENCE = tuple(Reason)

FOR_WANT_OF_ROOM = (Reason.NO_ROOM, Reason.KNOWN_TO_FAIL)
"""One reason for whatever waits: which of them it is depends on what else was asked for before."""

NO_HARDWARE = (Reason.REGION_NOT_ALLOWED, Reason.NO_SUCH_GPU_MODEL, Reason.TASK_TOO_LARGE, Reason.TOO_MANY_TASKS)
"""Of regions that could not host the workload even if nothing ran there; never of a plan that failed."""


class Quantity(StrEnum):
    """What there may be too little of."""

    TASKS = "tasks"
    GPUS = "gpus"
    CPUS = "cpus"
    MEMORY_GIB = "memory_gib"


@dataclass(frozen=True, slots=True)
class Numbers:
    """So much is asked for, and so much is there at most."""

    quantity: Quantity
    asked: float
    available: float

    @property
    def missing_share(self) -> float:
        """What part of what is asked for is missing, from 0 to 1."""
        return max(0.0, 1 - self.available / self.asked) if self.asked > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why one region has no place for a workload (or, without a region, why none has)."""

    reason: Reason
    region: RegionId | None = None
    cluster: ClusterId | None = None
    """The cluster that comes closest."""
    job: JobName | None = None
    """The job that finds no place."""
    field: str = ""
    """The field of the specification that asks for too much, like jobs[0].tasks."""
    numbers: tuple[Numbers, ...] = ()
    tables: tuple[TableId, ...] = ()
    """The input tables that the region lacks."""
    since_s: float | None = None
    """Since when the workload has been refused for this reason. None: it depends on nothing that runs."""
    cells_asked: str = ""
    """In a cluster divided into cells: what the job asks for, like "2 tasks of 8 GPUs within one rack"."""
    cells_owned: str = ""
    """And what its tenant owns of that cluster, like "4 machine of chain A100"."""
    by_region: tuple[Diagnosis, ...] = dataclasses.field(default=(), compare=False)
    """What each region says, by name, where several were asked; they have none of it themselves. It is told beside the diagnosis,
    and makes no other one of it."""

    @property
    def missing_share(self) -> float:
        """What part is missing of what is most short; 1 when there are no numbers to say so."""
        return max((number.missing_share for number in self.numbers), default=1.0)

    def as_json(self) -> dict[str, JsonValue]:
        """As it stands in event logs (there without `by_region`) and in the database: what does not apply is left out."""
        record: dict[str, JsonValue] = {"reason": self.reason.value}
        for name in ("region", "cluster", "job", "field", "since_s", "cells_asked", "cells_owned"):
            value = getattr(self, name)
            if value is not None and value != "":
                record[name] = value
        if self.numbers:
            record["numbers"] = {
                number.quantity.value: {"asked": number.asked, "available": number.available} for number in self.numbers
            }
        if self.tables:
            record["tables"] = [*map(str, self.tables)]
        if self.by_region:
            record["by_region"] = [one.as_json() for one in self.by_region]
        return record


def closest(diagnoses: Iterable[Diagnosis]) -> Diagnosis | None:
    """That of the region which comes closest to running the workload; None of none.

    The most passing reason counts first, then the smallest part that is missing, then the name of the region.
    """
    return min(diagnoses, key=distance, default=None)


def is_nearer(reason: Reason, other: Reason) -> bool:
    """Whether a region that says `reason` is nearer to running the workload than one that says `other`."""
    return _PERMANENCE.index(reason) > _PERMANENCE.index(other)


def distance(diagnosis: Diagnosis) -> tuple[int, float, str, str]:
    """How far the region is from running the workload; the smallest is the closest."""
    return (
        -_PERMANENCE.index(diagnosis.reason),
        diagnosis.missing_share,
        diagnosis.region or "",
        diagnosis.cluster or "",
    )


def known_to_fail(found: Diagnosis, job: JobName) -> Diagnosis:
    """Of a job that asks for at least what another one did not find; the numbers are those of the other one."""
    return replace(found, reason=Reason.KNOWN_TO_FAIL, job=job)
