"""Migrations in the database: asked for once, changed by whoever holds the lease, switched together with the catalog."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from data_placement.migrations.life_cycle import MigrationHappening, MigrationState
from data_placement.migrations.migration import Migration, RoutePart
from domain.events import EventKind
from domain.identifiers import RegionId, TableId
from domain.table import Table
from services.data_placement import migration_store
from services.data_placement.migration_store import Enqueued, MigrationChanged, WantedMigration
from services.database import catalog_store, event_store
from services.database.connection import AnyConnection
from services.database.engine import Database

A, B, C = map(RegionId, "abc")
T, U = TableId("t"), TableId("u")
TABLES = (Table(T, 100, A), Table(U, 50, B, (C,)))


def scenario(database_url: str, story: Callable[[Database], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Database(database_url) as database:
            await database.run(partial(catalog_store.apply_tables, tables=TABLES))
            await story(database)

    asyncio.run(run())


async def enqueue(database: Database, *wanted: WantedMigration) -> Enqueued:
    return await database.run(partial(migration_store.enqueue, wanted=wanted, now=5.0))


async def happens(
    database: Database, migration: Migration, happening: MigrationHappening, token: int = 1, **changes: object
) -> Migration:
    async def advance(connection: AnyConnection) -> Migration:
        return await migration_store.advance(connection, migration, happening, token, 6.0, changes)

    return await database.run(advance)


async def only(database: Database) -> Migration:
    (migration,) = await database.run(migration_store.load_active)
    return migration


def test_what_makes_no_sense_is_passed_over_with_a_sentence(database_url: str) -> None:
    async def story(database: Database) -> None:
        done = await enqueue(
            database,
            WantedMigration(T, B, A),
            WantedMigration(T, C, A),
            WantedMigration(T, B),
            WantedMigration(U, C),
            WantedMigration(U, A, C),
            WantedMigration(TableId("x"), A),
        )
        assert (len(done.numbers), done.bytes) == (1, 100)
        assert [reason for _, reason in done.passed_over] == [
            "another migration of the same request moves the home of t to b already",
            "another migration of the same request brings t to b already",
            "c holds a copy of u already",
            "the home of u is b, not c",
            "table x is not in the catalog",
        ]
        again = await enqueue(database, WantedMigration(T, B, A))
        assert again.passed_over == ((T, f"migration {done.numbers[0]} brings t to b already"),)

    scenario(database_url, story)


def test_what_is_on_the_way_becomes_more_urgent(database_url: str) -> None:
    async def story(database: Database) -> None:
        await enqueue(database, WantedMigration(T, B, A, priority=4))
        await enqueue(database, WantedMigration(T, B, priority=3, deadline_s=90.0, on_demand=True))
        await enqueue(database, WantedMigration(T, B, priority=5, deadline_s=95.0))
        migration = await only(database)
        assert (migration.priority, migration.deadline_s, migration.leaves) == (3, 90.0, A)

    scenario(database_url, story)


def test_a_move_is_written_step_by_step_and_switches_with_the_catalog(database_url: str) -> None:
    async def story(database: Database) -> None:
        await enqueue(database, WantedMigration(T, B, A))
        part = RoutePart((A, C, B), 100)
        migration = await happens(
            database, await only(database), MigrationHappening.COPY_BEGAN, parts=(part,), copy_bytes=100, size_bytes=100
        )
        assert await only(database) == migration
        assert await database.run(partial(migration_store.bytes_begun_today, now=7.0)) == 100
        assert await database.run(partial(migration_store.bytes_begun_today, now=90_000.0)) == 0
        storage = await database.run(migration_store.load_storage)
        assert storage.stored_bytes == {A: 100, B: 50, C: 50}
        migration = await happens(database, migration, MigrationHappening.COPIED)
        migration = await database.run(
            partial(migration_store.switch, migration=migration, token=1, now=8.0, old_copy_stays_until_s=9.0)
        )
        assert migration.state is MigrationState.SWITCHED
        catalog = await database.run(catalog_store.load_catalog)
        assert (catalog.table(T), catalog.revision) == (Table(T, 100, B), 2)
        page = await database.run(partial(event_store.read, after_sequence=0, limit=10))
        (event,) = [each.event for each in page.events]
        assert (event.event, event.region) == (EventKind.TABLE_MOVED, B)
        assert event.details == {
            "table": "t",
            "source": "a",
            "kind": "home",
            "home": "b",
            "replicas": [],
            "bytes": 100,
            "on_demand": False,
        }
        migration = await happens(database, migration, MigrationHappening.DELETION_BEGAN)
        await happens(database, migration, MigrationHappening.DELETED)
        assert await database.run(migration_store.load_active) == []
        assert (await enqueue(database, WantedMigration(T, A, B))).numbers

    scenario(database_url, story)


def test_a_table_that_has_grown_is_copied_again(database_url: str) -> None:
    async def story(database: Database) -> None:
        await enqueue(database, WantedMigration(T, B))
        migration = await happens(database, await only(database), MigrationHappening.COPY_BEGAN, copy_bytes=100)
        migration = await happens(database, migration, MigrationHappening.COPIED)
        grown = (Table(T, 120, A), TABLES[1])
        await database.run(partial(catalog_store.apply_tables, tables=grown))
        migration = await database.run(
            partial(migration_store.switch, migration=migration, token=1, now=8.0, old_copy_stays_until_s=9.0)
        )
        assert (migration.state, migration.reason) == (MigrationState.FAILED, "t has 120 bytes by now, not 100")
        assert (await database.run(catalog_store.load_catalog)).table(T) == grown[0]

    scenario(database_url, story)


def test_a_copy_that_the_catalog_names_again_is_not_deleted(database_url: str) -> None:
    async def story(database: Database) -> None:
        await enqueue(database, WantedMigration(T, B, A))
        migration = await happens(
            database, await only(database), MigrationHappening.COPY_BEGAN, copy_bytes=100, size_bytes=100
        )
        migration = await happens(database, migration, MigrationHappening.COPIED)
        migration = await database.run(
            partial(migration_store.switch, migration=migration, token=1, now=8.0, old_copy_stays_until_s=9.0)
        )

        async def back(connection: AnyConnection) -> None:
            await connection.execute("UPDATE data_tables SET home = 'a' WHERE data_table = 't'")

        await database.run(back)
        after = await database.run(partial(migration_store.begin_deletion, migration=migration, token=1, now=10.0))
        assert (after.state, after.reason) == (MigrationState.DONE, "the catalog names the copy in a again")

    scenario(database_url, story)


def test_what_is_behind_is_copied_anew(database_url: str) -> None:
    async def story(database: Database) -> None:
        async def grow(connection: AnyConnection) -> None:
            await connection.execute("UPDATE data_tables SET last_partition_s = 50 WHERE data_table = 'u'")
            await connection.execute("UPDATE data_table_replicas SET complete_until_s = 20 WHERE data_table = 'u'")

        await database.run(grow)
        tables = await database.run(partial(migration_store.load_tables, names=[U]))
        assert tables[U].lags_s == ((C, 30.0),)
        assert (await enqueue(database, WantedMigration(U, C))).numbers
        migration = await happens(database, await only(database), MigrationHappening.COPY_BEGAN, size_bytes=50)
        migration = await happens(database, migration, MigrationHappening.COPIED)
        await database.run(
            partial(migration_store.switch, migration=migration, token=1, now=8.0, old_copy_stays_until_s=9.0)
        )
        assert (await database.run(partial(migration_store.load_tables, names=[U])))[U].lags_s == ()

    scenario(database_url, story)


def test_a_predecessor_changes_nothing(database_url: str) -> None:
    async def story(database: Database) -> None:
        await enqueue(database, WantedMigration(T, B, A))
        old = await happens(database, await only(database), MigrationHappening.COPY_BEGAN, token=1, copy_bytes=100)
        await database.run(partial(migration_store.take_over, token=2))
        with pytest.raises(MigrationChanged, match="is not copying under this lease any more"):
            await happens(database, old, MigrationHappening.COPIED, token=1)
        verifying = await happens(database, old, MigrationHappening.COPIED, token=2)
        with pytest.raises(MigrationChanged):
            await happens(database, old, MigrationHappening.COPIED, token=2)
        with pytest.raises(MigrationChanged):
            await database.run(
                partial(migration_store.switch, migration=verifying, token=1, now=8.0, old_copy_stays_until_s=9.0)
            )
        assert (await database.run(catalog_store.load_catalog)).table(T) == TABLES[0]

    scenario(database_url, story)


def test_declared_links_are_the_only_ones(database_url: str) -> None:
    async def story(database: Database) -> None:
        links = await database.run(migration_store.load_links)
        assert links.rate(A, B) > 0

        async def declare(connection: AnyConnection) -> None:
            await connection.execute("INSERT INTO data_links VALUES ('a', 'b', 86400.0)")
            await connection.execute("INSERT INTO data_regions VALUES ('b', 1000)")

        await database.run(declare)
        links = await database.run(migration_store.load_links)
        assert (links.rate(A, B), links.rate(B, A)) == (1.0, 0.0)
        assert (await database.run(migration_store.load_storage)).capacity_bytes == {B: 1000.0}

    scenario(database_url, story)
