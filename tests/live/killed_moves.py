"""Tables move between folders while whoever moves them is killed with kill -9, again and again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from domain.fleet import Fleet, Region
from domain.identifiers import RegionId, TableId
from domain.table import Table
from services.data_placement import migration_store
from services.data_placement.migration_store import WantedMigration
from services.data_placement.movers.region_folders import OWN_PREFIX
from services.database import catalog_store, fleet_store
from services.database.channels import DATA_CHANNEL
from services.database.connection import AnyConnection
from services.database.engine import Database
from tests.live.world import A100, gpu_cluster

REGIONS = tuple(map(RegionId, "abc"))
FLEET = Fleet(tuple(Region(region, (gpu_cluster(f"{region}-gpus", A100, 1),)) for region in REGIONS))
_FILES, _FILE_BYTES = 4, 400_000
SIZE = _FILES * _FILE_BYTES
_BYTES_PER_DAY = 3e6 * 86_400.0
"""A table takes about half a second."""
_PATIENCE_REAL_S = 120.0

Contents = dict[str, dict[str, bytes]]
"""By table and file."""


def make_tables(folder: Path, count: int, generator: np.random.Generator) -> Contents:
    """So many tables of random files, all in region a."""
    contents: Contents = {}
    for number in range(count):
        name = f"logs.t{number}"
        contents[name] = {f"part-{each}": generator.bytes(_FILE_BYTES) for each in range(_FILES)}
        (folder / "a" / name).mkdir(parents=True)
        for file, content in contents[name].items():
            (folder / "a" / name / file).write_bytes(content)
    return contents


async def prepare(database_url: str, contents: Contents) -> None:
    """The fleet, the catalog, slow links, and a move of every table: home, and one copy more of every other one."""

    async def declare(connection: AnyConnection) -> None:
        await fleet_store.apply_fleet(connection, FLEET)
        await catalog_store.apply_tables(connection, [Table(TableId(name), SIZE, REGIONS[0]) for name in contents])
        for source in REGIONS:
            for target in REGIONS:
                await connection.execute("INSERT INTO data_links VALUES (%s, %s, %s)", (source, target, _BYTES_PER_DAY))
        # Room for what moves there, and for half a table more.
        room = int(SIZE * (len(contents) + 0.5))
        await connection.execute("INSERT INTO data_regions VALUES ('b', %s)", (room,))
        wanted = [WantedMigration(TableId(name), REGIONS[1], REGIONS[0]) for name in sorted(contents)]
        wanted += [WantedMigration(TableId(name), REGIONS[2]) for name in sorted(contents)[::2]]
        done = await migration_store.enqueue(connection, wanted, 0.0)
        assert len(done.numbers) == len(wanted)

    async with Database(database_url) as database:
        await database.run(declare)


@contextmanager
def mover(database_url: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process that carries migrations out; killed at the end, with those that it started."""
    arguments = [sys.executable, "-m", "tests.live.migration_process", database_url, str(folder)]
    with subprocess.Popen(arguments, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def files_in(folder: Path, region: str, table: str) -> dict[str, bytes]:
    there = folder / region / table
    paths = [path for path in there.iterdir() if not path.name.startswith(OWN_PREFIX)] if there.exists() else []
    return {path.name: path.read_bytes() for path in paths}


async def look(database_url: str) -> tuple[int, dict[TableId, Table]]:
    """How many migrations have not ended, and the catalog."""
    async with Database(database_url) as database:
        active = await database.run(migration_store.load_active)
        catalog = await database.run(catalog_store.load_catalog)
        return len(active), {table.table: table for table in catalog}


def check_copies(database_url: str, folder: Path, contents: Contents) -> int:
    """Wherever the catalog says that a table is, it is whole; how many migrations have not ended."""
    # The catalog first: what it says of an old home may be deleted while it is looked at, so it is asked again then.
    active, tables = asyncio.run(look(database_url))
    for name, files in contents.items():
        table = tables[TableId(name)]
        for region in table.regions:
            if files_in(folder, region, name) != files:
                _, again = asyncio.run(look(database_url))
                assert region not in again[TableId(name)].regions, f"{region} has no complete {name}"
    return active


def move_under_fire(database_url: str, folder: Path, tables: int, kills: int, generator: np.random.Generator) -> None:
    """Kills whoever moves the tables so many times, then lets it finish; checks all the time."""
    contents = make_tables(folder, tables, generator)
    asyncio.run(prepare(database_url, contents))
    for _ in range(kills):
        with mover(database_url, folder) as process:
            _wait_for_change(database_url, folder, process, float(generator.uniform(0.0, 1.0)))
            process.kill()
            process.wait()
        check_copies(database_url, folder, contents)
    with mover(database_url, folder):
        asyncio.run(_until_done(database_url))
    assert check_copies(database_url, folder, contents) == 0
    _, catalog = asyncio.run(look(database_url))
    for number, name in enumerate(sorted(contents)):
        copies = (REGIONS[2],) if number % 2 == 0 else ()
        assert catalog[TableId(name)] == Table(TableId(name), SIZE, REGIONS[1], copies)
        assert files_in(folder, "a", name) == {}


def _wait_for_change(database_url: str, folder: Path, process: subprocess.Popen[bytes], share: float) -> None:
    """Until the mover has written a random part of a table more than there was, or has ended."""
    before = _bytes_in(folder)
    wanted = before + int(share * SIZE)

    async def wait() -> None:
        async with asyncio.timeout(_PATIENCE_REAL_S), Database(database_url) as database:
            while process.poll() is None and _bytes_in(folder) < wanted:
                if not await database.run(migration_store.load_active):
                    return
                await asyncio.to_thread(os.sched_yield)

    asyncio.run(wait())


async def _until_done(database_url: str) -> None:
    async with (
        asyncio.timeout(_PATIENCE_REAL_S),
        Database(database_url) as database,
        database.listen(DATA_CHANNEL) as subscription,
    ):
        while await database.run(migration_store.load_active):
            await subscription.wait(0.5)


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in (folder / "b").rglob("*") if (folder / "b").exists() else ():
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue  # renamed meanwhile
    return total
