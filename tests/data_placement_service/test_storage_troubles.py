"""Real file systems that are full, read-only or closed to us: the move says so, no copy is lost, and others go on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from data_placement.migrations.life_cycle import MigrationState
from domain.identifiers import TableId
from domain.table import Table
from services.clock import CompressedClock
from services.data_placement import migration_store
from services.data_placement.migration_store import WantedMigration
from services.data_placement.moves_look import list_moves
from services.database import catalog_store
from services.database.channels import DATA_CHANNEL
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import Lease
from tests.data_placement_service.test_migration_loop import A, B, T, in_folders, place, story

SMALL = TableId("logs.small")
LARGE_BYTES, SMALL_BYTES = 3_000_000, 100_000
_MOVER = "services.data_placement.movers.file_process"


@contextmanager
def file_system(folder: Path, size_bytes: int) -> Iterator[None]:
    """A file system of this size at the folder; the test is skipped where none may be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here: that takes root, outside of a sandbox")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def read_only(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)


def write_tables(folder: Path) -> None:
    for table, size in ((T, LARGE_BYTES), (SMALL, SMALL_BYTES)):
        (folder / "a" / table).mkdir(parents=True)
        (folder / "a" / table / "part").write_bytes(b"x" * size)


def sizes_in(folder: Path, region: str) -> dict[str, int]:
    return {
        f"{path.parent.name}/{path.name}": path.stat().st_size
        for path in sorted((folder / region).glob("*/*"))
        if path.is_file()
    }


async def moves_of(database: Database) -> dict[str, tuple[str, str]]:
    """State and reason of each table's newest move, as `topmast data moves` shows them."""
    found = await database.run(partial(list_moves, state="", table="", limit=10, page_token=""))
    return {move.table: (move.state, move.reason) for move in reversed(found.moves)}


def both_move_to_b(
    database_url: str,
    folder: Path,
    tell: Callable[[Database, Callable[[], Awaitable[None]]], Awaitable[None]],
    speed: float = 100.0,
) -> None:
    """The homes of a large and of a small table are to move from a to b. Time passes quickly, so that tries follow upon
    each other."""

    async def begin(database: Database, _: Lease, carry_out: Callable[[], Awaitable[None]]) -> None:
        await place(database, Table(T, LARGE_BYTES, A), Table(SMALL, SMALL_BYTES, A))
        wanted = [WantedMigration(T, B, A), WantedMigration(SMALL, B, A)]
        await database.run(partial(migration_store.enqueue, wanted=wanted, now=1.0))
        await tell(database, carry_out)

    story(database_url, in_folders(folder), begin, CompressedClock(time.time(), 1_000.0, speed))


def test_a_full_file_system_ends_its_move_alone(database_url: str, tmp_path: Path) -> None:
    async def tell(database: Database, carry_out: Callable[[], Awaitable[None]]) -> None:
        await carry_out()
        assert await moves_of(database) == {
            T: (
                MigrationState.ABANDONED,
                "given up after 3 tries; the last: copy of logs.t to b: the storage of region b is full",
            ),
            SMALL: (MigrationState.DONE, ""),
        }
        catalog = await database.run(catalog_store.load_catalog)
        assert catalog.table(T) == Table(T, LARGE_BYTES, A)
        assert catalog.table(SMALL) == Table(SMALL, SMALL_BYTES, B)
        assert sizes_in(tmp_path, "a") == {f"{T}/part": LARGE_BYTES}
        assert sizes_in(tmp_path, "b") == {f"{SMALL}/part": SMALL_BYTES}

    with file_system(tmp_path / "b", 1_500_000):
        write_tables(tmp_path)
        both_move_to_b(database_url, tmp_path, tell)


def test_between_its_tries_a_copy_fills_nothing_with_half_a_file(database_url: str, tmp_path: Path) -> None:
    async def tell(database: Database, carry_out: Callable[[], Awaitable[None]]) -> None:
        carrying_out = asyncio.ensure_future(carry_out())
        async with asyncio.timeout(60.0), database.listen(DATA_CHANNEL) as subscription:
            while (await moves_of(database))[T][0] != MigrationState.FAILED:
                await subscription.wait(0.2)
        assert T not in {name.partition("/")[0] for name in sizes_in(tmp_path, "b")}
        carrying_out.cancel()
        await asyncio.gather(carrying_out, return_exceptions=True)

    with file_system(tmp_path / "b", 1_500_000):
        write_tables(tmp_path)
        both_move_to_b(database_url, tmp_path, tell, speed=1.0)


