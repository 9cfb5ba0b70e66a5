"""Tables move between folders while whoever moves them is killed with kill -9, again and again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil

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
from services.database.lease_store import GLOBAL_LEASE
from tests.live.world import A100, gpu_cluster

REGIONS = tuple(map(RegionId, "abc"))
FLEET = Fleet(tuple(Region(region, (gpu_cluster(f"{region}-gpus", A100, 1),)) for region in REGIONS))
_FILES, _FILE_BYTES = 4, 400_000
SIZE = _FILES * _FILE_BYTES
_BYTES_PER_S = 3e6
"""A table takes about half a second."""
_PATIENCE_REAL_S = 240.0

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


async def prepare(database_url: str, contents: Contents, bytes_per_s: float = _BYTES_PER_S) -> None:
    """The fleet, the catalog, slow links, and a move of every table: home, and one copy more of every other one."""

    async def declare(connection: AnyConnection) -> None:
        await fleet_store.apply_fleet(connection, FLEET)
        await catalog_store.apply_tables(connection, [Table(TableId(name), SIZE, REGIONS[0]) for name in contents])
        for source in REGIONS:
            for target in REGIONS:
                bytes_per_day = bytes_per_s * 86_400.0
                await connection.execute("INSERT INTO data_links VALUES (%s, %s, %s)", (source, target, bytes_per_day))
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


def led_by(database_url: str) -> int:
    """The process that holds the lease, or held it last; 0: none has yet."""

    async def ask(connection: AnyConnection) -> int:
        cursor = await connection.execute("SELECT process_id FROM leases WHERE name = %s", (GLOBAL_LEASE,))
        row = await cursor.fetchone()
        return 0 if row is None else int(row[0])

    async def run() -> int:
        async with Database(database_url) as database:
            return await database.run(ask)

    return asyncio.run(run())


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
        asyncio.run(until_done(database_url))
    check_all_moved(database_url, folder, contents)


def check_all_moved(database_url: str, folder: Path, contents: Contents) -> None:
    """Every table is where `prepare` wanted it, whole, and nothing is left of how it got there."""
    assert check_copies(database_url, folder, contents) == 0
    _, catalog = asyncio.run(look(database_url))
    for number, name in enumerate(sorted(contents)):
        copies = (REGIONS[2],) if number % 2 == 0 else ()
        assert catalog[TableId(name)] == Table(TableId(name), SIZE, REGIONS[1], copies)
        assert files_in(folder, "a", name) == {}


def move_under_sleeping_leaders(database_url: str, folder: Path, tables: int, generator: np.random.Generator) -> None:
    """Two would carry moves out; whichever does is stopped, with its movers or without them, until the other one does, and
    wakes up in the middle of that.
    """
    contents = make_tables(folder, tables, generator)
    asyncio.run(prepare(database_url, contents, _BYTES_PER_S / 4))
    with mover(database_url, folder) as first, mover(database_url, folder) as second:
        by_id = {process.pid: process for process in (first, second)}
        for turn in range(tables):
            while (leader := led_by(database_url)) == 0:
                os.sched_yield()
            _wait_for_change(database_url, folder, by_id[leader], float(generator.uniform(0.1, 0.5)))
            sleeping = [psutil.Process(leader)]
            if turn % 2 == 0:
                sleeping += sleeping[0].children()
            for process in sleeping:
                process.suspend()
            while led_by(database_url) == leader:
                os.sched_yield()
            (other,) = by_id.keys() - {leader}
            _wait_for_change(database_url, folder, by_id[other], float(generator.uniform(0.1, 0.5)))
            check_copies(database_url, folder, contents)
            for process in sleeping:
                with suppress(psutil.NoSuchProcess):
                    process.resume()
            check_copies(database_url, folder, contents)
        asyncio.run(until_done(database_url))
        assert (first.poll(), second.poll()) == (None, None), "who loses the lease stands by"
    check_all_moved(database_url, folder, contents)


def _wait_for_change(database_url: str, folder: Path, process: subprocess.Popen[bytes], share: float) -> None:
    """Until the mover has written a random part of a table more than there was, or has ended."""
    before = bytes_in(folder)
    wanted = before + int(share * SIZE)

    async def wait() -> None:
        async with asyncio.timeout(_PATIENCE_REAL_S), Database(database_url) as database:
            while process.poll() is None and bytes_in(folder) < wanted:
                if not await database.run(migration_store.load_active):
                    return
                await asyncio.to_thread(os.sched_yield)

    asyncio.run(wait())


async def until_done(database_url: str) -> None:
    """Returns when no migration is left."""
    async with (
        asyncio.timeout(_PATIENCE_REAL_S),
        Database(database_url) as database,
        database.listen(DATA_CHANNEL) as subscription,
    ):
        while await database.run(migration_store.load_active):
            await subscription.wait(0.5)


def bytes_in(folder: Path) -> int:
    """Of all files in region b, finished or not."""
    total = 0
    for path in (folder / "b").rglob("*") if (folder / "b").exists() else ():
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue  # renamed meanwhile
    return total
