"""What the database of a service says about a run."""

from __future__ import annotations

import asyncio
from typing import Any

from services.database.engine import Database

_STARTS = """SELECT e.workload::text, min(e.t) FROM events e JOIN workloads w USING (workload)
              WHERE e.event = 'started' AND w.name = %s GROUP BY e.workload"""
_SIZE = (
    """SELECT pg_database_size(current_database()), (SELECT count(*) FROM workloads), (SELECT count(*) FROM events)"""
)


def starts_of(url: str, name: str) -> dict[str, float]:
    """When each workload of that name started first, in seconds of the wall clock."""
    return {str(workload): float(t) for workload, t in asyncio.run(_rows(url, _STARTS, (name,)))}


def size_of(url: str) -> tuple[float, int, int]:
    """MiB of the database, workloads, and events in it."""
    size_bytes, workloads, events = asyncio.run(_rows(url, _SIZE, ()))[0]
    return round(size_bytes / 1024 / 1024, 1), workloads, events


async def _rows(url: str, text: str, parameters: tuple[str, ...]) -> list[tuple[Any, ...]]:
    async with Database(url) as database, database.transaction() as connection:
        cursor = await connection.execute(text, parameters)
        return [tuple(row) for row in await cursor.fetchall()]
