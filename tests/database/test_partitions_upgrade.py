"""A database of before copies could hold partitions alone, with workloads and migrations in it, is brought up to date."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import psycopg

from data_placement.migrations.migration import Migration
from domain.identifiers import RegionId, TableId
from domain.table import Table
from domain.workload import TableInput
from services.data_placement import migration_store
from services.data_placement.migration_store import WantedMigration
from services.database import catalog_store, fleet_store, migrations_runner
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.wire.workloads import specification_to_proto
from tests.database.small_world import EAST, FLEET, specification, submission, submit

COAST = RegionId("coast")
T, U = TableId("t"), TableId("u")


async def _fill(connection: AnyConnection) -> None:
    await fleet_store.apply_fleet(connection, FLEET)
    await catalog_store.apply_tables(connection, (Table(T, 100, EAST), Table(U, 50, EAST)))
    wanted = replace(specification(), tables=(TableInput(T), TableInput(U, newest_partitions=2)))
    each = [
        replace(submission(number, wanted), serialized=specification_to_proto(wanted).SerializeToString())
        for number in range(2)
    ]
    await submit(connection, [*each, submission(2)])
    await connection.execute("UPDATE workloads SET state = 'COMPLETED' WHERE workload = 'w000001'")
    await connection.execute(
        "UPDATE workloads SET specification = %s WHERE workload = 'w000002'",
        (specification_to_proto(specification()).SerializeToString(),),
    )
    await migration_store.enqueue(
        connection, [WantedMigration(T, COAST), WantedMigration(U, COAST, newest_partitions=1)], 5.0
    )


async def _filled(url: str) -> None:
    async with Database(url) as database:
        await database.run(_fill)


async def _active(url: str) -> list[Migration]:
    async with Database(url) as database:
        return await database.run(migration_store.load_active)


def test_what_workloads_read_is_known_and_whole_copies_go_on(database_url: str) -> None:
    asyncio.run(_filled(database_url))
    whole, _ = asyncio.run(_active(database_url))
    migrations_runner.downgrade(database_url, "0022")
    migrations_runner.upgrade(database_url)
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT workload, data_table FROM workload_tables ORDER BY 1, 2").fetchall()
    # Of those that have ended nobody asks any more.
    assert rows == [("w000000", "t"), ("w000000", "u")]
    assert asyncio.run(_active(database_url)) == [whole]
