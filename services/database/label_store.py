"""The labels of workloads, by which lists and the event log are filtered.

They stand in a table of their own, written at submission and when its user changes them: a workload without any costs nothing, and
one with some costs nothing more when its state changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, exists, select

from domain.identifiers import WorkloadId
from services.database.connection import AnyConnection
from services.database.tables.workloads import WORKLOAD_LABELS


@dataclass(frozen=True, slots=True)
class LabelCondition:
    """What a workload's labels have to be."""

    key: str
    value: str | None = None
    """None: whatever."""
    excludes: bool = False
    """It must not be so."""


def meets(workload: ColumnElement[Any], conditions: Iterable[LabelCondition]) -> list[ColumnElement[bool]]:
    """That the workload which that column names meets all of these."""
    found: list[ColumnElement[bool]] = []
    for condition in conditions:
        labels = WORKLOAD_LABELS.alias()
        which = [labels.c.key == condition.key]
        if condition.value is not None:
            which.append(labels.c.value == condition.value)
        if condition.excludes:
            found.append(~exists(select(1).where(labels.c.workload == workload, *which)))
        else:
            found.append(workload.in_(select(labels.c.workload).where(*which)))
    return found


async def copy_labels(connection: AnyConnection, labels: Sequence[tuple[WorkloadId, str, str]]) -> None:
    """Of workloads that had none: (workload, key, value)."""
    if not labels:
        return
    async with (
        connection.cursor() as cursor,
        cursor.copy("COPY workload_labels (workload, key, value) FROM STDIN (FORMAT BINARY)") as copy,
    ):
        copy.set_types(["text", "text", "text"])
        for label in labels:
            await copy.write_row(label)


async def replace_labels(connection: AnyConnection, labels: Mapping[WorkloadId, Iterable[tuple[str, str]]]) -> None:
    """These workloads have these labels from now on, and no others."""
    await connection.execute("DELETE FROM workload_labels WHERE workload = ANY(%s)", (sorted(labels),))
    await copy_labels(
        connection, [(workload, key, value) for workload in sorted(labels) for key, value in labels[workload]]
    )
