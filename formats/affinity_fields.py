"""The fields of a job that say how close together its tasks are to be, and in which cells: read from and written to documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from domain.affinity import CellAffinity, JobAffinity, TaskGroup, tasks_of
from formats.problems import FieldProblem
from formats.schema import Schema


class TaskGroupSchema(Schema):
    count: int = 1
    tasks: int | None = None
    within: str | None = None
    hard: bool | None = None
    groups: list[TaskGroupSchema] = []


class AffinitySchema(Schema):
    within: str | None = None
    hard: bool | None = None
    groups: list[TaskGroupSchema] = []


class _Within(Protocol):
    """What both have."""

    @property
    def within(self) -> str | None: ...

    @property
    def hard(self) -> bool | None: ...

    @property
    def groups(self) -> list[TaskGroupSchema]: ...


def affinity_problems(schema: AffinitySchema | None, path: str) -> list[FieldProblem]:
    """What the affinity of a job says that its domain form could not hold."""
    return list(_hard_without_level(schema, path)) if schema is not None else []


def _hard_without_level(schema: _Within, path: str) -> Iterator[FieldProblem]:
    if schema.hard is not None and schema.within is None:
        yield FieldProblem(f"{path}.hard", f"says nothing without a level; add {path}.within, such as machine or rack")
    for index, group in enumerate(schema.groups):
        yield from _hard_without_level(group, f"{path}.groups[{index}]")


def affinity_of(schema: AffinitySchema | None, pinned_cell: str, *, yields_to_downgrade: bool) -> JobAffinity:
    """What these fields of a job ask for together."""
    if schema is None:
        return JobAffinity(None, (), pinned_cell, yields_to_downgrade)
    groups = tuple(_group(group) for group in schema.groups)
    return JobAffinity(_within(schema), groups, pinned_cell, yields_to_downgrade)


def _within(schema: _Within) -> CellAffinity | None:
    return CellAffinity(schema.within, schema.hard is not False) if schema.within is not None else None


def _group(schema: TaskGroupSchema) -> TaskGroup:
    groups = tuple(_group(group) for group in schema.groups)
    tasks = schema.tasks if schema.tasks is not None else tasks_of(groups)
    return TaskGroup(tasks, _within(schema), groups, schema.count)


def affinity_documents(affinity: JobAffinity) -> dict[str, object]:
    """The fields of a job that `affinity_of` gives the same affinity for; those that say nothing are left out."""
    fields: dict[str, object] = {}
    if affinity.within is not None or affinity.groups:
        fields["affinity"] = _within_document(affinity.within, affinity.groups)
    if affinity.pinned_cell:
        fields["pinned_cell"] = affinity.pinned_cell
    if affinity.yields_to_downgrade:
        fields["yields_to_downgrade"] = True
    return fields


def _within_document(within: CellAffinity | None, groups: tuple[TaskGroup, ...]) -> dict[str, object]:
    document: dict[str, object] = {}
    if within is not None:
        document |= {"within": within.level, "hard": within.hard}
    if groups:
        document["groups"] = [
            {"count": group.count, "tasks": group.tasks, **_within_document(group.within, group.groups)}
            for group in groups
        ]
    return document
