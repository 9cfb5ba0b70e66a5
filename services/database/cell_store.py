"""The cells of live attempts: written with their placements, and whenever they change. Inside the caller's transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from psycopg.rows import TupleRow
from sqlalchemy import select, true

from domain.cells import CellsOfJobs, CellUse
from domain.identifiers import AttemptNumber, JobName, RegionId, WorkloadId
from domain.placement import AttemptKey
from formats.cell_use import cell_use_document, cell_use_from_document
from services.database.connection import AnyConnection
from services.database.core_statements import any_of, execute, upsert_rows
from services.database.large_results import all_rows
from services.database.tables.attempts import ATTEMPT_CELLS, ATTEMPTS


async def write_cells(connection: AnyConnection, changed: Sequence[tuple[AttemptKey, CellsOfJobs]]) -> None:
    """These attempts use these cells from now on, in these jobs: with their dispatch, and when a change of fleet, tenants or
    other work has downgraded or restored them.
    """
    rows = [
        (key.workload, int(key.attempt), job, cell_use_document(use)) for key, cells in changed for job, use in cells
    ]
    if rows:
        await execute(connection, upsert_rows(ATTEMPT_CELLS, ("workload", "attempt", "job", "cells"), rows))


async def load_cells(connection: AnyConnection, region: RegionId) -> dict[AttemptKey, CellsOfJobs]:
    """Of the live attempts of the region that use cells, by job; what others used is not looked at."""
    cells = ATTEMPT_CELLS.c
    live = (
        select(ATTEMPTS.c.workload, ATTEMPTS.c.attempt)
        .where(ATTEMPTS.c.region == region, ATTEMPTS.c.ended_s.is_(None))
        .subquery("live")
    )
    # Looked up one by one: there may be many times as many of attempts that have ended.
    own = (
        select(cells.job, cells.cells)
        .where(cells.workload == live.c.workload, cells.attempt == live.c.attempt)
        .offset(0)
        .lateral("own")
    )
    chosen = select(live.c.workload, live.c.attempt, own.c.job, own.c.cells).select_from(live.join(own, true()))
    rows = await all_rows(connection, chosen.order_by(live.c.workload, live.c.attempt, own.c.job))
    # In a thread, here and where placements are read: whoever starts with this holds a lease by now.
    return await asyncio.to_thread(_by_attempt, rows)


async def cells_of_workloads(
    connection: AnyConnection, workloads: Sequence[WorkloadId]
) -> dict[AttemptKey, CellsOfJobs]:
    """Of every attempt of these workloads that used cells, by job."""
    cells = ATTEMPT_CELLS.c
    chosen = select(cells.workload, cells.attempt, cells.job, cells.cells).where(any_of(cells.workload, workloads))
    return _by_attempt(await all_rows(connection, chosen.order_by(cells.workload, cells.attempt, cells.job)))


def _by_attempt(rows: Sequence[TupleRow]) -> dict[AttemptKey, CellsOfJobs]:
    found: dict[AttemptKey, list[tuple[JobName, CellUse]]] = {}
    for workload, attempt, job, cells in rows:
        key = AttemptKey(WorkloadId(workload), AttemptNumber(attempt))
        found.setdefault(key, []).append((JobName(job), cell_use_from_document(cells)))
    return {key: tuple(cells) for key, cells in found.items()}
