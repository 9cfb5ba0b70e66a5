"""Promotions of workloads that wait too long: what they attained counts from zero again, here and in their queue entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.identifiers import WorkloadId
from services.database.connection import AnyConnection


@dataclass(frozen=True, slots=True)
class StoredPromotion:
    """One that was carried out."""

    workload: WorkloadId
    attained_s: float
    """What it had run since its last promotion, and counts no more."""
    attained_gpu_s: float


async def promote(
    connection: AnyConnection, waiting: Sequence[tuple[WorkloadId, float]]
) -> dict[WorkloadId, StoredPromotion]:
    """Promotes those of the workloads that still wait since the given time; returns what was done, by workload.

    It waits for no other transaction: one that another has locked is left to the next pass, which finds it unchanged.
    """
    if not waiting:
        return {}
    cursor = await connection.execute(
        """WITH due AS MATERIALIZED (
                    SELECT w.workload, w.attained_s - w.before_promotion_s AS attained_s,
                           w.attained_gpu_s - w.before_promotion_gpu_s AS attained_gpu_s
                      FROM unnest(%s::text[], %s::float8[]) AS u (workload, since_s)
                      JOIN queue_entries q USING (workload) JOIN workloads w USING (workload)
                     WHERE coalesce(q.queued_since_s, q.submitted_s) = u.since_s
                       FOR NO KEY UPDATE OF q, w SKIP LOCKED),
                entries AS (
                    UPDATE queue_entries q SET attained_s = 0, attained_gpu_s = 0
                      FROM due WHERE q.workload = due.workload)
           UPDATE workloads w SET before_promotion_s = w.attained_s, before_promotion_gpu_s = w.attained_gpu_s
             FROM due WHERE w.workload = due.workload
        RETURNING w.workload, due.attained_s, due.attained_gpu_s""",
        ([name for name, _ in waiting], [since_s for _, since_s in waiting]),
    )
    done = [StoredPromotion(WorkloadId(row[0]), row[1], row[2]) for row in await cursor.fetchall()]
    return {promotion.workload: promotion for promotion in done}
