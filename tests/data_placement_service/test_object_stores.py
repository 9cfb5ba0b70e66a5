"""Tables move between the buckets of a server that speaks S3, by the processes that move them in a service."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from data_placement.migrations.life_cycle import MigrationState
from domain.table import Table
from services.clock import CompressedClock, SystemClock
from services.data_placement import migration_store
from services.data_placement.migration_store import WantedMigration
from services.data_placement.movers.file_mover import FileMover
from services.data_placement.movers.mover import Course
from services.data_placement.movers.orders import MoverOrder, MoverOutcome, MoverTask, OrderedPart, Partition
from services.data_placement.moves_look import list_moves
from services.database import catalog_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import Lease
from tests.data_placement_service.object_store import ACCESS_KEY, SECRET_KEY, ObjectStore, object_store
from tests.data_placement_service.test_file_work import beat, mover_process
from tests.data_placement_service.test_migration_loop import A, B, T, story
from topmast.v1 import data_placement_pb2 as messages

# Names that a storage might take for patterns, and one that they would match.
CONTENTS = {"day 1[2].parquet": b"1" * 700_000, "day 12.parquet": b"2" * 700_000, "day *?.parquet": b"3" * 700_000}
SIZE = sum(map(len, CONTENTS.values()))
_PARTITIONS = tuple(
    Partition(name, len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")
    for name, content in sorted(CONTENTS.items())
)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """The table is in the east, beside another one."""
    with object_store(monkeypatch, "east", "west") as running:
        for name, content in CONTENTS.items():
            running.write("east", f"{T}/{name}", content)
        running.write("east", f"{T}2/part", b"of another table")
        yield running


def in_catalog(contents: Mapping[str, bytes]) -> Callable[[AnyConnection], Awaitable[None]]:
    """The catalog knows these partitions of the table."""

    async def write(connection: AnyConnection) -> None:
        for number, (name, content) in enumerate(sorted(contents.items())):
            checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
            await connection.execute(
                "INSERT INTO data_partitions VALUES (%s, %s, %s, %s, %s)",
                (T, name, len(content), checksum, float(number)),
            )
        await connection.execute("UPDATE data_tables SET size_bytes = %s", (sum(map(len, contents.values())),))

    return write


async def the_move(database: Database) -> messages.TableMove:
    """As `topmast data moves` shows it."""
    (move,) = (await database.run(partial(list_moves, state="", table=T, limit=10, page_token=""))).moves
    return move


def moved_to_b(
    database_url: str, storage: tuple[tuple[str, str], ...], check: Callable[[messages.TableMove, Table | None], None]
) -> None:
    """The home of the table is to move from a to b; time passes quickly, so that tries follow upon each other."""

    async def tell(database: Database, _: Lease, carry_out: Callable[[], Awaitable[None]]) -> None:
        await database.run(in_catalog(CONTENTS))
        await database.run(partial(migration_store.enqueue, wanted=[WantedMigration(T, B, A)], now=1.0))
        await carry_out()
        check(await the_move(database), (await database.run(catalog_store.load_catalog)).table(T))

    story(database_url, storage, tell, CompressedClock(time.time(), 1_000.0, 100.0))


def test_a_table_moves_from_one_bucket_to_another(
    database_url: str, store: ObjectStore, capfd: pytest.CaptureFixture[str]
) -> None:
    def check(move: messages.TableMove, table: Table | None) -> None:
        assert (move.state, move.reason, move.copied_bytes) == (MigrationState.DONE, "", SIZE)
        assert table == Table(T, SIZE, B)

    moved_to_b(database_url, store.storage(a="east", b="west"), check)
    assert store.files("west") == {f"{T}/{name}": content for name, content in CONTENTS.items()}
    assert store.files("east") == {f"{T}2/part": b"of another table"}
    assert_no_secret("".join(capfd.readouterr()))


def assert_no_secret(text: str) -> None:
    assert SECRET_KEY not in text
    assert ACCESS_KEY not in text


def test_a_missing_bucket_is_a_sentence_and_is_not_made(
    database_url: str, store: ObjectStore, capfd: pytest.CaptureFixture[str]
) -> None:
    def check(move: messages.TableMove, table: Table | None) -> None:
        assert (move.state, move.reason) == (
            MigrationState.ABANDONED,
            (
                "given up after 3 tries; the last: there is no bucket wset, in which region b is to store tables; make it,"
                " or name another in data.regions.b.storage"
            ),
        )
        assert table == Table(T, SIZE, A)

    moved_to_b(database_url, store.storage(a="east", b="wset"), check)
    assert store.buckets() == ["east", "west"]
    assert store.files("east").keys() == {*(f"{T}/{name}" for name in CONTENTS), f"{T}2/part"}
    assert_no_secret("".join(capfd.readouterr()))


def carried_out(store: ObjectStore, task: MoverTask, *partitions: Partition) -> MoverOutcome:
    """By a process, from a to b."""
    course = Course(1)
    course.grant([1e9])
    return asyncio.run(FileMover(SystemClock()).carry_out(ordered(store, task, partitions), course))


def ordered(store: ObjectStore, task: MoverTask, partitions: tuple[Partition, ...] = ()) -> MoverOrder:
    parts = (OrderedPart((A, B), SIZE),)
    return MoverOrder(task, 7, 1, T, B, A, store.storage(a="east", b="west"), parts, partitions, SIZE)


def test_what_consoles_write_to_show_a_folder_is_no_partition(store: ObjectStore) -> None:
    store.write("east", f"{T}/", b"")
    store.write("west", f"{T}/", b"")
    for task in (MoverTask.COPY, MoverTask.VERIFY, MoverTask.SETTLE, MoverTask.DELETE):
        assert carried_out(store, task) == MoverOutcome()
    assert store.files("west") == {f"{T}/": b""} | {f"{T}/{name}": content for name, content in CONTENTS.items()}
    assert store.files("east") == {f"{T}/": b"", f"{T}2/part": b"of another table"}


def test_a_copy_that_is_killed_goes_on_from_what_is_there(store: ObjectStore) -> None:
    """And reads nothing again that it has: what was copied is damaged at its source meanwhile, and nobody notices."""
    order = ordered(store, MoverTask.COPY, _PARTITIONS)
    first = _PARTITIONS[0]
    with mover_process(order.as_json(), beat(300_000.0)) as (process, given, output):
        while "copied" not in output.readline():
            given.write(beat(300_000.0) + "\n")
            given.flush()
        # The first has been read; from here on nothing passes any more, and the first gets its name.
        while f"{T}/{first.name}" not in store.files("west"):
            given.write(beat(0.0) + "\n")
            given.flush()
            assert output.readline()
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert len({key for key in store.files("west") if ".topmast-" not in key}) < len(CONTENTS)
    store.write("east", f"{T}/{first.name}", b"x" * first.size_bytes)
    for task in (MoverTask.COPY, MoverTask.VERIFY, MoverTask.SETTLE):
        assert carried_out(store, task, *_PARTITIONS) == MoverOutcome()
    assert store.files("west") == {f"{T}/{name}": content for name, content in CONTENTS.items()}


def test_a_copy_that_was_damaged_is_not_verified(store: ObjectStore) -> None:
    assert carried_out(store, MoverTask.COPY, *_PARTITIONS) == MoverOutcome()
    store.write("west", f"{T}/{_PARTITIONS[0].name}", b"x" * _PARTITIONS[0].size_bytes)
    assert "with checksum sha256:" in carried_out(store, MoverTask.VERIFY, *_PARTITIONS).reason
    # It is copied again, for its note is gone.
    for task in (MoverTask.COPY, MoverTask.VERIFY):
        assert carried_out(store, task, *_PARTITIONS) == MoverOutcome()


def test_storage_that_cannot_be_asked_removes_nothing_and_says_why(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither is anything taken for removed that nobody could look at."""
    assert carried_out(store, MoverTask.COPY, *_PARTITIONS) == MoverOutcome()
    before = store.files("east"), store.files("west")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for task in (MoverTask.COPY, MoverTask.CLEAN, MoverTask.DELETE):
        reason = carried_out(store, task, *_PARTITIONS).reason
        assert reason.startswith(f"{task} of {T} to b: the storage of region ")
        assert "127.0.0.1:1" in reason
        assert_no_secret(reason)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", store.url)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("HOME", str(tmp_path))
    for task in MoverTask:
        reason = carried_out(store, task, *_PARTITIONS).reason
        assert reason.startswith(f"{task} of {T} to b: the storage of region ")
        assert "credentials" in reason
    assert (store.files("east"), store.files("west")) == before
