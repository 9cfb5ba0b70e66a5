"""A warehouse comes into the catalog as a whole or not at all, and out again as it is."""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from data_placement.warehouse_generator import generate_warehouse
from domain.fleet import Fleet, Region
from domain.identifiers import RegionId, TableId
from domain.table import Table
from domain.warehouse import CopyAges, Namespaces, Partitions, Warehouse, WarehouseCatalog
from formats.problems import FormatError
from formats.warehouse_catalog import read_catalog_folder, write_catalog_folder
from formats.warehouse_folder import read_warehouse
from services.database import catalog_store, fleet_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.warehouse_export import write_csv_files
from services.database.warehouse_import import ImportChoices, ImportCounts, import_catalog

_DAY_S = 86_400.0
_AS_USUAL = ImportChoices()


def catalog_of(warehouse: Warehouse) -> WarehouseCatalog:
    """With partitions of the first table, and one copy that is behind."""
    sizes = warehouse.tables.size_bytes
    partitions = Partitions(
        np.array([0, 0], np.int32),
        ["monday", "tuesday"],
        np.array([sizes[0] // 2, sizes[0] - sizes[0] // 2]),
        ["", "sha256:12"],
        np.array([100.0, 200.0]),
    )
    replicas = warehouse.tables.replicas.copy()
    elsewhere = 1 if warehouse.tables.home[0] == 0 else 0
    replicas[0] = 1 << elsewhere
    tables = replace(warehouse.tables, replicas=replicas)
    ages = CopyAges(np.array([0], np.int32), np.array([elsewhere], np.int32), np.array([150.0]))
    return WarehouseCatalog(
        replace(warehouse, tables=tables), Namespaces(("team000",), ("ads",), (2,)), partitions, ages
    )


def small(tables: int = 60, seed: int = 3) -> WarehouseCatalog:
    return catalog_of(generate_warehouse(tables, 3, np.random.default_rng(seed)))


def fleet_of(catalog: WarehouseCatalog) -> Fleet:
    return Fleet(tuple(Region(RegionId(name), ()) for name in catalog.warehouse.regions.names))


async def _import(database: Database, catalog: WarehouseCatalog, choices: ImportChoices = _AS_USUAL) -> ImportCounts:
    return await database.run(partial(import_catalog, catalog=catalog, choices=choices, now_s=5.0))


async def _read(database: Database, folder: Path) -> None:
    await asyncio.to_thread(folder.mkdir)

    async def write(connection: AnyConnection) -> None:
        await write_csv_files(connection, folder, 9 * _DAY_S, 7)

    await database.run(write, snapshot=True)


def same(a: WarehouseCatalog, b: WarehouseCatalog) -> None:
    """Both say the same, whatever the order of their rows."""
    assert a.warehouse.regions.names == b.warehouse.regions.names
    np.testing.assert_allclose(a.warehouse.regions.gpu_hours, b.warehouse.regions.gpu_hours)
    for one, other in ((a, b), (b, a)):
        tables, others = one.warehouse.tables, other.warehouse.tables
        place = {name: number for number, name in enumerate(others.names)}
        order = [place[name] for name in tables.names]
        assert (tables.size_bytes == others.size_bytes[order]).all()
        assert (tables.home == others.home[order]).all()
        assert (tables.replicas == others.replicas[order]).all()
    assert _reads(a.warehouse) == _reads(b.warehouse)
    assert a.namespaces == b.namespaces
    assert _partitions(a) == _partitions(b)
    assert _ages(a) == _ages(b)


def _reads(warehouse: Warehouse) -> dict[str, tuple[object, ...]]:
    jobs = warehouse.jobs
    return {
        jobs.names[job]: (
            bool(jobs.training[job]),
            int(jobs.gpu_model[job]),
            jobs.priorities[jobs.priority[job]],
            float(jobs.gpu_hours[job]),
            float(jobs.cpu_hours[job]),
            int(jobs.application[job]),
            frozenset(
                warehouse.tables.names[table]
                for table in jobs.tables[jobs.table_start[job] : jobs.table_start[job + 1]].tolist()
            ),
        )
        for job in range(jobs.count)
    }


def _partitions(catalog: WarehouseCatalog) -> set[tuple[object, ...]]:
    parts, names = catalog.partitions, catalog.warehouse.tables.names
    return {
        (names[int(parts.table[n])], parts.names[n], int(parts.size_bytes[n]), parts.checksums[n], parts.created_s[n])
        for n in range(parts.count)
    }


def _ages(catalog: WarehouseCatalog) -> set[tuple[object, ...]]:
    ages, names = catalog.copy_ages, catalog.warehouse.tables.names
    return {
        (names[int(ages.table[n])], int(ages.region[n]), float(ages.complete_until_s[n]))
        for n in range(len(ages.table))
    }


def test_what_is_imported_comes_out_again(database_url: str, tmp_path: Path) -> None:
    catalog = small()

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=fleet_of(catalog)))
            counts = await _import(database, catalog)
            assert (counts.tables, counts.new_tables, counts.changed_tables, counts.revision) == (60, 60, 0, 1)
            await _read(database, tmp_path / "out")
            known = await database.run(catalog_store.load_catalog, snapshot=True)
            first = TableId(catalog.warehouse.tables.names[0])
            assert len(known) == 60
            table = known.table(first)
            assert table is not None
            assert [lag for _, lag in table.lags_s] == [50.0]
            again = await _import(database, catalog)
            assert (again.new_tables, again.changed_tables, again.dropped_tables, again.revision) == (0, 0, 0, 1)

    asyncio.run(scenario())
    same(read_catalog_folder(tmp_path / "out"), catalog)


