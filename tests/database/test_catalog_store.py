import asyncio
from functools import partial
from math import inf

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_placement.catalog import Catalog
from domain.identifiers import RegionId, TableId
from domain.table import Table
from services.database import catalog_store, fleet_store, large_results
from services.database.catalog_store import TablesRefused
from services.database.channels import CATALOG_CHANNEL
from services.database.engine import Database
from services.database.revision_store import load_revisions
from tests.database.small_world import EAST, FLEET, TABLES
from tests.examples import examples

COAST = RegionId("coast")
CLICKS, IMAGES = TABLES

_SOME_TABLES = st.dictionaries(
    st.sampled_from("abcde"),
    st.tuples(st.integers(0, 2), st.sampled_from((EAST, COAST)), st.lists(st.sampled_from((EAST, COAST)), max_size=2)),
).map(
    lambda drawn: [Table(TableId(name), size, home, tuple(more)) for name, (size, home, more) in sorted(drawn.items())]
)


def _stored(tables: list[Table]) -> list[Table]:
    """Replicas come back sorted, each once."""
    return [Table(t.table, t.size_bytes, t.home, tuple(sorted(set(t.replicas)))) for t in tables]


def test_tables_come_back_as_they_were_applied_and_the_same_ones_wake_nobody(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            assert len(await database.run(catalog_store.load_catalog)) == 0
            assert await database.run(partial(catalog_store.apply_tables, tables=TABLES)) == 1
            catalog = await database.run(catalog_store.load_catalog)
            assert (tuple(catalog), catalog.revision) == (TABLES, 1)
            async with database.listen(CATALOG_CHANNEL) as subscription:
                await subscription.wait()
                assert await database.run(partial(catalog_store.apply_tables, tables=reversed(TABLES))) == 1
                assert await database.run(partial(catalog_store.apply_tables, tables=TABLES[:1])) == 2
                assert await subscription.wait(60.0)

    asyncio.run(scenario())


def test_tables_are_no_part_of_the_fleet(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=FLEET))
            await database.run(partial(catalog_store.apply_tables, tables=TABLES))
            assert (await database.run(load_revisions)).fleet == 1
            await database.run(partial(fleet_store.apply_fleet, fleet=FLEET))
            assert tuple(await database.run(catalog_store.load_catalog)) == TABLES

    asyncio.run(scenario())


def test_a_catalog_learns_what_is_new_what_moved_and_what_is_gone(database_url: str) -> None:
    moved = Table(CLICKS.table, CLICKS.size_bytes, COAST)
    new = Table(TableId("new"), 2, EAST)

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(catalog_store.apply_tables, tables=TABLES))
            catalog = await database.run(catalog_store.load_catalog, snapshot=True)
            early = await database.run(catalog_store.load_catalog, snapshot=True)
            await database.run(partial(catalog_store.apply_tables, tables=[moved, new]))
            await database.run(partial(catalog_store.update_catalog, catalog=catalog), snapshot=True)
            assert (list(catalog), catalog.revision) == ([moved, new], 2)
            # One that comes back is not gone any more.
            await database.run(partial(catalog_store.apply_tables, tables=[moved, IMAGES]))
            for known in (catalog, early):
                await database.run(partial(catalog_store.update_catalog, catalog=known), snapshot=True)
                assert (list(known), known.revision) == ([moved, IMAGES], 3)

    asyncio.run(scenario())


def test_a_fleet_file_leaves_alone_what_does_not_come_from_one(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(catalog_store.apply_tables, tables=TABLES))
            elsewhere = "UPDATE data_tables SET from_fleet = false, home = 'coast' WHERE data_table = %s"
            async with database.transaction() as connection:
                await connection.execute(elsewhere, (CLICKS.table,))
            assert await database.run(partial(catalog_store.apply_tables, tables=TABLES)) == 1
            assert await database.run(partial(catalog_store.apply_tables, tables=())) == 2
            catalog = await database.run(catalog_store.load_catalog, snapshot=True)
            assert list(catalog) == [Table(CLICKS.table, CLICKS.size_bytes, COAST, CLICKS.replicas)]

    asyncio.run(scenario())


