"""What bounds the moves of workloads for others' sake (decision 071): their checkpoints, and how often they have moved of late."""

from __future__ import annotations

from dataclasses import dataclass

from domain.events import EvictionCause
from domain.identifiers import RegionId, WorkloadId
from domain.life_cycle import State
from services.database.connection import AnyConnection


@dataclass(frozen=True, slots=True)
class MoveFacts:
    """What bounds the moves of a workload that runs."""

    saved_s: float | None
    """When its last checkpoint was saved; None: it has none."""
    moved_s: tuple[float, ...]
    """When its attempts of late ended because it went on elsewhere, in ascending order."""


async def load_move_facts(connection: AnyConnection, region: RegionId, since_s: float) -> dict[WorkloadId, MoveFacts]:
    """Of the workloads that run in the region; moves since then."""
    cursor = await connection.execute(
        """SELECT a.workload, (SELECT max(c.saved_s) FROM checkpoints c WHERE c.workload = a.workload),
                  ARRAY(SELECT m.ended_s FROM attempts m
                         WHERE m.workload = a.workload AND m."end" = %s AND m.ended_s >= %s ORDER BY m.ended_s)
             FROM attempts a WHERE a.region = %s AND a.ended_s IS NULL AND a.state = %s""",
        (EvictionCause.MIGRATED.value, since_s, region, State.RUNNING.value),
    )
    return {
        WorkloadId(workload): MoveFacts(saved_s, tuple(map(float, moved_s)))
        for workload, saved_s, moved_s in await cursor.fetchall()
    }