def test_the_files_of_a_catalog_come_back_as_they_were_written(tmp_path: Path) -> None:
    catalog = small()
    write_catalog_folder(tmp_path, catalog)
    same(read_catalog_folder(tmp_path), catalog)


def test_known_tables_stay_where_they_are_unless_the_files_may_say_so(database_url: str) -> None:
    catalog = small()
    tables = catalog.warehouse.tables
    moved = replace(catalog, warehouse=replace(catalog.warehouse, tables=replace(tables, home=(tables.home + 1) % 3)))

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=fleet_of(catalog)))
            await _import(database, catalog)
            before = list(await database.run(catalog_store.load_catalog, snapshot=True))
            counts = await _import(database, moved)
            assert (counts.changed_tables, counts.revision) == (0, 1)
            assert counts.remarks[0].startswith("60 tables are elsewhere by the catalog")
            assert list(await database.run(catalog_store.load_catalog, snapshot=True)) == before
            counts = await _import(database, moved, ImportChoices(take_places=True))
            assert (counts.changed_tables, counts.revision) == (60, 2)
            after = list(await database.run(catalog_store.load_catalog, snapshot=True))
            names = moved.warehouse.regions.names
            home = {table.table: table.home for table in after}
            assert home == {
                name: names[place]
                for name, place in zip(tables.names, moved.warehouse.tables.home.tolist(), strict=True)
            }

    asyncio.run(scenario())


def test_no_file_calls_what_is_being_deleted_a_copy(database_url: str) -> None:
    catalog = small()
    name, home = catalog.warehouse.tables.names[5], int(catalog.warehouse.tables.home[5])
    names = catalog.warehouse.regions.names

    async def delete_old_home(connection: AnyConnection) -> None:
        target = names[(home + 1) % 3]
        await connection.execute("UPDATE data_tables SET home = %s WHERE data_table = %s", (target, name))
        await connection.execute(
            """INSERT INTO data_migrations (data_table, source, target, moves_home, size_bytes, state, planned_s)
               VALUES (%s, %s, %s, true, 1, 'deleting', 0)""",
            (name, names[home], target),
        )

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=fleet_of(catalog)))
            await _import(database, catalog)
            await database.run(delete_old_home)
            with pytest.raises(FormatError, match=f"is deleting what is in {names[home]} of table '{name}'"):
                await _import(database, catalog, ImportChoices(take_places=True))
            await _import(database, catalog)

    asyncio.run(scenario())


def test_tables_that_the_files_lack_go_unless_they_may_stay(database_url: str) -> None:
    catalog = small()
    without_partitions = Partitions(np.zeros(0, np.int32), [], np.zeros(0, np.int64), [], np.zeros(0))
    fewer = replace(small(20), partitions=without_partitions)
    of_fleet = Table(TableId("own"), 1, RegionId("region00"))

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=fleet_of(catalog)))
            await database.run(partial(catalog_store.apply_tables, tables=[of_fleet]))
            await _import(database, catalog)
            known = await database.run(catalog_store.load_catalog, snapshot=True)
            assert len(known) == 61
            both = set(catalog.warehouse.tables.names) | set(fewer.warehouse.tables.names)
            counts = await _import(database, fewer, ImportChoices(keep_others=True))
            assert counts.dropped_tables == 0
            await database.run(partial(catalog_store.update_catalog, catalog=known), snapshot=True)
            assert set(known.names) == both | {"own"}
            counts = await _import(database, fewer)
            assert counts.dropped_tables == len(both) - 20
            await database.run(partial(catalog_store.update_catalog, catalog=known), snapshot=True)
            assert set(known.names) == {*fewer.warehouse.tables.names, "own"}
            async with database.transaction() as connection:
                row = await (await connection.execute("SELECT count(*) FROM data_reads")).fetchone()
            assert row == (len(fewer.warehouse.jobs.tables),)

    asyncio.run(scenario())