def test_nothing_moves_to_a_read_only_file_system(database_url: str, tmp_path: Path) -> None:
    async def tell(database: Database, carry_out: Callable[[], Awaitable[None]]) -> None:
        await carry_out()
        for table, (state, reason) in (await moves_of(database)).items():
            assert (state, reason) == (
                MigrationState.ABANDONED,
                f"given up after 3 tries; the last: copy of {table} to b: the storage of region b is read-only",
            )
        assert sizes_in(tmp_path, "a") == {f"{T}/part": LARGE_BYTES, f"{SMALL}/part": SMALL_BYTES}
        assert sizes_in(tmp_path, "b") == {}

    with file_system(tmp_path / "b", 10_000_000):
        write_tables(tmp_path)
        read_only(tmp_path / "b")
        both_move_to_b(database_url, tmp_path, tell)


def test_an_old_copy_that_cannot_be_deleted_stays_and_is_said_to(database_url: str, tmp_path: Path) -> None:
    async def tell(database: Database, carry_out: Callable[[], Awaitable[None]]) -> None:
        carrying_out = asyncio.ensure_future(carry_out())
        async with asyncio.timeout(60.0), database.listen(DATA_CHANNEL) as subscription:
            while any(not reason.startswith("it stays in a") for _, reason in (await moves_of(database)).values()):
                await subscription.wait(0.2)
        for table, (state, reason) in (await moves_of(database)).items():
            assert (state, reason) == (
                MigrationState.DELETING,
                f"it stays in a for now: delete of {table} to b: the storage of region a is read-only",
            )
        catalog = await database.run(catalog_store.load_catalog)
        assert {table.home for table in catalog} == {B}
        assert sizes_in(tmp_path, "a") == sizes_in(tmp_path, "b")
        carrying_out.cancel()
        await asyncio.gather(carrying_out, return_exceptions=True)

    with file_system(tmp_path / "a", 10_000_000):
        write_tables(tmp_path)
        read_only(tmp_path / "a")
        both_move_to_b(database_url, tmp_path, tell)


def movers() -> list[psutil.Process]:
    """Of this process: those that have begun to listen."""
    return [each for each in psutil.Process().children() if _MOVER in command_of(each)]


def command_of(process: psutil.Process) -> list[str]:
    """Empty: it has ended meanwhile."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def test_a_mover_that_is_killed_leaves_a_copy_that_goes_on(database_url: str, tmp_path: Path) -> None:
    """And the table has a whole copy all the time."""
    write_tables(tmp_path)

    async def tell(database: Database, carry_out: Callable[[], Awaitable[None]]) -> None:
        async def slow(connection: AnyConnection) -> None:
            await connection.execute("INSERT INTO data_links VALUES ('a', 'b', %s)", (LARGE_BYTES * 10.0,))

        async def quick(connection: AnyConnection) -> None:
            await connection.execute("UPDATE data_links SET bytes_per_day = 1e15")

        await database.run(slow)
        carrying_out = asyncio.ensure_future(carry_out())
        async with asyncio.timeout(60.0), database.listen(DATA_CHANNEL) as subscription:
            while not (found := movers()) or not any((tmp_path / "b").glob("*/.topmast-part-*")):
                await subscription.wait(0.1)
            for mover in found:
                mover.send_signal(signal.SIGKILL)
            while (await moves_of(database))[T][0] != MigrationState.FAILED:
                await subscription.wait(0.1)
        assert (await moves_of(database))[T][1].startswith("the mover ended with status -9")
        assert sizes_in(tmp_path, "a") == {f"{T}/part": LARGE_BYTES, f"{SMALL}/part": SMALL_BYTES}
        await database.run(quick)
        await carrying_out
        assert await moves_of(database) == {T: (MigrationState.DONE, ""), SMALL: (MigrationState.DONE, "")}
        assert sizes_in(tmp_path, "b") == {f"{T}/part": LARGE_BYTES, f"{SMALL}/part": SMALL_BYTES}
        assert sizes_in(tmp_path, "a") == {}

    both_move_to_b(database_url, tmp_path, tell, speed=10.0)
