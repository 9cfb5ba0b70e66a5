"""Migrations in the database: asked for once, changed by whoever holds the lease, switched together with the catalog."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import pytest

from data_placement.migrations.life_cycle import MigrationHappening, MigrationState
from data_placement.migrations.migration import Migration, RoutePart
from domain.events import EventKind
from domain.fleet import Fleet, Region
from domain.identifiers import RegionId, TableId, WorkloadId
from domain.table import Table
from domain.workload import TableInput
from services.data_placement import migration_store
from services.data_placement.applying import apply_plan
from services.data_placement.data_use_look import read_by_live_attempts
from services.data_placement.migration_store import Enqueued, MigrationChanged, WantedMigration
from services.data_placement.moves_look import list_moves
from services.database import catalog_store, event_store, fleet_store, plan_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.partition_copy_store import load_table_partitions
from services.database.plan_store import StoredMove
from tests.database.small_world import EAST, FLEET, dispatch, new_attempt, specification, submission, submit
from tests.live.world import A100, gpu_cluster

A, B, C = map(RegionId, "abc")
T, U, T2 = map(TableId, ("t", "u", "t2"))
ABC = Fleet(tuple(Region(region, (gpu_cluster(f"{region}-gpus", A100, 1),)) for region in (A, B, C)))
TABLES = (Table(T, 100, A), Table(U, 50, B, (C,)))


def scenario(database_url: str, story: Callable[[Database], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=ABC))
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


def test_a_home_that_moves_may_leave_a_copy_behind(database_url: str) -> None:
    async def story(database: Database) -> None:
        await enqueue(database, WantedMigration(T, B, A, keeps_old_copy=True))
        migration = await happens(database, await only(database), MigrationHappening.COPY_BEGAN, copy_bytes=100)
        migration = await happens(database, migration, MigrationHappening.COPIED)
        migration = await database.run(
            partial(migration_store.switch, migration=migration, token=1, now=8.0, old_copy_stays_until_s=9.0)
        )
        catalog = await database.run(catalog_store.load_catalog)
        assert catalog.table(T) == Table(T, 100, B, (A,))
        assert migration.ended
        assert await database.run(migration_store.load_active) == []
        moves = await database.run(partial(list_moves, state="", table="t", limit=10, page_token=""))
        assert [move.kind for move in moves.moves] == ["home_keeping_copy"]

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


async def partition(database: Database, table: TableId, **created_s: float) -> None:
    """The table consists of partitions of ten bytes, created then."""

    async def write(connection: AnyConnection) -> None:
        for name, created in created_s.items():
            await connection.execute(
                "INSERT INTO data_partitions (data_table, partition, size_bytes, created_s) VALUES (%s, %s, 10, %s)",
                (table, name, created),
            )
        await connection.execute(
            "UPDATE data_tables SET size_bytes = %s, last_partition_s = %s, from_fleet = false WHERE data_table = %s",
            (10 * len(created_s), max(created_s.values()), table),
        )

    await database.run(write)


async def copied(
    database: Database, migration: Migration, partitions: tuple[str, ...], copy_bytes: int, size_bytes: int = 40
) -> Migration:
    """Begun, copied, verified and switched."""
    begun = await happens(
        database,
        migration,
        MigrationHappening.COPY_BEGAN,
        partitions=partitions,
        copy_bytes=copy_bytes,
        size_bytes=size_bytes,
        parts=(RoutePart((A, B), copy_bytes),),
    )
    assert await only(database) == begun
    verifying = await happens(database, begun, MigrationHappening.COPIED)
    return await database.run(
        partial(migration_store.switch, migration=verifying, token=1, now=8.0, old_copy_stays_until_s=9.0)
    )


def test_partitions_alone_are_noted_counted_and_completed(database_url: str) -> None:
    async def story(database: Database) -> None:
        await partition(database, T, p1=1.0, p2=2.0, p3=3.0, p4=4.0)
        await enqueue(database, WantedMigration(T, B, newest_partitions=2))
        switched = await copied(database, await only(database), ("p4", "p3"), 20)
        assert switched.ended
        catalog = await database.run(catalog_store.load_catalog)
        assert catalog.table(T) == Table(T, 40, A, newest_held=((B, 2),))
        storage = await database.run(migration_store.load_storage)
        assert storage.stored_bytes == {A: 40, B: 70, C: 50}
        held = await database.run(partial(load_table_partitions, tables=[T]))
        assert (held[T].missing_bytes(B, None), held[T].missing_bytes(B, 3), held[T].missing_bytes(C, 3)) == (
            20,
            10,
            30,
        )
        (event,) = (await database.run(partial(event_store.read, after_sequence=0, limit=10))).events
        assert (event.event.details["newest_partitions"], event.event.details["replicas"]) == (2, [])
        passed = (await enqueue(database, WantedMigration(T, B, newest_partitions=1))).passed_over
        assert passed == ((T, "b holds the 1 newest partitions of t already"),)
        # A partition more: what is held is not the newest any more, and stays.
        await partition(database, T, p5=5.0)
        assert (await database.run(partial(migration_store.load_tables, names=[T])))[T].newest_held == ((B, 0),)

    scenario(database_url, story)


def test_the_rest_makes_a_copy_of_partitions_complete(database_url: str) -> None:
    async def story(database: Database) -> None:
        await partition(database, T, p1=1.0, p2=2.0, p3=3.0, p4=4.0)
        await enqueue(database, WantedMigration(T, B, newest_partitions=2))
        await copied(database, await only(database), ("p4", "p3"), 20)
        await enqueue(database, WantedMigration(T, B))
        await copied(database, await only(database), (), 20)
        assert (await database.run(catalog_store.load_catalog)).table(T) == Table(T, 40, A, (B,))
        assert (await database.run(migration_store.load_storage)).stored_bytes == {A: 40, B: 90, C: 50}
        async with database.transaction() as connection:
            rows = await (await connection.execute("SELECT count(*) FROM data_partition_copies")).fetchall()
        assert rows == [(0,)]
        # As many partitions as there are is all of it.
        await enqueue(database, WantedMigration(T, C, newest_partitions=9))
        await copied(database, await only(database), ("p4", "p3", "p2", "p1"), 40)
        assert (await database.run(catalog_store.load_catalog)).table(T) == Table(T, 40, A, (B, C))

    scenario(database_url, story)


def test_what_has_not_begun_brings_what_is_wanted_by_now(database_url: str) -> None:
    async def story(database: Database) -> None:
        await partition(database, T, p1=1.0, p2=2.0, p3=3.0)
        await enqueue(database, WantedMigration(T, B, newest_partitions=1), WantedMigration(T, B, newest_partitions=2))
        assert (await only(database)).newest_partitions == 2
        await enqueue(database, WantedMigration(T, B, newest_partitions=1))
        assert (await only(database)).newest_partitions == 2
        await enqueue(database, WantedMigration(T, B))
        assert (await only(database)).newest_partitions is None

    scenario(database_url, story)


def test_partitions_that_are_not_the_newest_any_more_are_copied_again(database_url: str) -> None:
    """The oldest went and another came, of the same size: the table is as large as before."""

    async def story(database: Database) -> None:
        await partition(database, T, p1=1.0, p2=2.0, p3=3.0, p4=4.0)
        await enqueue(database, WantedMigration(T, B, newest_partitions=2))

        async def replace_oldest(connection: AnyConnection) -> None:
            await connection.execute(
                "UPDATE data_partitions SET partition = 'p5', created_s = 5 WHERE partition = 'p1'"
            )
            await connection.execute("UPDATE data_tables SET last_partition_s = 5 WHERE data_table = 't'")

        await database.run(replace_oldest)
        failed = await copied(database, await only(database), ("p4", "p3"), 20)
        assert (failed.state, failed.reason) == (
            MigrationState.FAILED,
            "the newest partitions of t are others by now",
        )
        await copied(database, failed, ("p5", "p4"), 20)
        assert (await database.run(catalog_store.load_catalog)).table(T) == Table(T, 40, A, newest_held=((B, 2),))

    scenario(database_url, story)


def test_what_is_enqueued_counts_the_bytes_that_are_missing_alone(database_url: str) -> None:
    async def story(database: Database) -> None:
        await partition(database, T, p1=1.0, p2=2.0, p3=3.0, p4=4.0)
        assert (await enqueue(database, WantedMigration(T, B, newest_partitions=2))).bytes == 20
        await copied(database, await only(database), ("p4", "p3"), 20)
        assert (await enqueue(database, WantedMigration(T, B))).bytes == 20
        # Where a complete copy is, nothing is copied.
        assert (await enqueue(database, WantedMigration(U, C, B))).bytes == 0

    scenario(database_url, story)


def test_what_a_plan_wants_too_is_made_although_nobody_waits_for_it_any_more(database_url: str) -> None:
    async def story(database: Database) -> None:
        await enqueue(database, WantedMigration(T, B, deadline_s=90.0, on_demand=True))
        await enqueue(database, WantedMigration(T, B, deadline_s=99.0, on_demand=True))
        assert (await only(database)).on_demand
        await enqueue(database, WantedMigration(T, B))
        assert not (await only(database)).on_demand
        await enqueue(database, WantedMigration(T, B, deadline_s=80.0, on_demand=True))
        assert not (await only(database)).on_demand

    scenario(database_url, story)


def test_a_copy_that_is_behind_takes_what_it_has(database_url: str) -> None:
    async def story(database: Database) -> None:
        await partition(database, U, p1=1.0, p2=2.0, p3=3.0)

        async def behind(connection: AnyConnection) -> None:
            await connection.execute("UPDATE data_table_replicas SET complete_until_s = 2 WHERE data_table = 'u'")

        await database.run(behind)
        assert (await database.run(migration_store.load_storage)).stored_bytes == {A: 100, B: 30, C: 20}
        held = await database.run(partial(load_table_partitions, tables=[U]))
        assert held[U].missing_bytes(C, None) == 10

    scenario(database_url, story)


def test_who_reads_a_table_is_found_by_its_name(database_url: str) -> None:
    async def story(database: Database) -> None:
        async def write(connection: AnyConnection) -> None:
            await fleet_store.apply_fleet(connection, FLEET)
            reads = [replace(specification(), tables=(TableInput(table), TableInput(T2))) for table in (T, U)]
            await submit(connection, [submission(number, each) for number, each in enumerate(reads)])
            await dispatch(connection, *(new_attempt(WorkloadId(f"w00000{number}")) for number in range(2)))
            await connection.execute("UPDATE attempts SET ended_s = 5 WHERE workload = 'w000001'")

        await database.run(write)
        assert await database.run(partial(read_by_live_attempts, tables=[T, U])) == {(T, EAST)}

    scenario(database_url, story)


def test_where_all_tries_of_a_copy_on_demand_failed_is_known_for_a_while(database_url: str) -> None:
    async def story(database: Database) -> None:
        await enqueue(database, WantedMigration(T, B, on_demand=True, priority=1, deadline_s=90.0))
        migration = await happens(database, await only(database), MigrationHappening.COPY_BEGAN)
        migration = await happens(database, migration, MigrationHappening.TRY_FAILED, failures=3, reason="disk full")
        migration = await happens(database, migration, MigrationHappening.GIVEN_UP, reason="given up: disk full")
        await happens(database, migration, MigrationHappening.CLEANED)
        known = await database.run(partial(migration_store.load_given_up_on_demand, since_s=6.0))
        assert known == {(T, B): "given up: disk full"}
        assert await database.run(partial(migration_store.load_given_up_on_demand, since_s=6.1)) == {}

    scenario(database_url, story)


def test_what_a_plan_says_of_shares_becomes_partitions(database_url: str) -> None:
    async def story(database: Database) -> None:
        await partition(database, T, p1=1.0, p2=2.0, p3=3.0, p4=4.0)
        some = StoredMove(0, T, A, B, "copy", 16, 1, "two jobs read it", 0.4)
        whole = StoredMove(1, U, B, A, "copy", 50, 1, "two jobs read it")

        async def plan(connection: AnyConnection) -> None:
            number = await plan_store.begin_plan(connection, {}, 5.0)
            await plan_store.finish_plan(connection, number, {}, [some, whole], {}, 1, 6.0)
            assert await plan_store.load_moves(connection, number, -1, 9) == [some, whole]
            done = await apply_plan(connection, number, 7.0, tables_move=True)
            assert (done.moves, done.passed_over) == (2, 0)

        await database.run(plan)
        active = await database.run(migration_store.load_active)
        assert [(each.table, each.newest_partitions) for each in active] == [(T, 2), (U, None)]

    scenario(database_url, story)


def test_partitions_in_a_region_that_is_gone_are_forgotten(database_url: str) -> None:
    async def story(database: Database) -> None:
        await partition(database, T, p1=1.0, p2=2.0)
        await enqueue(database, WantedMigration(T, B, newest_partitions=1))
        await copied(database, await only(database), ("p2",), 10, 20)

        async def lose(connection: AnyConnection) -> None:
            await fleet_store.apply_fleet(connection, Fleet(ABC.regions[:1]))
            await catalog_store.forget_copies_elsewhere(connection)

        catalog = await database.run(catalog_store.load_catalog)
        await database.run(lose)
        await database.run(partial(catalog_store.update_catalog, catalog=catalog))
        assert catalog.missing_tables(B, [TableInput(T, newest_partitions=1)]) == (T,)

    scenario(database_url, story)
