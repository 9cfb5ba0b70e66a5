"""Places reserved for the successors of migrating attempts. Inside the caller's transaction.

A reservation stands beside a live attempt and holds nothing of its quota: the successor takes over what the attempt
before it had. At most one per workload, and only for the next attempt of the one that is live.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from domain.identifiers import AttemptNumber, RegionId, WorkloadId
from domain.life_cycle import Happening, State
from domain.placement import AttemptKey, TaskPlacement
from services.database.channels import REGION_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.placement_documents import placements_from_documents, placements_to_documents
from services.database.state_guards import before


@dataclass(frozen=True, slots=True)
class ReservedPlace:
    """Where an attempt will start that does not exist yet."""

    key: AttemptKey
    region: RegionId
    reserved_s: float
    placements: tuple[TaskPlacement, ...]
    room_for: WorkloadId | None = None
    """The workload that the attempt makes room for where it leaves."""


async def reserve(connection: AnyConnection, place: ReservedPlace) -> bool:
    """Keeps the place; False unless the attempt before it runs, is not asked to leave, and has no successor yet."""
    cursor = await connection.execute(
        """SELECT 1 FROM attempts a JOIN workloads w USING (workload)
            WHERE a.workload = %s AND a.attempt = %s AND a.ended_s IS NULL AND a.state = %s
              AND NOT w.cancel_requested AND w.requeue_by IS NULL
              FOR NO KEY UPDATE OF a""",
        (*place.key.predecessor, State.RUNNING.value),
    )
    if await cursor.fetchone() is None:
        return False
    cursor = await connection.execute(
        """INSERT INTO reserved_places (workload, attempt, region, reserved_s, placements, room_for)
           VALUES (%s, %s, %s, %s, %s, %s)
           ON CONFLICT DO NOTHING RETURNING workload""",
        (
            place.key.workload,
            place.key.attempt,
            place.region,
            place.reserved_s,
            Jsonb(placements_to_documents(place.placements)),
            place.room_for,
        ),
    )
    if await cursor.fetchone() is None:
        return False
    wake_after_commit(connection, REGION_CHANNEL)
    return True


async def in_region(connection: AnyConnection, region: RegionId) -> list[ReservedPlace]:
    """Every place that the region keeps, sorted by workload."""
    cursor = await connection.execute(
        """SELECT workload, attempt, region, reserved_s, placements, room_for FROM reserved_places
            WHERE region = %s ORDER BY workload""",
        (region,),
    )
    return [_place_from_row(*row) for row in await cursor.fetchall()]


async def of_departing(connection: AnyConnection, region: RegionId) -> list[ReservedPlace]:
    """Places, anywhere, for successors of the region's attempts that run and are not asked to leave yet; sorted."""
    cursor = await connection.execute(
        """SELECT r.workload, r.attempt, r.region, r.reserved_s, r.placements, r.room_for
             FROM reserved_places r JOIN attempts a
               ON a.workload = r.workload AND a.attempt = r.attempt - 1
            WHERE a.region = %s AND a.ended_s IS NULL AND a.state = ANY(%s) ORDER BY r.workload""",
        (region, before(Happening.EVICTION_BEGAN)),
    )
    return [_place_from_row(*row) for row in await cursor.fetchall()]


async def take(connection: AnyConnection, workloads: Sequence[WorkloadId]) -> dict[WorkloadId, ReservedPlace]:
    """Ends the reservations of these workloads, whose attempts end in this transaction; returns what was kept."""
    if not workloads:
        return {}
    cursor = await connection.execute(
        """DELETE FROM reserved_places WHERE workload = ANY(%s)
        RETURNING workload, attempt, region, reserved_s, placements, room_for""",
        (list(workloads),),
    )
    places = [_place_from_row(*row) for row in await cursor.fetchall()]
    if places:
        wake_after_commit(connection, REGION_CHANNEL)
    return {place.key.workload: place for place in places}


def _place_from_row(
    workload: str,
    attempt: int,
    region: str,
    reserved_s: float,
    placements: list[dict[str, object]],
    room_for: str | None,
) -> ReservedPlace:
    key = AttemptKey(WorkloadId(workload), AttemptNumber(attempt))
    for_whom = None if room_for is None else WorkloadId(room_for)
    return ReservedPlace(key, RegionId(region), reserved_s, placements_from_documents(placements), for_whom)
