"""The cells of live attempts: written with their placements, and whenever they change. Inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, select

from domain.cells import CellsOfJobs, CellUse
from domain.identifiers import AttemptNumber, JobName, RegionId, WorkloadId
from domain.placement import AttemptKey
from formats.cell_use import cell_use_document, cell_use_from_document
from services.database.connection import AnyConnection
from services.database.core_statements import execute, upsert_rows
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
    """Of the live attempts of the region that use cells, by job."""
    return await _cells_where(connection, ATTEMPTS.c.region == region, ATTEMPTS.c.ended_s.is_(None))


async def cells_of_workload(connection: AnyConnection, workload: WorkloadId) -> dict[AttemptKey, CellsOfJobs]:
    """Of every attempt of the workload that used cells, by job."""
    return await _cells_where(connection, ATTEMPTS.c.workload == workload)


async def _cells_where(connection: AnyConnection, *which: ColumnElement[bool]) -> dict[AttemptKey, CellsOfJobs]:
    rows = await all_rows(
        connection,
        select(ATTEMPT_CELLS.c.workload, ATTEMPT_CELLS.c.attempt, ATTEMPT_CELLS.c.job, ATTEMPT_CELLS.c.cells)
        .select_from(ATTEMPT_CELLS.join(ATTEMPTS))
        .where(*which)
        .order_by(ATTEMPT_CELLS.c.workload, ATTEMPT_CELLS.c.attempt, ATTEMPT_CELLS.c.job),
    )
    found: dict[AttemptKey, list[tuple[JobName, CellUse]]] = {}
    for workload, attempt, job, cells in rows:
        key = AttemptKey(WorkloadId(workload), AttemptNumber(attempt))
        found.setdefault(key, []).append((JobName(job), cell_use_from_document(cells)))
    return {key: tuple(cells) for key, cells in found.items()}
