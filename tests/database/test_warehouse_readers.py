"""An import is all that declared readers read; what is the same already is not written again."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any, LiteralString

import numpy as np
import pytest

from data_placement.warehouse_generator import generate_warehouse
from domain.fleet import Fleet, Region
from domain.identifiers import RegionId
from domain.warehouse import CopyAges, Jobs, Namespaces, Partitions, Tables, WarehouseCatalog
from services.database import fleet_store
from services.database.copy_format import copied_rows, sent_rows
from services.database.engine import Database
from services.database.warehouse_import import ImportChoices, import_catalog

_REGIONS = 3
_AS_USUAL = ImportChoices()
_NO_PARTITIONS = Partitions(np.zeros(0, np.int32), [], np.zeros(0, np.int64), [], np.zeros(0))
_NO_AGES = CopyAges(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0))


def catalog_of(seed: int) -> WarehouseCatalog:
    """Of one warehouse: some of its tables and readers, which read some of the tables, some of them partly."""
    rng = np.random.default_rng(seed)
    warehouse = generate_warehouse(40, _REGIONS, np.random.default_rng(1))
    jobs = warehouse.jobs
    tables = np.flatnonzero(rng.random(40) < 0.8)
    chosen = np.flatnonzero(rng.random(jobs.count) < 0.8)
    reads = [
        np.flatnonzero(np.isin(tables, jobs.tables[jobs.table_start[job] : jobs.table_start[job + 1]]))
        for job in chosen
    ]
    reads = [each[rng.random(len(each)) < 0.8].astype(np.int32) for each in reads]
    count = sum(map(len, reads))
    some = Jobs(
        names=[jobs.names[job] for job in chosen.tolist()],
        training=jobs.training[chosen],
        gpu_model=jobs.gpu_model[chosen],
        priority=jobs.priority[chosen],
        priorities=jobs.priorities,
        gpu_hours=np.where(rng.random(len(chosen)) < 0.9, jobs.gpu_hours[chosen], 7.0),
        cpu_hours=jobs.cpu_hours[chosen],
        application=jobs.application[chosen],
        weight=jobs.weight[chosen],
        table_start=np.cumsum([0, *map(len, reads)]),
        tables=np.concatenate(reads) if count else np.zeros(0, np.int32),
        newest_share=rng.choice([1.0, 0.5], count, p=[0.9, 0.1]),
    )
    return WarehouseCatalog(
        replace(warehouse, tables=_some(warehouse.tables, tables), jobs=some), Namespaces(), _NO_PARTITIONS, _NO_AGES
    )


def _some(tables: Tables, places: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Tables:
    names = [tables.names[place] for place in places.tolist()]
    return Tables(names, tables.size_bytes[places], tables.home[places], tables.replicas[places])


def said(catalog: WarehouseCatalog) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
    """The GPU hours of each reader, and which part of which table it reads."""
    tables, jobs = catalog.warehouse.tables, catalog.warehouse.jobs
    reader = np.repeat(np.arange(jobs.count), np.diff(jobs.table_start)).tolist()
    shares = [] if jobs.newest_share is None else jobs.newest_share.tolist()
    reads = zip(jobs.tables.tolist(), reader, shares, strict=True)
    return (
        dict(zip(jobs.names, jobs.gpu_hours.tolist(), strict=True)),
        {(tables.names[table], jobs.names[each]): share for table, each, share in reads},
    )


async def _import(database: Database, catalog: WarehouseCatalog, choices: ImportChoices = _AS_USUAL) -> None:
    await database.run(partial(import_catalog, catalog=catalog, choices=choices, now_s=5.0))


async def _rows(database: Database, query: LiteralString) -> list[tuple[Any, ...]]:
    async with database.transaction() as connection:
        return await (await connection.execute(query)).fetchall()


_READERS = "SELECT name, gpu_hours FROM data_readers"
_READS = """
    SELECT t.data_table, d.name, r.newest_share
      FROM data_reads r LEFT JOIN data_readers d USING (reader) LEFT JOIN data_tables t ON t.number = r.table_number"""
_PLACES = """
    SELECT 'reads', ctid::text, table_number, reader FROM data_reads
    UNION ALL SELECT 'readers', ctid::text, 0, reader FROM data_readers ORDER BY 1, 2"""


async def _stored(database: Database) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
    reads = await _rows(database, _READS)
    return dict(await _rows(database, _READERS)), {(table, name): share for table, name, share in reads}


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(tuple(Region(RegionId(name), ()) for name in catalog_of(1).warehouse.regions.names))


def test_after_an_import_readers_read_what_it_says_whatever_they_read_before(database_url: str, fleet: Fleet) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=fleet))
            for seed in range(8):
                await _import(database, catalog_of(seed))
                assert await _stored(database) == said(catalog_of(seed))

    asyncio.run(scenario())


def test_what_is_the_same_already_is_not_written_again(database_url: str, fleet: Fleet) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=fleet))
            await _import(database, catalog_of(2))
            before = await _rows(database, _PLACES)
            await _import(database, catalog_of(2))
            assert await _rows(database, _PLACES) == before
            assert len(before) > 50

    asyncio.run(scenario())


def test_readers_that_the_files_lack_stay_where_others_are_kept(database_url: str, fleet: Fleet) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=fleet))
            await _import(database, catalog_of(3))
            await _import(database, catalog_of(4), ImportChoices(keep_others=True))
            (old, old_reads), (new, new_reads) = said(catalog_of(3)), said(catalog_of(4))
            kept = {(table, name): share for (table, name), share in old_reads.items() if name not in new}
            assert await _stored(database) == ({**old, **new}, {**kept, **new_reads})
            assert old.keys() - new.keys()

    asyncio.run(scenario())


def test_what_a_workload_was_seen_to_read_stays(database_url: str, fleet: Fleet) -> None:
    """The files add to it, and change nothing of the reader itself."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=fleet))
            await _import(database, catalog_of(5))
            (readers, reads), (others, other_reads) = said(catalog_of(5)), said(catalog_of(6))
            seen = next(name for table, name in sorted(reads) if name in others and (table, name) not in other_reads)
            async with database.transaction() as connection:
                await connection.execute("UPDATE data_readers SET fingerprint = 'f' WHERE name = %s", (seen,))
            await _import(database, catalog_of(6))
            there, there_reads = await _stored(database)
            assert there == {**others, seen: readers[seen]}
            tables = set(catalog_of(6).warehouse.tables.names)
            own = {pair: share for pair, share in reads.items() if pair[1] == seen and pair[0] in tables}
            assert there_reads == {**other_reads, **own}

    asyncio.run(scenario())


def test_numbers_are_sent_as_the_server_reads_and_writes_them(database_url: str) -> None:
    """A hundred thousand rows and more, so that they are sent in parts."""
    count = 250_001
    numbers, shares = np.arange(count) - 5, np.linspace(-1.0, 1.0, count)

    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            async with (
                connection.cursor() as cursor,
                cursor.copy("COPY data_reads (table_number, reader, newest_share) FROM STDIN (FORMAT binary)") as copy,
            ):
                for rows in copied_rows((numbers, -numbers, shares)):
                    await copy.write(rows)
            async with connection.cursor(binary=True) as binary:
                await binary.execute(
                    """SELECT string_agg(int8send(table_number) || float8send(newest_share) || boolsend(reader > 0),
                                         ''::bytea ORDER BY table_number) FROM data_reads"""
                )
                sent = sent_rows(await binary.fetchall(), {"number": "i8", "share": "f8", "is_negative": "?"})
            assert (sent["number"] == numbers).all()
            assert (sent["share"] == shares).all()
            assert (sent["is_negative"] == (numbers < 0)).all()

    asyncio.run(scenario())