def test_what_is_refused_changes_nothing(database_url: str) -> None:
    catalog = small()
    parts = catalog.partitions
    other = replace(catalog, partitions=replace(parts, size_bytes=parts.size_bytes[::-1] + np.array([1, -1])))

    async def scenario() -> None:
        async with Database(database_url) as database:
            with pytest.raises(FormatError, match="regions row 1, region: the fleet has no region 'region00'"):
                await _import(database, catalog)
            await database.run(partial(fleet_store.apply_fleet, fleet=fleet_of(catalog)))
            await _import(database, catalog)
            with pytest.raises(FormatError, match=r"partition 'monday' of table .* never change"):
                await _import(database, other)
            assert await database.run(catalog_store.catalog_revision) == 1

    asyncio.run(scenario())


def test_what_jobs_read_of_tables_comes_out_again(database_url: str, tmp_path: Path) -> None:
    catalog = small()
    jobs = catalog.warehouse.jobs
    shares = np.where(np.arange(len(jobs.tables)) % 3 == 0, 0.25, 1.0)
    catalog = replace(catalog, warehouse=replace(catalog.warehouse, jobs=replace(jobs, newest_share=shares)))

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=fleet_of(catalog)))
            await _import(database, catalog)
            await _read(database, tmp_path / "out")

    asyncio.run(scenario())
    write_catalog_folder(tmp_path / "written", catalog)
    for folder in ("out", "written"):
        assert _shares(read_warehouse(tmp_path / folder)) == _shares(catalog.warehouse)


def _shares(warehouse: Warehouse) -> dict[tuple[str, str], float]:
    jobs = warehouse.jobs
    assert jobs.newest_share is not None
    reader = np.repeat(np.arange(jobs.count), np.diff(jobs.table_start))
    return {
        (jobs.names[int(job)], warehouse.tables.names[int(table)]): float(share)
        for job, table, share in zip(reader, jobs.tables, jobs.newest_share, strict=True)
    }


def test_a_table_in_the_folder_of_another_is_refused(database_url: str) -> None:
    catalog = small()
    names = list(catalog.warehouse.tables.names)
    names[7] = f"{names[3]}/more"
    tables = replace(catalog.warehouse.tables, names=names)
    nested = replace(catalog, warehouse=replace(catalog.warehouse, tables=tables))

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=fleet_of(catalog)))
            with pytest.raises(FormatError, match=f"the folder of table {names[7]} would lie among the files of table"):
                await _import(database, nested)
            assert await database.run(catalog_store.catalog_revision) == 0

    asyncio.run(scenario())


def test_where_files_say_that_all_is_nothing_is_held_alone(database_url: str) -> None:
    catalog = small()
    name, names = catalog.warehouse.tables.names[0], catalog.warehouse.regions.names
    elsewhere = next(region for region in names if region not in _regions_of(catalog, 0))

    async def hold(connection: AnyConnection) -> None:
        await connection.execute("DELETE FROM data_table_replicas WHERE data_table = %s", (name,))
        for region in (elsewhere, *sorted(_regions_of(catalog, 0))):
            await connection.execute("INSERT INTO data_partition_copies VALUES (%s, %s, 'monday', 1.0)", (name, region))

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=fleet_of(catalog)))
            await _import(database, catalog)
            await database.run(hold)
            await _import(database, catalog, ImportChoices(take_places=True))
            async with database.transaction() as connection:
                rows = await (await connection.execute("SELECT region FROM data_partition_copies")).fetchall()
            assert rows == [(elsewhere,)]

    asyncio.run(scenario())


def _regions_of(catalog: WarehouseCatalog, table: int) -> set[str]:
    """Where it is by the files."""
    names, tables = catalog.warehouse.regions.names, catalog.warehouse.tables
    copies = {name for place, name in enumerate(names) if int(tables.replicas[table]) >> place & 1}
    return {names[int(tables.home[table])]} | copies


def test_regions_that_store_too_much_are_said(database_url: str) -> None:
    catalog = small()
    regions = replace(
        catalog.warehouse.regions, storage_bytes=np.full(3, float(catalog.warehouse.tables.size_bytes.max()))
    )
    full = replace(catalog, warehouse=replace(catalog.warehouse, regions=regions))

    async def scenario() -> ImportCounts:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=fleet_of(catalog)))
            return await _import(database, full)

    assert "region region" in asyncio.run(scenario()).remarks[0]


_TABLE, _OTHER = "team000.a", "team000.b"


