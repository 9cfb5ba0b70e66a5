"""Copies of tables whose partitions become others, or are wanted otherwise, while they are made."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

import numpy as np

from data_placement.migrations.life_cycle import MigrationHappening, MigrationState
from domain.table import Table
from domain.warehouse import CopyAges, Jobs, Namespaces, Partitions, Regions, Tables, Warehouse, WarehouseCatalog
from services.data_placement import migration_store
from services.data_placement.migration_store import WantedMigration
from services.database import catalog_store
from services.database.engine import Database
from services.database.warehouse_import import ImportChoices, ImportCounts, import_catalog
from tests.data_placement_service.test_migration_store import (
    A,
    B,
    T,
    copied,
    enqueue,
    happens,
    only,
    partition,
    scenario,
)


def imported(database: Database, *partitions: tuple[str, float]) -> Awaitable[ImportCounts]:
    """An import of table t, of these partitions of ten bytes each."""
    count = len(partitions)
    none, zeros, ones = np.zeros(0, np.int32), np.zeros(0), np.full((1, 3), 8.0)
    regions = Regions(("a", "b", "c"), np.full(3, 1e6), ("A100",), ones)
    tables = Tables((T,), np.array([10 * count]), np.array([0], np.int32), np.array([0], np.uint64))
    jobs = Jobs((), np.zeros(0, np.bool_), none, none, (), zeros, zeros, none, zeros, np.zeros(1, np.int64), none)
    catalog = WarehouseCatalog(
        Warehouse(regions, tables, jobs),
        Namespaces(),
        Partitions(
            np.zeros(count, np.int32),
            [name for name, _ in partitions],
            np.full(count, 10),
            [""] * count,
            np.array([created_s for _, created_s in partitions]),
        ),
        CopyAges(none, none, zeros),
    )
    return database.run(partial(import_catalog, catalog=catalog, choices=ImportChoices(keep_others=True), now_s=7.0))


def test_a_whole_copy_counts_only_of_the_partitions_that_were_copied(database_url: str) -> None:
    """A partition is exchanged for another one of its size and time: table and partitions look as before by every sum."""

    async def story(database: Database) -> None:
        await imported(database, ("p1", 1.0), ("p2", 2.0), ("p3", 3.0))
        await enqueue(database, WantedMigration(T, B))
        begun = await happens(database, await only(database), MigrationHappening.COPY_BEGAN, size_bytes=30)
        verifying = await happens(database, begun, MigrationHappening.COPIED)
        counts = await imported(database, ("p1", 1.0), ("q", 2.0), ("p3", 3.0))
        assert (counts.new_tables, counts.changed_tables) == (0, 1)
        switch = partial(migration_store.switch, token=1, now=8.0, old_copy_stays_until_s=9.0)
        failed = await database.run(partial(switch, migration=verifying))
        assert (failed.state, failed.reason, failed.failures) == (
            MigrationState.FAILED,
            "the catalog of t has changed since its copy began",
            0,
        )
        assert (await database.run(catalog_store.load_catalog)).table(T) == Table(T, 30, A)
        await copied(database, failed, (), 30, size_bytes=30)
        assert (await database.run(catalog_store.load_catalog)).table(T) == Table(T, 30, A, (B,))

    scenario(database_url, story)


def test_a_copy_is_behind_when_a_partition_comes_late(database_url: str) -> None:
    """What was created before the newest partition of a complete copy, and is not in it, is missing there."""

    async def story(database: Database) -> None:
        await imported(database, ("p1", 1.0), ("p2", 2.0), ("p3", 3.0))
        await enqueue(database, WantedMigration(T, B))
        await copied(database, await only(database), (), 30, size_bytes=30)
        revision = await database.run(catalog_store.catalog_revision)
        await imported(database, ("p1", 1.0), ("late", 2.0), ("p3", 3.0))
        table = (await database.run(catalog_store.load_catalog)).table(T)
        assert table == Table(T, 30, A, (B,), ((B, 2.0),))
        assert await database.run(catalog_store.catalog_revision) > revision
        # The same again changes nothing.
        assert (await imported(database, ("p1", 1.0), ("late", 2.0), ("p3", 3.0))).changed_tables == 0

    scenario(database_url, story)


def test_what_is_wanted_beside_a_copy_that_has_begun_follows_it(database_url: str) -> None:
    """A plan wants all of a table of which a workload's two partitions are on the way."""

    async def story(database: Database) -> None:
        await partition(database, T, p1=1.0, p2=2.0, p3=3.0, p4=4.0)
        await enqueue(database, WantedMigration(T, B, newest_partitions=2, on_demand=True, deadline_s=9.0))
        begun = await happens(
            database, await only(database), MigrationHappening.COPY_BEGAN, partitions=("p4", "p3"), size_bytes=40
        )
        await enqueue(database, WantedMigration(T, B, newest_partitions=3))
        await enqueue(database, WantedMigration(T, B, plan=1))
        verifying = await happens(database, begun, MigrationHappening.COPIED)
        switched = await database.run(
            partial(migration_store.switch, migration=verifying, token=1, now=8.0, old_copy_stays_until_s=9.0)
        )
        assert switched.ended
        assert (await database.run(catalog_store.load_catalog)).table(T) == Table(T, 40, A, newest_held=((B, 2),))
        rest = await only(database)
        assert (rest.state, rest.target, rest.newest_partitions) == (MigrationState.PLANNED, B, None)
        assert (rest.on_demand, rest.deadline_s) == (False, 9.0)
        await copied(database, rest, (), 20)
        assert (await database.run(catalog_store.load_catalog)).table(T) == Table(T, 40, A, (B,))
        assert await database.run(migration_store.load_active) == []

    scenario(database_url, story)