def test_a_catalog_knows_how_far_copies_are_behind(database_url: str) -> None:
    partitions = (
        "UPDATE data_tables SET last_partition_s = 100, revision = 2",
        "INSERT INTO data_table_replicas VALUES (%(table)s, 'north', 40), (%(table)s, 'south', 100), (%(table)s, 'west', NULL)",
        "UPDATE revisions SET revision = 2 WHERE subject = 'catalog'",
    )

    async def scenario() -> Table | None:
        async with Database(database_url) as database:
            await database.run(partial(catalog_store.apply_tables, tables=[Table(CLICKS.table, 5, EAST)]))
            async with database.transaction() as connection:
                for statement in partitions:
                    await connection.execute(statement, {"table": CLICKS.table})
            return (await database.run(catalog_store.load_catalog, snapshot=True)).table(CLICKS.table)

    table = asyncio.run(scenario())
    assert table is not None
    assert table.lags_s == (("north", 60.0), ("west", inf))
    assert table.regions_within(59.0) == (EAST, "south")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(15))
@given(steps=st.lists(_SOME_TABLES, min_size=1, max_size=5), seen=st.sets(st.integers(0, 4)))
def test_never_differs_whether_a_catalog_was_changed_in_place_or_loaded(
    database_url: str, steps: list[list[Table]], seen: set[int]
) -> None:
    """Whichever revisions were read on the way."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            catalog = await database.run(catalog_store.load_catalog, snapshot=True)
            for number, tables in enumerate(steps):
                await database.run(partial(catalog_store.apply_tables, tables=tables))
                if number in seen or number == len(steps) - 1:
                    await database.run(partial(catalog_store.update_catalog, catalog=catalog), snapshot=True)
                    assert list(catalog) == _stored(tables)
            loaded = await database.run(catalog_store.load_catalog, snapshot=True)
            assert (list(loaded), loaded.revision) == (list(catalog), catalog.revision)

    asyncio.run(scenario())


def test_a_large_catalog_is_read_in_parts(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_results, "ROWS_AT_ONCE", 3)
    tables = [Table(TableId(f"t{number}"), number, EAST) for number in range(10)]

    async def scenario() -> Catalog:
        async with Database(database_url) as database:
            await database.run(partial(catalog_store.apply_tables, tables=tables))
            return await database.run(catalog_store.load_catalog)

    assert list(asyncio.run(scenario())) == tables


def test_no_fleet_file_calls_what_is_being_deleted_a_copy(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(catalog_store.apply_tables, tables=TABLES))
            await database.run(partial(catalog_store.apply_tables, tables=[IMAGES]))
            async with database.transaction() as connection:
                await connection.execute(
                    """INSERT INTO data_migrations (data_table, source, target, moves_home, size_bytes, state, planned_s)
                       VALUES (%s, %s, %s, true, 1, 'deleting', 0)""",
                    (CLICKS.table, CLICKS.home, COAST),
                )
            with pytest.raises(TablesRefused, match=f"is deleting what is in {CLICKS.home} of table {CLICKS.table}"):
                await database.run(partial(catalog_store.apply_tables, tables=TABLES))
            elsewhere = Table(CLICKS.table, CLICKS.size_bytes, COAST)
            await database.run(partial(catalog_store.apply_tables, tables=[elsewhere, IMAGES]))

    asyncio.run(scenario())


def test_no_table_has_its_folder_among_the_files_of_another(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            apart = [Table(TableId(name), 1, EAST) for name in ("a/b", "a/bc", "a-b", "ab", "a.b/c")]
            await database.run(partial(catalog_store.apply_tables, tables=apart))
            for name in ("a", "a/b/c/d"):
                with pytest.raises(TablesRefused, match="would lie among the files of table a"):
                    await database.run(
                        partial(catalog_store.apply_tables, tables=[*apart, Table(TableId(name), 1, EAST)])
                    )
            assert set((await database.run(catalog_store.load_catalog)).names) == {each.table for each in apart}

    asyncio.run(scenario())
