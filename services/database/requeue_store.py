"""Workloads come back into the queue: after an attempt, or when nobody holds them any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from psycopg.types.json import Jsonb

from domain.identifiers import ANY_GPU_MODEL, WorkloadId
from domain.priority_class import importance_of
from domain.workload import WorkloadSpecification
from services.database.connection import AnyConnection


@dataclass(frozen=True, slots=True)
class RequeuedEntry:
    """What a workload's queue entry says when it returns to the queue: its demand, as at submission."""

    gpu_model: str
    gpus: int
    cpus: float
    more_gpus: Mapping[str, int] = field(default_factory=dict)
    importance: int | None = None
    """None: it is of the normal class."""


def requeued_entry(specification: WorkloadSpecification) -> RequeuedEntry:
    """What the queue entry of this workload says it asks for."""
    demand = specification.demand
    (model, gpus), *more = demand.gpus or ((ANY_GPU_MODEL, 0),)
    importance = importance_of(specification.priority_class) or None
    return RequeuedEntry(model, gpus, demand.cpus, {str(name): count for name, count in more}, importance)


async def insert_entries(
    connection: AnyConnection, entries: Sequence[tuple[WorkloadId, RequeuedEntry, float, float]]
) -> None:
    """Queue entries of workloads that return: what each asks for, before when it is not tried, since when it waits. Those that
    are held, or wait for their turn in an array, get none before they are released."""
    if not entries:
        return
    await connection.execute(
        """INSERT INTO queue_entries (workload, tenant, submitted_s, gpu_model, gpus, cpus, more_gpus, not_before_s,
                                      queued_since_s, attained_gpu_s, attained_s, first_started_s, kind,
                                      asked_priority, importance)
           SELECT w.workload, w.tenant, w.submitted_s, u.gpu_model, u.gpus, u.cpus, u.more_gpus, u.not_before_s,
                  u.since_s, w.attained_gpu_s - w.before_promotion_gpu_s, w.attained_s - w.before_promotion_s,
                  w.first_started_s, w.kind, w.asked_priority, u.importance
             FROM unnest(%s::text[], %s::text[], %s::int[], %s::float8[], %s::jsonb[], %s::float8[], %s::float8[],
                         %s::smallint[])
               AS u (workload, gpu_model, gpus, cpus, more_gpus, not_before_s, since_s, importance)
             JOIN workloads w USING (workload) WHERE w.held_by IS NULL AND NOT w.awaits_turn""",
        (
            [workload for workload, _, _, _ in entries],
            [entry.gpu_model for _, entry, _, _ in entries],
            [entry.gpus for _, entry, _, _ in entries],
            [entry.cpus for _, entry, _, _ in entries],
            [Jsonb(dict(entry.more_gpus)) if entry.more_gpus else None for _, entry, _, _ in entries],
            [not_before_s for _, _, not_before_s, _ in entries],
            [since_s for _, _, _, since_s in entries],
            [entry.importance for _, entry, _, _ in entries],
        ),
    )


async def set_importance(connection: AnyConnection, specifications: Mapping[WorkloadId, WorkloadSpecification]) -> None:
    """Those of them that have just been queued, and are of another class than the normal one, are of theirs; most are not, and
    cost nothing."""
    await change_importance(
        connection,
        {workload: specification for workload, specification in specifications.items() if specification.priority_class},
    )


async def change_importance(
    connection: AnyConnection, specifications: Mapping[WorkloadId, WorkloadSpecification]
) -> None:
    """Those of them that are queued are of their classes, and of the normal one if they say nothing."""
    if specifications:
        await connection.execute(
            """UPDATE queue_entries q SET importance = nullif(u.importance, 0)
                 FROM unnest(%s::text[], %s::smallint[]) AS u (workload, importance) WHERE q.workload = u.workload""",
            (list(specifications), [importance_of(each.priority_class) for each in specifications.values()]),
        )
