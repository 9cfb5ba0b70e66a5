"""Snapshot files: one moment of a service as versioned JSON, packed with gzip when the name ends in `.gz`.

Fleet, tenants and workloads stand in it as in fleet.yaml, tenants.yaml and workload.yaml.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from domain.events import EvictionCause
from domain.fleet import MachineState
from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, RegionId, TenantId, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey, TaskPlacement
from domain.rank import QueuePosition, Standing
from domain.snapshot import (
    AttemptSoFar,
    Leaving,
    NextPlace,
    QueuedWorkload,
    RunningAttempt,
    ServiceSoFar,
    Snapshot,
    UseStretch,
)
from domain.snapshot_contradictions import contradictions
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY
from domain.workload import Workload
from formats.cell_use import CellUseSchema, cell_use, cell_use_document
from formats.fleet_file import fleet_document, fleet_file_from_document
from formats.problems import FieldProblem, FormatError, suggestion
from formats.schema import Name, Schema, parse_schema
from formats.snapshot_learnt import (
    CompletedServiceSchema,
    IterationTimesSchema,
    completed_service_document,
    iteration_times_documents,
)
from formats.tenants_file import tenants_document, tenants_from_document
from formats.text_stream import read_text
from formats.trace_cells import GREATEST_TIME_S
from formats.workload_file import workload_document, workload_from_document

VERSION = 1
"""Of the layout of the file."""

_Kind = TypeVar("_Kind", bound=Enum)
_Document = dict[str, object]
_Time = Annotated[float, Field(ge=-GREATEST_TIME_S, le=GREATEST_TIME_S)]
_Amount = Annotated[float, Field(ge=0, le=1e18)]
_Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
_Level = Annotated[int, Field(ge=0, le=2**15 - 1)]
_Capacity = Annotated[int, Field(ge=0, le=2**53)]
"""Of CPU and memory, in thousandths of a CPU and MiB."""
_Priority = Annotated[int, Field(ge=HIGHEST_PRIORITY, le=LOWEST_PRIORITY)]


class SoFarSchema(Schema):
    attempts: _Count
    failures: _Count
    checkpoint_progress: _Amount
    attained_s: _Amount
    attained_gpu_s: _Amount
    before_promotion_s: _Amount = 0.0
    before_promotion_gpu_s: _Amount = 0.0
    first_started_s: float | None = None


class PositionSchema(Schema):
    priority: _Priority
    level: _Level
    credit: float
    within_quota: bool


class QueuedSchema(Schema):
    workload: Name
    submitted_s: _Time
    specification: _Document
    state: str
    queued_since_s: _Time
    so_far: SoFarSchema
    position: PositionSchema | None
    not_before_s: _Time
    preempted_s: list[_Time] = []


class LeavingSchema(Schema):
    cause: str
    by: Name | None
    by_attempt: _Count | None
    by_priority: _Priority | None
    by_level: _Level | None


class PlacementSchema(Schema):
    job: str
    task: _Count
    cluster: Name
    machine: Name
    gpus: list[_Count]
    millicpus: _Capacity
    mebibytes: _Capacity


class ChangedSchema(Schema):
    to_s: _Time
    progress: _Amount
    gpu_s: _Amount


class NextPlaceSchema(Schema):
    region: Name
    placements: Annotated[list[PlacementSchema], Field(min_length=1)]


class RunningSchema(Schema):
    workload: Name
    submitted_s: _Time
    specification: _Document
    attempt: Annotated[int, Field(ge=1, le=2**31 - 2)]
    region: Name
    state: str
    priority: _Priority
    level: _Level
    within_quota: bool
    dispatched_s: _Time
    started_s: _Time | None
    progress_at_start: _Amount
    progress: _Amount
    checkpoint_progress: _Amount
    placements: list[PlacementSchema]
    so_far: SoFarSchema
    leaving: LeavingSchema | None
    changed: ChangedSchema | None = None
    next_place: NextPlaceSchema | None = None
    guaranteed: bool | None = None
    """None, in files from before it was written: as `within_quota`."""
    preempted_s: list[_Time] = []
    cells: dict[Name, CellUseSchema] = {}
    """By job; empty in files from before there were any."""


class UseSchema(Schema):
    tenant: Name
    start_s: _Time
    end_s: _Time
    gpu_seconds: _Amount
    cpu_seconds: _Amount


class SnapshotSchema(Schema):
    topmast_snapshot: Literal[1]
    taken_s: _Time
    fleet: _Document
    tenants: list[_Document]
    machine_states: dict[Name, str]
    queue: list[QueuedSchema]
    running: list[RunningSchema]
    use: list[UseSchema]
    completed_service: CompletedServiceSchema = CompletedServiceSchema()
    iteration_times: list[IterationTimesSchema] = []
    """Both empty in files from before they were written."""


def read_snapshot(path: Path) -> Snapshot:
    """The snapshot in a file, packed or not; raises FormatError with every problem of the first part that has any."""
    return parse_snapshot(read_text(path), str(path))


def packed_snapshot(snapshot: Snapshot) -> bytes:
    """The bytes of a packed snapshot file; the same snapshot gives the same bytes."""
    return gzip.compress(dump_snapshot(snapshot).encode("utf-8"), compresslevel=6, mtime=0)


def dump_snapshot(snapshot: Snapshot) -> str:
    """The snapshot as JSON text, one line; `parse_snapshot` gives the same snapshot back."""
    return json.dumps(snapshot_document(snapshot), ensure_ascii=False, separators=(",", ":")) + "\n"


def parse_snapshot(text: str, source: str = "snapshot") -> Snapshot:
    """The snapshot of a JSON text; raises FormatError."""
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        # ValueError: also a number too long for Python.
        described = f"is no JSON: {error}; a snapshot is what 'topmast snapshot save' wrote"
        raise FormatError(source, [FieldProblem("", described)]) from error
    return snapshot_from_document(document, source)


def snapshot_from_document(document: object, source: str = "snapshot") -> Snapshot:
    """The snapshot of a parsed document; raises FormatError that names the fields."""
    if isinstance(document, dict) and document.get("topmast_snapshot") != VERSION:
        found = document.get("topmast_snapshot")
        described = f"must be {VERSION}, the version of the layout that this program reads, not {found!r}"
        raise FormatError(source, [FieldProblem("topmast_snapshot", described)])
    schema = parse_schema(SnapshotSchema, document, source)
    problems: list[FieldProblem] = []
    fleet_file = fleet_file_from_document(schema.fleet, f"{source}: fleet")
    snapshot = Snapshot(
        taken_s=schema.taken_s,
        fleet=fleet_file.fleet,
        tables=fleet_file.tables,
        tenants=tenants_from_document({"tenants": schema.tenants}, f"{source}: tenants"),
        machine_states={
            MachineId(machine): _choice(MachineState, state, f"machine_states.{machine}", MachineState.UP, problems)
            for machine, state in sorted(schema.machine_states.items())
        },
        queue=tuple(_queued(entry, f"queue[{i}]", source, problems) for i, entry in enumerate(schema.queue)),
        running=tuple(_running(entry, f"running[{i}]", source, problems) for i, entry in enumerate(schema.running)),
        use=tuple(
            UseStretch(TenantId(use.tenant), use.start_s, use.end_s, use.gpu_seconds, use.cpu_seconds)
            for use in schema.use
        ),
        completed_service=schema.completed_service.samples("completed_service", problems),
        iteration_times=tuple(sorted(times.sums() for times in schema.iteration_times)),
    )
    problems += [FieldProblem(field, sentence) for field, sentence in contradictions(snapshot)]
    if problems:
        raise FormatError(source, problems)
    return snapshot


def snapshot_document(snapshot: Snapshot) -> _Document:
    """The snapshot as a document of nested mappings and lists."""
    return {
        "topmast_snapshot": VERSION,
        "taken_s": snapshot.taken_s,
        "fleet": fleet_document(snapshot.fleet, snapshot.tables),
        **tenants_document(snapshot.tenants),
        "machine_states": {str(m): snapshot.machine_states[m].value for m in sorted(snapshot.machine_states)},
        "queue": [_queued_document(entry) for entry in snapshot.queue],
        "running": [_running_document(attempt) for attempt in snapshot.running],
        "use": [
            {
                "tenant": str(use.tenant),
                "start_s": use.start_s,
                "end_s": use.end_s,
                "gpu_seconds": use.gpu_seconds,
                "cpu_seconds": use.cpu_seconds,
            }
            for use in snapshot.use
        ],
        "completed_service": completed_service_document(snapshot.completed_service),
        "iteration_times": iteration_times_documents(snapshot.iteration_times),
    }


def _queued(schema: QueuedSchema, path: str, source: str, problems: list[FieldProblem]) -> QueuedWorkload:
    position = schema.position
    name = WorkloadId(schema.workload)
    return QueuedWorkload(
        workload=_workload(schema, path, source),
        state=_choice(State, schema.state, f"{path}.state", State.PENDING, problems),
        queued_since_s=schema.queued_since_s,
        so_far=_so_far(schema.so_far),
        position=None
        if position is None
        else QueuePosition(
            name,
            Standing(position.priority, position.level),
            position.credit,
            schema.submitted_s,
            position.within_quota,
        ),
        not_before_s=schema.not_before_s,
        preempted_s=tuple(schema.preempted_s),
    )


def _running(schema: RunningSchema, path: str, source: str, problems: list[FieldProblem]) -> RunningAttempt:
    changed, next_place = schema.changed, schema.next_place
    return RunningAttempt(
        workload=_workload(schema, path, source),
        key=AttemptKey(WorkloadId(schema.workload), AttemptNumber(schema.attempt)),
        region=RegionId(schema.region),
        state=_choice(State, schema.state, f"{path}.state", State.RUNNING, problems),
        standing=Standing(schema.priority, schema.level),
        within_quota=schema.within_quota,
        dispatched_s=schema.dispatched_s,
        started_s=schema.started_s,
        progress_at_start=schema.progress_at_start,
        progress=schema.progress,
        checkpoint_progress=schema.checkpoint_progress,
        placements=_placements(schema),
        so_far=_so_far(schema.so_far),
        leaving=None if schema.leaving is None else _leaving(schema.leaving, f"{path}.leaving", problems),
        changed=None if changed is None else AttemptSoFar(changed.to_s, changed.progress, changed.gpu_s),
        next_place=None if next_place is None else NextPlace(RegionId(next_place.region), _placements(next_place)),
        guaranteed=schema.within_quota if schema.guaranteed is None else schema.guaranteed,
        preempted_s=tuple(schema.preempted_s),
        cells=tuple((JobName(job), cell_use(use)) for job, use in sorted(schema.cells.items())),
    )


def _workload(schema: QueuedSchema | RunningSchema, path: str, source: str) -> Workload:
    specification = workload_from_document(schema.specification, f"{source}: {path}.specification")
    return Workload(WorkloadId(schema.workload), specification, schema.submitted_s)


def _choice(kind: type[_Kind], text: str, field: str, otherwise: _Kind, problems: list[FieldProblem]) -> _Kind:
    """The member with that value; one problem more, and `otherwise` in its place, when there is none."""
    members = {str(member.value): member for member in kind}
    if text not in members:
        problems.append(FieldProblem(field, f"is {text!r}, which does not exist; {suggestion(text, members, 'value')}"))
    return members.get(text, otherwise)


def _so_far(schema: SoFarSchema) -> ServiceSoFar:
    return ServiceSoFar(
        schema.attempts,
        schema.failures,
        schema.checkpoint_progress,
        schema.attained_s,
        schema.attained_gpu_s,
        schema.before_promotion_s,
        schema.before_promotion_gpu_s,
        schema.first_started_s,
    )


def _leaving(schema: LeavingSchema, path: str, problems: list[FieldProblem]) -> Leaving:
    cause = _choice(EvictionCause, schema.cause, f"{path}.cause", EvictionCause.PREEMPTED, problems)
    if schema.by is None or schema.by_attempt is None:
        return Leaving(cause)
    key = AttemptKey(WorkloadId(schema.by), AttemptNumber(schema.by_attempt))
    if schema.by_priority is None or schema.by_level is None:
        return Leaving(cause, key)
    return Leaving(cause, key, Standing(schema.by_priority, schema.by_level))


def _placements(schema: RunningSchema | NextPlaceSchema) -> tuple[TaskPlacement, ...]:
    return tuple(_placement(placement) for placement in schema.placements)


def _placement(schema: PlacementSchema) -> TaskPlacement:
    return TaskPlacement(
        JobName(schema.job),
        schema.task,
        ClusterId(schema.cluster),
        MachineId(schema.machine),
        tuple(schema.gpus),
        schema.millicpus,
        schema.mebibytes,
    )


def _queued_document(entry: QueuedWorkload) -> _Document:
    position = entry.position
    return {
        **_workload_document(entry.workload),
        "state": entry.state.value,
        "queued_since_s": entry.queued_since_s,
        "so_far": _so_far_document(entry.so_far),
        "position": None
        if position is None
        else {
            "priority": position.standing.priority,
            "level": position.standing.level,
            "credit": position.credit,
            "within_quota": position.within_quota,
        },
        "not_before_s": entry.not_before_s,
        "preempted_s": list(entry.preempted_s),
    }


def _running_document(attempt: RunningAttempt) -> _Document:
    changed, next_place = attempt.changed, attempt.next_place
    return {
        **_workload_document(attempt.workload),
        "attempt": int(attempt.key.attempt),
        "region": str(attempt.region),
        "state": attempt.state.value,
        "priority": attempt.standing.priority,
        "level": attempt.standing.level,
        "within_quota": attempt.within_quota,
        "dispatched_s": attempt.dispatched_s,
        "started_s": attempt.started_s,
        "progress_at_start": attempt.progress_at_start,
        "progress": attempt.progress,
        "checkpoint_progress": attempt.checkpoint_progress,
        "placements": _placements_document(attempt.placements),
        "so_far": _so_far_document(attempt.so_far),
        "leaving": None if attempt.leaving is None else _leaving_document(attempt.leaving),
        "changed": None
        if changed is None
        else {"to_s": changed.to_s, "progress": changed.progress, "gpu_s": changed.gpu_s},
        "next_place": None
        if next_place is None
        else {"region": str(next_place.region), "placements": _placements_document(next_place.placements)},
        "guaranteed": attempt.guaranteed,
        "preempted_s": list(attempt.preempted_s),
        "cells": {str(job): cell_use_document(use) for job, use in attempt.cells},
    }


def _placements_document(placements: Sequence[TaskPlacement]) -> list[_Document]:
    return [
        {
            "job": str(placement.job),
            "task": placement.task,
            "cluster": str(placement.cluster),
            "machine": str(placement.machine),
            "gpus": list(placement.gpu_indices),
            "millicpus": placement.millicpus,
            "mebibytes": placement.mebibytes,
        }
        for placement in placements
    ]


def _workload_document(workload: Workload) -> _Document:
    return {
        "workload": str(workload.workload),
        "submitted_s": workload.submitted_s,
        "specification": workload_document(workload.specification),
    }


def _so_far_document(so_far: ServiceSoFar) -> _Document:
    return {
        "attempts": so_far.attempts,
        "failures": so_far.failures,
        "checkpoint_progress": so_far.checkpoint_progress,
        "attained_s": so_far.attained_s,
        "attained_gpu_s": so_far.attained_gpu_s,
        "before_promotion_s": so_far.before_promotion_s,
        "before_promotion_gpu_s": so_far.before_promotion_gpu_s,
        "first_started_s": so_far.first_started_s,
    }


def _leaving_document(leaving: Leaving) -> _Document:
    by, standing = leaving.by, leaving.by_standing
    return {
        "cause": leaving.cause.value,
        "by": None if by is None else str(by.workload),
        "by_attempt": None if by is None else int(by.attempt),
        "by_priority": None if standing is None else standing.priority,
        "by_level": None if standing is None else standing.level,
    }
