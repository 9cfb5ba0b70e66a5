"""Where the tasks of attempts are: read with them, written at their dispatch. Inside the caller's transaction.

There may be a hundred thousand, and who reads or writes them holds a lease: no step of the loop handles all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from psycopg.rows import TupleRow
from sqlalchemy import select

from domain.identifiers import ClusterId, JobName, MachineId, RegionId
from domain.placement import AttemptKey, TaskPlacement
from services.database.array_text import number_array, text_array
from services.database.connection import AnyConnection
from services.database.large_results import all_rows
from services.database.tables.attempts import ATTEMPTS, PLACEMENTS

_WRITTEN_AT_ONCE = 256
"""Attempts whose placements one statement writes."""


async def load_placements(connection: AnyConnection, region: RegionId) -> dict[tuple[str, int], list[TaskPlacement]]:
    """Of the live attempts of the region, by workload and attempt; those of one by job and task."""
    placed = PLACEMENTS.c
    query = (
        select(
            placed.workload,
            placed.attempt,
            placed.job,
            placed.task,
            placed.cluster,
            placed.machine,
            placed.gpu_indices,
            placed.millicpus,
            placed.mebibytes,
        )
        .select_from(PLACEMENTS.join(ATTEMPTS))
        .where(ATTEMPTS.c.region == region, ATTEMPTS.c.ended_s.is_(None))
        .order_by(placed.workload, placed.attempt, placed.job, placed.task)
    )
    return await asyncio.to_thread(_by_attempt, await all_rows(connection, query))


async def write_placements(
    connection: AnyConnection, placed: Sequence[tuple[AttemptKey, Sequence[TaskPlacement]]]
) -> None:
    """Stores what attempts hold that hold nothing yet."""
    for first in range(0, len(placed), _WRITTEN_AT_ONCE):
        rows = [(key, place) for key, places in placed[first : first + _WRITTEN_AT_ONCE] for place in places]
        await connection.execute(
            """INSERT INTO placements (workload, attempt, job, task, cluster, machine, gpu_indices, millicpus, mebibytes)
               SELECT u.workload, u.attempt, u.job, u.task, u.cluster, u.machine, u.gpu_indices::smallint[], u.millicpus,
                      u.mebibytes
                 FROM unnest(%s::text[], %s::int[], %s::text[], %s::int[], %s::text[], %s::text[], %s::text[], %s::bigint[],
                             %s::bigint[])
                   AS u (workload, attempt, job, task, cluster, machine, gpu_indices, millicpus, mebibytes)""",
            (
                text_array(key.workload for key, _ in rows),
                number_array(int(key.attempt) for key, _ in rows),
                text_array(place.job for _, place in rows),
                number_array(place.task for _, place in rows),
                text_array(place.cluster for _, place in rows),
                text_array(place.machine for _, place in rows),
                # Arrays of several lengths: each as a text of its own.
                text_array(number_array(place.gpu_indices) for _, place in rows),
                number_array(place.millicpus for _, place in rows),
                number_array(place.mebibytes for _, place in rows),
            ),
        )
        await asyncio.sleep(0)


def _placement_from_row(row: Sequence[object]) -> TaskPlacement:
    job, task, cluster, machine, gpu_indices, millicpus, mebibytes = row
    if not isinstance(gpu_indices, list):
        raise TypeError(f"gpu_indices of a placement is {gpu_indices!r}, not a list")
    return TaskPlacement(
        JobName(str(job)),
        int(str(task)),
        ClusterId(str(cluster)),
        MachineId(str(machine)),
        tuple(gpu_indices),
        int(str(millicpus)),
        int(str(mebibytes)),
    )


def _by_attempt(rows: Sequence[TupleRow]) -> dict[tuple[str, int], list[TaskPlacement]]:
    placements: dict[tuple[str, int], list[TaskPlacement]] = {}
    for workload, attempt, *placement in rows:
        placements.setdefault((workload, attempt), []).append(_placement_from_row(placement))
    return placements
