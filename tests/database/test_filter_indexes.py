"""What lists are filtered by has an index, and PostgreSQL uses it on tables that are full."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from domain.events import EventKind
from domain.identifiers import TenantId, WorkloadId
from domain.life_cycle import State
from services.database import event_store, workload_reader
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.event_store import EventFilter
from services.database.workload_reader import StoredWorkloadFilter

_FILL = (
    """INSERT INTO workloads (workload, tenant, name, specification, gpus, emulated, state, submitted_s, ended_s)
       SELECT 'w' || n, 'tenant-' || n % 200, 'run', '', 1, true,
              CASE n % 400 WHEN 0 THEN 'RUNNING' WHEN 1 THEN 'FAILED' ELSE 'COMPLETED' END, n, n + 1
         FROM generate_series(1, 40000) AS n""",
    """INSERT INTO events (t, event, workload, tenant, details)
       SELECT n, CASE n % 500 WHEN 0 THEN 'failed' ELSE 'started' END, 'w' || n, 'tenant-' || n % 200, '{}'
         FROM generate_series(1, 60000) AS n""",
    "ANALYZE workloads, events",
)

_USED = """SELECT indexrelname, idx_scan FROM pg_stat_user_indexes WHERE relname IN ('workloads', 'events')
            UNION ALL SELECT relname, seq_scan FROM pg_stat_user_tables WHERE relname IN ('workloads', 'events')"""


async def _used(connection: AnyConnection) -> dict[str, int]:
    """How often each index was used, and each of the two tables read from end to end."""
    return {row[0]: int(row[1]) for row in await (await connection.execute(_USED)).fetchall()}


def _indexes_used(database_url: str, reads: list[Callable[[AnyConnection], Awaitable[int]]]) -> list[set[str]]:
    """What each of these reads used, which must find something."""

    async def fill(connection: AnyConnection) -> None:
        for statement in _FILL:
            await connection.execute(statement)

    async def scenario() -> list[set[str]]:
        found = []
        async with Database(database_url) as database:
            await database.run(fill)
        for read in reads:
            before = await _now(database_url)
            async with Database(database_url) as database, database.transaction() as connection:
                assert await read(connection) > 0
            # What a connection has used is counted when it is closed.
            after = await _now(database_url)
            found.append({name for name, count in after.items() if count > before[name]})
        return found

    return asyncio.run(scenario())


async def _now(database_url: str) -> dict[str, int]:
    async with Database(database_url) as database:
        return await database.run(_used)


async def _listed(connection: AnyConnection, wanted: StoredWorkloadFilter) -> int:
    return len((await workload_reader.list_page(connection, wanted, 20)).workloads)


async def _read(connection: AnyConnection, wanted: EventFilter, after: int = 0) -> int:
    return len((await event_store.read(connection, after, 20, wanted)).events)


def test_lists_of_workloads_are_read_by_their_filters(database_url: str) -> None:
    by_state, by_tenant, by_time = _indexes_used(
        database_url,
        [
            partial(_listed, wanted=StoredWorkloadFilter(states=(State.RUNNING,))),
            partial(_listed, wanted=StoredWorkloadFilter(tenant=TenantId("tenant-7"))),
            partial(_listed, wanted=StoredWorkloadFilter(submitted_after_s=100.0, submitted_before_s=200.0)),
        ],
    )
    assert "workloads_newest_of_state" in by_state
    assert "workloads_newest_of_tenant" in by_tenant
    assert "workloads_newest" in by_time
    assert not {"workloads"} & (by_state | by_tenant | by_time), "a whole table was read"


def test_the_event_log_is_read_by_its_filters(database_url: str) -> None:
    by_kind, by_tenant, by_workload, by_place = _indexes_used(
        database_url,
        [
            partial(_read, wanted=EventFilter(kinds=(EventKind.FAILED,)), after=30_000),
            partial(_read, wanted=EventFilter(tenant=TenantId("tenant-7")), after=30_000),
            partial(_read, wanted=EventFilter(workload=WorkloadId("w77"))),
            partial(_read, wanted=EventFilter(), after=59_000),
        ],
    )
    assert "events_kind" in by_kind
    assert "events_tenant" in by_tenant
    assert "events_workload" in by_workload
    assert "events_pkey" in by_place
    assert not {"events"} & (by_kind | by_tenant | by_workload | by_place), "a whole table was read"