def _folder(folder: Path, **files: str) -> Path:
    texts = {
        "regions": "region,storage_bytes\neast,1000\nwest,500\n",
        "supply": "region,gpu_model,gpu_hours\neast,A100,24\n",
        "tables": f"table,size_bytes,home,replicas\n{_TABLE},30,east,west\n{_OTHER},20,west,\n",
        "jobs": "job,gpu_model\ntrain,A100\n",
        "reads": f"job,table\ntrain,{_TABLE}\n",
    } | files
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (
            {"tables": f"table,size_bytes,home\n{_TABLE},-5,east\n"},
            "tables.csv row 1, size_bytes: must be 0 or greater",
        ),
        ({"tables": f"table,size_bytes,home\n{_TABLE},nan,east\n"}, "tables.csv row 1, size_bytes: must be 0"),
        (
            {"tables": f"table,size_bytes,home\n{_TABLE},3,north\n"},
            "tables.csv row 1, home: there is no region 'north'",
        ),
        (
            {"tables": f"table,size_bytes,home\n{_TABLE},2000,east\n"},
            "tables row 1, size_bytes: is 2000, and the largest",
        ),
        ({"reads": "job,table\ntrain,nothing\n"}, "reads.csv row 1, table: there is no table 'nothing'"),
        (
            {"partitions": f"table,partition,size_bytes\n{_TABLE},p,10\n{_TABLE},p,20\n"},
            "partitions.csv row 2, partition: this partition of its table is there twice",
        ),
        (
            {"partitions": f"table,partition,size_bytes\n{_TABLE},p,-10\n"},
            "partitions.csv row 1, size_bytes: must be 0 or greater",
        ),
        (
            {"partitions": f"table,partition,size_bytes\n{_TABLE},p,10\n"},
            "tables row 1, size_bytes: is 30, but the partitions have 10 bytes together",
        ),
        (
            {"partitions": f"table,partition,size_bytes\n{_TABLE},../p,30\n"},
            "partitions.csv row 1, partition: is '../p'; it is named as a file",
        ),
        (
            {"partitions": f"table,partition,size_bytes\n{_TABLE},.topmast-mark-1-p,30\n"},
            "partitions.csv row 1, partition: is '.topmast-mark-1-p'; it is named as a file",
        ),
        (
            {"tables": "table,size_bytes,home\nads/../../x,3,east\n", "reads": "job,table\n"},
            "tables row 1, table: is 'ads/../../x'; a name has",
        ),
        ({"partitions": "table,partition,size_bytes\nnothing,p,0\n"}, "partitions.csv row 1, table: there is no table"),
        (
            {"copies": f"table,region,complete_until_s\n{_OTHER},east,5\n"},
            f"copies.csv row 1, region: table '{_OTHER}' has no copy in east",
        ),
        ({"namespaces": "namespace\na.b\n"}, "namespaces.csv row 1, namespace: is 'a.b'; a namespace is what"),
        (
            {"namespaces": "namespace,disaster_copies\na,11\n"},
            "namespaces.csv row 1, disaster_copies: must be 0 or greater and at most 10",
        ),
        ({"regions": "region,storage_bytes\neast,1e19\nwest,500\n"}, "regions row 1, storage_bytes: must be at most"),
    ],
)
def test_a_bad_folder_is_refused_with_file_row_and_field(tmp_path: Path, files: dict[str, str], problem: str) -> None:
    with pytest.raises(FormatError) as refused:
        read_catalog_folder(_folder(tmp_path, **files))
    assert problem in str(refused.value)


def test_observed_use_counts_instead_of_what_was_declared(database_url: str, tmp_path: Path) -> None:
    catalog = read_catalog_folder(_folder(tmp_path))
    observed = (
        """INSERT INTO data_readers (name, training, fingerprint, gpu_model, priority)
           VALUES ('again', true, 'f', 'H100', 2), ('once', true, 'g', 'A100', 2)""",
        "INSERT INTO data_reads SELECT number, reader FROM data_tables, data_readers WHERE name IN ('again', 'once')",
        """INSERT INTO data_reader_days SELECT reader, day, 1, 10, 0 FROM data_readers, (VALUES (5), (8)) d (day)
            WHERE name = 'again'""",
        "INSERT INTO data_reader_days SELECT reader, 1, 1, 10, 0 FROM data_readers WHERE name = 'once'",
    )

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=fleet_of(catalog)))
            await _import(database, catalog)
            async with database.transaction() as connection:
                for statement in observed:
                    await connection.execute(statement)
            await _read(database, tmp_path / "out")

    asyncio.run(scenario())
    warehouse = read_warehouse(tmp_path / "out")
    assert list(warehouse.jobs.names) == ["again", "train"]
    # Within seven days before day 9: 20 hours.
    assert warehouse.jobs.gpu_hours.tolist() == [pytest.approx(20 / 7), 0.0]
    assert warehouse.regions.gpu_models == ("A100", "H100")
    assert warehouse.regions.gpu_hours[1].tolist() == [0.0, 0.0]
