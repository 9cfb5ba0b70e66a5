"""What is over and old leaves the database by way of the archive; what anybody may still need stays."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from cluster_manager.attempt_run.actions import RecordEnd
from domain.events import Event, EventKind
from domain.identifiers import AttemptNumber, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey
from services.database import attempt_store, event_store, usage_store, use_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.requeue_store import RequeuedEntry
from services.retention.archive import Archive, ArchiveUnusable, archived_events
from services.retention.pruning import prune
from tests.database.small_world import dispatch, new_attempt, submission, submit, until_somebody_waits

OLD, LIVE, YOUNG = WorkloadId("w000001"), WorkloadId("w000002"), WorkloadId("w000003")
CUTOFF_S = 10_000.0
NOW_S = 30_000.0


def _end(workload: WorkloadId, ended_s: float, state: State = State.COMPLETED, number: int = 1) -> RecordEnd:
    key = AttemptKey(workload, AttemptNumber(number))
    return RecordEnd(key, "completed" if state is State.COMPLETED else "failed", "", ended_s, 600.0, 600.0, state)


async def _run(connection: AnyConnection, end: RecordEnd, placed: str) -> None:
    """An attempt from dispatch to end, with a checkpoint, and with events."""
    key, workload = end.key, end.key.workload
    await dispatch(connection, new_attempt(workload, int(key.attempt), machine=placed))
    await attempt_store.record_started(connection, [(key, 2_100.0)])
    await attempt_store.record_checkpoints(connection, [(key, 300.0, 2_400.0)])
    requeued = {workload: RequeuedEntry("A100", 8, 0.0)} if end.next_state is State.PENDING else {}
    await attempt_store.record_ends(connection, [end], requeued)
    kind = EventKind.COMPLETED if end.next_state is State.COMPLETED else EventKind.FAILED
    await event_store.append(
        connection,
        [
            Event(2_100.0, EventKind.STARTED, workload, int(key.attempt), details={"placement": [], "note": "ü"}),
            Event(end.ended_s, kind, workload, int(key.attempt)),
        ],
    )


async def _fill(connection: AnyConnection, *, counted: bool = True) -> None:
    """A workload that ended long ago, one that failed long ago and is queued again, and one that has just ended."""
    await submit(connection, [submission(number) for number in (1, 2, 3)])
    await event_store.append(connection, [Event(1_500.0, EventKind.INVARIANT_BROKEN)])
    await _run(connection, _end(OLD, 5_000.0), "east-b-r0-m0")
    await _run(connection, _end(LIVE, 5_000.0, State.PENDING), "east-b-r0-m1")
    await _run(connection, _end(YOUNG, 20_000.0), "east-b-r1-m0")
    await usage_store.count_use(connection, NOW_S)
    if counted:
        await use_store.count_uses(connection, [], 0, await event_store.newest_sequence(connection) + 100)


def in_a_database(database_url: str, story: Callable[[Database], Awaitable[None]], *, counted: bool = True) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(_fill, counted=counted))
            await story(database)

    asyncio.run(scenario())


async def _left(database: Database) -> dict[str, list[Any]]:
    """The workloads of which each table has rows; of events with how many."""

    async def read(connection: AnyConnection) -> dict[str, list[Any]]:
        cursor = await connection.execute(
            """SELECT 'attempts', array_agg(workload ORDER BY workload) FROM attempts
               UNION ALL SELECT 'placements', array_agg(workload ORDER BY workload) FROM placements
               UNION ALL SELECT 'checkpoints', array_agg(workload ORDER BY workload) FROM checkpoints
               UNION ALL SELECT 'workloads', array_agg(workload ORDER BY workload) FROM workloads
               UNION ALL SELECT 'events', array_agg(coalesce(workload, event) ORDER BY sequence) FROM events"""
        )
        return {row[0]: row[1] or [] for row in await cursor.fetchall()}

    return await database.run(read)


def _archived(folder: Path, table: str) -> list[dict[str, Any]]:
    return [
        row
        for file in sorted((folder / table).glob("*.parquet"))
        for row in pyarrow.parquet.read_table(file).to_pylist()
    ]


def test_what_ended_long_ago_is_archived_and_the_rest_stays(database_url: str, tmp_path: Path) -> None:
    async def story(database: Database) -> None:
        dry = await prune(database, CUTOFF_S, Archive(tmp_path), dry_run=True)
        assert _archived(tmp_path, "attempts") == []
        before = await _left(database)
        told: list[int] = []
        pruned = await prune(database, CUTOFF_S, Archive(tmp_path), told=lambda so_far: told.append(so_far.total))
        assert pruned.rows == dry.rows
        assert told
        assert told[-1] == pruned.total == 6
        left = await _left(database)
        assert left["workloads"] == before["workloads"]
        for table in ("attempts", "placements", "checkpoints"):
            assert left[table] == [LIVE, YOUNG]
        assert left["events"] == [LIVE, YOUNG, "invariant_broken", LIVE, LIVE, YOUNG, YOUNG]
        (attempt,) = _archived(tmp_path, "attempts")
        assert (attempt["workload"], attempt["ended_s"], attempt["charges"]) == (OLD, 5_000.0, '{"A100": 8}')
        (placement,) = _archived(tmp_path, "placements")
        assert placement["gpu_indices"] == list(range(8))
        assert [row["progress"] for row in _archived(tmp_path, "checkpoints")] == [300.0]
        lines = [line for _, line in archived_events(tmp_path)]
        assert (lines[0]["event"], lines[0]["workload"], lines[0]["tenant"]) == ("submitted", OLD, "ads")
        assert lines[1:] == [
            {"t": 2_100.0, "event": "started", "workload": OLD, "attempt": 1, "note": "ü", "placement": []},
            {"t": 5_000.0, "event": "completed", "workload": OLD, "attempt": 1},
        ]
        again = await prune(database, CUTOFF_S, Archive(tmp_path))
        assert again.total == 0

    in_a_database(database_url, story)


def test_never_does_anything_go_that_is_not_counted_yet(database_url: str, tmp_path: Path) -> None:
    async def story(database: Database) -> None:
        before = await _left(database)
        pruned = await prune(database, NOW_S, Archive(tmp_path))
        assert pruned.total == 0
        assert await _left(database) == before

    in_a_database(database_url, story, counted=False)


def test_a_crash_between_archive_and_deletion_leaves_no_hole_and_nothing_twice(
    database_url: str, tmp_path: Path
) -> None:
    async def story(database: Database) -> None:
        before = await _left(database)
        async with database.transaction() as connection:
            await connection.execute("SELECT FROM attempts WHERE workload = %s FOR UPDATE", (OLD,))
            pruning = asyncio.ensure_future(prune(database, CUTOFF_S, Archive(tmp_path)))
            await until_somebody_waits(database)
            pruning.cancel()
            with pytest.raises(asyncio.CancelledError):
                await pruning
        assert await _left(database) == before
        assert [row["workload"] for row in _archived(tmp_path, "attempts")] == [OLD]
        await prune(database, CUTOFF_S, Archive(tmp_path))
        assert [row["workload"] for row in _archived(tmp_path, "attempts")] == [OLD]
        assert len(list(archived_events(tmp_path))) == 3

    in_a_database(database_url, story)


def test_a_full_disk_deletes_nothing(database_url: str, tmp_path: Path) -> None:
    async def story(database: Database) -> None:
        before = await _left(database)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
        try:
            with pytest.raises(ArchiveUnusable, match="nothing of this batch is deleted"):
                await prune(database, CUTOFF_S, Archive(tmp_path))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert await _left(database) == before
        assert _archived(tmp_path, "attempts") == []

    in_a_database(database_url, story)


def test_batches_that_overlap_give_each_event_once(tmp_path: Path) -> None:
    from services.database.tables.events import EVENTS

    def row(sequence: int) -> tuple[object, ...]:
        return (sequence, float(sequence), "submitted", f"w{sequence}", None, None, None, None, None, None, "{}")

    archive = Archive(tmp_path)
    for batch in ([5, 6, 9], [1, 2, 7], [2, 3], [6, 9, 12]):
        archive.write(EVENTS, [row(sequence) for sequence in batch])
    assert [sequence for sequence, _ in archived_events(tmp_path)] == [1, 2, 3, 5, 6, 7, 9, 12]


def test_an_archive_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    with pytest.raises(ArchiveUnusable, match="name a folder that can"):
        Archive(file / "archive").require_writable()
    with pytest.raises(ArchiveUnusable, match="is no folder"):
        list(archived_events(file))
    with pytest.raises(ArchiveUnusable, match="holds no archive; name the folder that was given to"):
        list(archived_events(tmp_path))


def test_an_archive_to_which_nothing_was_written_is_empty(tmp_path: Path) -> None:
    assert list(archived_events(tmp_path)) == []
