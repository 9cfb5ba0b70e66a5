"""What a service does with migrations when the catalog, or a mover, does something unexpected meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from data_placement.migrations.life_cycle import MigrationHappening, MigrationState
from data_placement.migrations.migration import Migration, RoutePart
from domain.fleet import Fleet, Region
from domain.identifiers import GpuModel, RegionId, TableId
from domain.table import Table
from services.clock import ServiceClock, SystemClock
from services.data_placement import migration_store
from services.data_placement.migration_loop import MigrationLoop
from services.data_placement.migration_store import WantedMigration
from services.data_placement.movers.file_mover import FileMover
from services.data_placement.movers.mover import Course, Mover
from services.data_placement.movers.orders import MoverOrder, MoverOutcome, MoverTask, OrderedPart, Partition
from services.data_placement.movers.region_folders import mark_name, part_name
from services.data_placement.moving_settings import MovingSettings
from services.database import catalog_store, fleet_store, lease_store
from services.database.channels import DATA_CHANNEL
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import GLOBAL_LEASE, Lease
from services.global_scheduler.surroundings import SurroundingsKeeper
from tests.live.world import gpu_cluster

A, B = map(RegionId, "ab")
T = TableId("logs.t")
CONTENT = b"january" * 100
SIZE = len(CONTENT)
FLEET = Fleet(tuple(Region(region, (gpu_cluster(f"{region}-gpus", GpuModel("A100"), 1),)) for region in (A, B)))
_FILE = "2026-01.parquet"
_COPY = RoutePart((A, B), SIZE)


def in_folders(folder: Path) -> tuple[tuple[str, str], ...]:
    return tuple((region, f"file://{folder / region}") for region in "ab")


def write_both(folder: Path, note_of: int) -> None:
    """The file in both regions; that in b was written by the migration of this number."""
    for region in "ab":
        table = folder / region / T
        table.mkdir(parents=True)
        (table / _FILE).write_bytes(CONTENT)
    (folder / "b" / T / mark_name(note_of, _FILE)).write_text(f"{SIZE} sha256:x")


async def place(database: Database, *tables: Table) -> None:
    await database.run(partial(catalog_store.apply_tables, tables=tables))


async def through(
    database: Database, lease: Lease, wanted: WantedMigration, happenings: Sequence[MigrationHappening]
) -> Migration:
    """A migration to which that has happened."""

    async def write(connection: AnyConnection) -> Migration:
        await migration_store.enqueue(connection, [wanted], 1.0)
        (migration,) = await migration_store.load_active(connection)
        for happening in happenings:
            changes = {"parts": (_COPY,), "copy_bytes": SIZE} if happening is MigrationHappening.COPY_BEGAN else {}
            if happening is MigrationHappening.VERIFIED:
                migration = await migration_store.switch(connection, migration, lease.token, 2.0, 0.0)
            else:
                migration = await migration_store.advance(connection, migration, happening, lease.token, 2.0, changes)
        return migration

    return await database.run(write)


def story(
    database_url: str,
    storage: Path | tuple[tuple[str, str], ...],
    tell: Callable[[Database, Lease, Callable[[], Awaitable[None]]], Awaitable[None]],
    clock: ServiceClock | None = None,
    mover: Mover | None = None,
) -> None:
    """`tell` gets a function that carries migrations out until none is left. `storage`: a folder, or a URL for each region."""

    async def run() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=FLEET))
            await place(database, Table(T, SIZE, A))
            lease = await database.run(
                partial(
                    lease_store.acquire, name=GLOBAL_LEASE, holder="test", address="", process_id=0, duration_s=600.0
                )
            )
            assert isinstance(lease, Lease)
            surroundings = SurroundingsKeeper(database)
            urls = in_folders(storage) if isinstance(storage, Path) else storage
            settings = MovingSettings(urls, on_demand=False)
            time_passes = clock or SystemClock()
            loop = MigrationLoop(database, time_passes, surroundings, settings, mover or FileMover(time_passes))

            async def carry_out() -> None:
                await surroundings.refresh()
                running = asyncio.create_task(loop.run(lease, lambda: math.inf))
                async with asyncio.timeout(60.0), database.listen(DATA_CHANNEL) as subscription:
                    while await database.run(migration_store.load_active) or await database.run(
                        migration_store.load_unsettled
                    ):
                        await subscription.wait(0.5)
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

            await tell(database, lease, carry_out)

    asyncio.run(run())


def files_in(folder: Path, region: str) -> list[str]:
    table = folder / region / T
    return sorted(path.name for path in table.iterdir()) if table.exists() else []


async def last_state(database: Database) -> tuple[str, str]:
    async def load(connection: AnyConnection) -> tuple[str, str]:
        cursor = await connection.execute("SELECT state, reason FROM data_migrations ORDER BY number DESC LIMIT 1")
        row = await cursor.fetchone()
        assert row is not None
        return str(row[0]), str(row[1])

    return await database.run(load)


def test_a_copy_that_the_catalog_names_meanwhile_is_not_cleaned_away(database_url: str, tmp_path: Path) -> None:
    async def tell(database: Database, lease: Lease, carry_out: Callable[[], Awaitable[None]]) -> None:
        migration = await through(database, lease, WantedMigration(T, B), [MigrationHappening.COPY_BEGAN])
        write_both(tmp_path, migration.number)
        await place(database, Table(T, SIZE, A, (B,)))
        await carry_out()
        assert await last_state(database) == (MigrationState.ABANDONED, "b holds logs.t already")
        assert files_in(tmp_path, "a") == files_in(tmp_path, "b") == [_FILE]

    story(database_url, tmp_path, tell)


def test_a_copy_that_is_given_up_is_cleaned_away(database_url: str, tmp_path: Path) -> None:
    async def tell(database: Database, lease: Lease, carry_out: Callable[[], Awaitable[None]]) -> None:
        happenings = [MigrationHappening.COPY_BEGAN, MigrationHappening.GIVEN_UP]
        migration = await through(database, lease, WantedMigration(T, B), happenings)
        write_both(tmp_path, migration.number)
        await carry_out()
        assert (files_in(tmp_path, "a"), files_in(tmp_path, "b")) == ([_FILE], [])

    story(database_url, tmp_path, tell)


def test_what_a_killed_service_left_beside_a_copy_goes(database_url: str, tmp_path: Path) -> None:
    async def tell(database: Database, lease: Lease, carry_out: Callable[[], Awaitable[None]]) -> None:
        happenings = [MigrationHappening.COPY_BEGAN, MigrationHappening.COPIED, MigrationHappening.VERIFIED]
        migration = await through(database, lease, WantedMigration(T, B), happenings)
        write_both(tmp_path, migration.number)
        # Switched, and killed before what was only written for the copy was removed.
        await carry_out()
        assert files_in(tmp_path, "a") == files_in(tmp_path, "b") == [_FILE]

    story(database_url, tmp_path, tell)


def test_a_killed_copy_of_partitions_goes_on_from_what_is_there(database_url: str, tmp_path: Path) -> None:
    """One of two partitions is there and noted, the other half written; of an older one that is not wanted nothing is."""
    files = {f"day-{day}": bytes([day]) * SIZE for day in range(3)}
    for name, content in files.items():
        (tmp_path / "a" / T).mkdir(parents=True, exist_ok=True)
        (tmp_path / "a" / T / name).write_bytes(content)

    async def partition(connection: AnyConnection) -> None:
        for day, (name, content) in enumerate(files.items()):
            checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
            await connection.execute(
                "INSERT INTO data_partitions VALUES (%s, %s, %s, %s, %s)", (T, name, SIZE, checksum, float(day))
            )
        await connection.execute("UPDATE data_tables SET size_bytes = %s, last_partition_s = 2", (3 * SIZE,))

    async def tell(database: Database, lease: Lease, carry_out: Callable[[], Awaitable[None]]) -> None:
        await database.run(partition)

        async def begin(connection: AnyConnection) -> Migration:
            await migration_store.enqueue(connection, [WantedMigration(T, B, newest_partitions=2)], 1.0)
            (migration,) = await migration_store.load_active(connection)
            changes = {
                "parts": (RoutePart((A, B), 2 * SIZE),),
                "copy_bytes": 2 * SIZE,
                "size_bytes": 3 * SIZE,
                "partitions": ("day-2", "day-1"),
            }
            return await migration_store.advance(
                connection, migration, MigrationHappening.COPY_BEGAN, lease.token, 2.0, changes
            )

        number = (await database.run(begin)).number
        there = tmp_path / "b" / T
        there.mkdir(parents=True)
        (there / "day-2").write_bytes(files["day-2"])
        noted = hashlib.sha256(files["day-2"]).hexdigest()
        (there / mark_name(number, "day-2")).write_text(f"{SIZE} sha256:{noted}")
        (there / part_name(number, 1, "day-1")).write_bytes(files["day-1"][:10])
        await carry_out()
        assert files_in(tmp_path, "b") == ["day-1", "day-2"]
        assert all((there / name).read_bytes() == files[name] for name in ("day-1", "day-2"))
        catalog = await database.run(catalog_store.load_catalog)
        assert catalog.table(T) == Table(T, 3 * SIZE, A, newest_held=((B, 2),))

    story(database_url, tmp_path, tell)


def test_a_copy_that_the_catalog_names_again_is_not_deleted(database_url: str, tmp_path: Path) -> None:
    async def tell(database: Database, lease: Lease, carry_out: Callable[[], Awaitable[None]]) -> None:
        happenings = [
            MigrationHappening.COPY_BEGAN,
            MigrationHappening.COPIED,
            MigrationHappening.VERIFIED,
            MigrationHappening.DELETION_BEGAN,
        ]
        migration = await through(database, lease, WantedMigration(T, B, A), happenings)
        assert migration.state is MigrationState.DELETING
        write_both(tmp_path, migration.number)

        async def import_anew(connection: AnyConnection) -> None:
            await connection.execute("UPDATE data_tables SET home = 'a'")

        await database.run(import_anew)
        await carry_out()
        assert await last_state(database) == (MigrationState.DONE, "the catalog names the copy in a again")
        assert files_in(tmp_path, "a") == [_FILE]

    story(database_url, tmp_path, tell)


def test_a_copy_that_has_begun_ends_when_its_region_has_no_room_for_it_any_more(
    database_url: str, tmp_path: Path
) -> None:
    async def tell(database: Database, lease: Lease, carry_out: Callable[[], Awaitable[None]]) -> None:
        happenings = [MigrationHappening.COPY_BEGAN, MigrationHappening.TRY_FAILED]
        migration = await through(database, lease, WantedMigration(T, B, A), happenings)
        write_both(tmp_path, migration.number)

        async def lower(connection: AnyConnection) -> None:
            await connection.execute("INSERT INTO data_regions VALUES ('b', %s)", (SIZE - 1,))

        await database.run(lower)
        await carry_out()
        state, reason = await last_state(database)
        assert state == MigrationState.ABANDONED
        assert reason.startswith(f"region b stores {SIZE - 1} bytes at most by now: ")
        assert (files_in(tmp_path, "a"), files_in(tmp_path, "b")) == ([_FILE], [])

    story(database_url, tmp_path, tell)


def test_a_table_never_moves_to_a_region_that_is_just_leaving_the_fleet(database_url: str, tmp_path: Path) -> None:
    async def tell(database: Database, lease: Lease, carry_out: Callable[[], Awaitable[None]]) -> None:
        happenings = [MigrationHappening.COPY_BEGAN, MigrationHappening.COPIED]
        migration = await through(database, lease, WantedMigration(T, B, A), happenings)
        write_both(tmp_path, migration.number)
        await database.run(partial(fleet_store.apply_fleet, fleet=Fleet(FLEET.regions[:1])))
        after = await database.run(
            partial(migration_store.switch, migration=migration, token=lease.token, now=3.0, old_copy_stays_until_s=3.0)
        )
        assert (after.state, after.reason) == (MigrationState.FAILED, "region b is not in the fleet any more")
        await carry_out()
        assert await last_state(database) == (MigrationState.ABANDONED, "region b is not in the fleet any more")
        catalog = await database.run(catalog_store.load_catalog)
        assert catalog.table(T) == Table(T, SIZE, A)
        assert files_in(tmp_path, "a") == [_FILE]

    story(database_url, tmp_path, tell)


def test_storage_that_is_gone_with_its_region_holds_nothing_up(database_url: str, tmp_path: Path) -> None:
    async def tell(database: Database, lease: Lease, carry_out: Callable[[], Awaitable[None]]) -> None:
        happenings = [MigrationHappening.COPY_BEGAN, MigrationHappening.GIVEN_UP]
        migration = await through(database, lease, WantedMigration(T, B), happenings)
        write_both(tmp_path, migration.number)
        # What cannot be removed, by whomever.
        (tmp_path / "b" / T / _FILE).unlink()
        (tmp_path / "b" / T / _FILE).mkdir()
        await database.run(partial(fleet_store.apply_fleet, fleet=Fleet(FLEET.regions[:1])))
        await carry_out()
        state, reason = await last_state(database)
        assert state == MigrationState.ABANDONED
        assert reason.startswith("its files stay in b, which is not in the fleet: clean of logs.t to b: ")

    story(database_url, tmp_path, tell)


def test_what_cannot_be_removed_for_now_says_so(database_url: str, tmp_path: Path) -> None:
    async def tell(database: Database, lease: Lease, carry_out: Callable[[], Awaitable[None]]) -> None:
        happenings = [MigrationHappening.COPY_BEGAN, MigrationHappening.GIVEN_UP]
        migration = await through(database, lease, WantedMigration(T, B), happenings)
        write_both(tmp_path, migration.number)
        (tmp_path / "b" / T / _FILE).unlink()
        (tmp_path / "b" / T / _FILE).mkdir()
        carrying_out = asyncio.ensure_future(carry_out())
        async with asyncio.timeout(30.0), database.listen(DATA_CHANNEL) as subscription:
            while not (await last_state(database))[1].startswith("it stays in b for now: clean of logs.t to b: "):
                await subscription.wait(0.1)
        carrying_out.cancel()
        await asyncio.gather(carrying_out, return_exceptions=True)
        assert (await last_state(database))[0] == MigrationState.WITHDRAWN

    story(database_url, tmp_path, tell)


def test_whoever_has_lost_the_lease_carries_nothing_out_and_breaks_nothing(database_url: str, tmp_path: Path) -> None:
    async def tell(database: Database, lease: Lease, carry_out: Callable[[], Awaitable[None]]) -> None:
        await through(database, lease, WantedMigration(T, B), [MigrationHappening.COPY_BEGAN])
        (tmp_path / "a" / T).mkdir(parents=True)
        (tmp_path / "a" / T / _FILE).write_bytes(CONTENT)

        async def hand_on(connection: AnyConnection, to: int) -> None:
            await connection.execute("UPDATE leases SET token = %s", (to,))

        await database.run(partial(hand_on, to=lease.token + 1))
        carrying_out = asyncio.ensure_future(carry_out())
        done, _ = await asyncio.wait([carrying_out], timeout=3.0)
        assert not done, "it waits for what the tier says of the lease"
        assert (await last_state(database))[0] == MigrationState.COPYING
        await database.run(partial(hand_on, to=lease.token))
        await carrying_out
        assert (await last_state(database))[0] == MigrationState.SWITCHED

    story(database_url, tmp_path, tell)


def _children() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        found |= {int(process) for process in (task / "children").read_text().split()}
    return found


def _next_child(before: set[int]) -> int:
    while not (new := _children() - before):
        time.sleep(0.05)
    (child,) = new
    return child


def test_a_mover_that_is_stopped_is_ended_and_it_is_said(tmp_path: Path) -> None:
    write_both(tmp_path, 1)
    (tmp_path / "b" / T / _FILE).unlink()
    parts = (OrderedPart(("a", "b"), SIZE),)
    order = MoverOrder(MoverTask.COPY, 7, 1, T, "b", "a", in_folders(tmp_path), parts, (), SIZE)
    before = _children()

    async def run() -> str:
        # No bandwidth is granted: it goes on for ever.
        work = asyncio.create_task(FileMover(SystemClock(), longest_silence_real_s=5.0).carry_out(order, Course(1)))
        os.kill(await asyncio.to_thread(_next_child, before), signal.SIGSTOP)
        outcome = await work
        assert _children() == before
        return outcome.reason

    assert asyncio.run(run()) == "the mover said nothing for 5 s; it was ended"


def test_a_mover_whose_storage_hangs_is_ended_and_it_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "a" / T
    folder.mkdir(parents=True)
    os.mkfifo(folder / _FILE)  # Whoever opens it waits for a writer.
    parts = (OrderedPart(("a", "b"), SIZE),)
    partitions = (Partition(_FILE, SIZE),)
    order = MoverOrder(MoverTask.COPY, 7, 1, T, "b", "a", in_folders(tmp_path), parts, partitions, SIZE)
    before = _children()
    course = Course(1)
    course.grant([1e9])

    async def run() -> str:
        async with asyncio.timeout(30.0):
            outcome = await FileMover(SystemClock(), longest_call_real_s=1.0).carry_out(order, course)
        assert _children() == before
        return outcome.reason

    assert asyncio.run(run()) == "the storage did not answer for 1 s; the mover was ended"


class _Verifies:
    """A mover for which verifying takes until it may end, and everything else no time."""

    def __init__(self) -> None:
        self.tasks: list[MoverTask] = []
        self.verifying, self.may_end = asyncio.Event(), asyncio.Event()

    async def carry_out(self, order: MoverOrder, course: Course) -> MoverOutcome:
        self.tasks.append(order.task)
        if order.task is MoverTask.VERIFY:
            self.verifying.set()
            await self.may_end.wait()
        return MoverOutcome()


async def _until(database: Database, is_so: str) -> None:
    async def ask(connection: AnyConnection) -> bool:
        return await (await connection.execute(is_so)).fetchone() is not None

    async with asyncio.timeout(60.0), database.listen(DATA_CHANNEL) as subscription:
        while not await database.run(ask):
            await subscription.wait(0.1)


def test_what_ends_while_it_is_looked_is_not_done_again(database_url: str) -> None:
    """Verifying reads a whole table: what an older look says of it is no reason to begin anew."""

    async def tell(database: Database, _: Lease, carry_out: Callable[[], Awaitable[None]]) -> None:
        await database.run(partial(migration_store.enqueue, wanted=[WantedMigration(T, B)], now=1.0))
        carrying_out = asyncio.ensure_future(carry_out())
        await mover.verifying.wait()
        async with database.transaction() as holding:
            await holding.execute("LOCK TABLE data_links")
            await _until(database, "SELECT 1 FROM pg_locks WHERE relation = 'data_links'::regclass AND NOT granted")
            mover.may_end.set()
            await _until(database, "SELECT 1 FROM data_migrations WHERE state = 'switched'")
        await carrying_out
        assert mover.tasks == [MoverTask.COPY, MoverTask.VERIFY, MoverTask.SETTLE]

    mover = _Verifies()
    story(database_url, (), tell, mover=mover)
