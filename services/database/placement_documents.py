"""Placements as documents in JSON columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, WorkloadId
from domain.placement import AttemptKey, TaskPlacement
from domain.placement_changes import ChangeKind, LossCause, PlacementChange
from domain.plan import TaskName


def placements_to_documents(placements: Sequence[TaskPlacement]) -> list[dict[str, Any]]:
    return [{**placement._asdict(), "gpu_indices": list(placement.gpu_indices)} for placement in placements]


def placements_from_documents(documents: Sequence[Mapping[str, Any]]) -> tuple[TaskPlacement, ...]:
    return tuple(
        TaskPlacement(
            JobName(document["job"]),
            int(document["task"]),
            ClusterId(document["cluster"]),
            MachineId(document["machine"]),
            tuple(document["gpu_indices"]),
            int(document["millicpus"]),
            int(document["mebibytes"]),
        )
        for document in documents
    )


def change_to_document(change: PlacementChange) -> dict[str, Any]:
    return {
        "kind": change.kind.value,
        "before": placements_to_documents(change.before),
        "released": placements_to_documents(change.released),
        "waits_for": [[key.workload, int(key.attempt)] for key in change.waits_for],
        "undoes": change.undoes,
        "lost": [[name.job, name.task] for name in change.lost],
        "cause": change.cause,
    }


def change_from_document(document: Mapping[str, Any]) -> PlacementChange:
    return PlacementChange(
        ChangeKind(document["kind"]),
        placements_from_documents(document["before"]),
        placements_from_documents(document["released"]),
        tuple(AttemptKey(WorkloadId(workload), AttemptNumber(attempt)) for workload, attempt in document["waits_for"]),
        # Changes that were stored before a refusal could be undone have no such entry.
        undoes=bool(document.get("undoes", False)),
        # Nor have those that were stored before an attempt could go on without what it has lost.
        lost=tuple(TaskName(JobName(job), int(task)) for job, task in document.get("lost", ())),
        cause=LossCause(document["cause"]) if document.get("cause") else None,
    )
