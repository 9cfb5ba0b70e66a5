"""Attempts in the database: what the fence lets through, and what becomes of workloads."""

import asyncio
from collections.abc import Awaitable, Callable

from cluster_manager.attempt_run.actions import RecordEnd
from cluster_manager.attempt_run.events import Eviction
from domain.events import EvictionCause
from domain.identifiers import AttemptNumber, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.rank import Standing
from services.database import attempt_store, workload_reader
from services.database.attempt_store import AttemptProgress
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.requeue_store import RequeuedEntry
from tests.database.small_world import A100, EAST, dispatch, new_attempt, submission, submit

W1 = WorkloadId("w000001")
FIRST = AttemptKey(W1, AttemptNumber(1))
SECOND = AttemptKey(W1, AttemptNumber(2))
ENTRY = {W1: RequeuedEntry(A100, 8, 0.0)}


def in_one_transaction(database_url: str, story: Callable[[AnyConnection], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await story(connection)

    asyncio.run(scenario())


def end_of(
    key: AttemptKey, ended_as: str, next_state: State, *, progress: float = 50.0, checkpoint: float = 40.0
) -> RecordEnd:
    return RecordEnd(key, ended_as, "told", 3000.0, progress, checkpoint, next_state, failed=ended_as == "failed")


async def workload_row(connection: AnyConnection) -> tuple[str, int, float, float, int]:
    cursor = await connection.execute(
        "SELECT state, attempts, progress, checkpoint_progress, failures FROM workloads WHERE workload = %s", (W1,)
    )
    row = await cursor.fetchone()
    assert row is not None
    return (row[0], row[1], row[2], row[3], row[4])


async def queued(connection: AnyConnection) -> list[str]:
    cursor = await connection.execute("SELECT workload FROM queue_entries ORDER BY workload")
    return [row[0] for row in await cursor.fetchall()]


def test_a_dispatched_attempt_is_loaded_as_it_was_written_and_its_workload_leaves_the_queue(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        await submit(connection, [submission(1), submission(2)])
        written = new_attempt(W1)
        await dispatch(connection, written)
        (loaded,) = await attempt_store.load_live(connection, EAST)
        assert (loaded.key, loaded.standing, loaded.placements) == (FIRST, written.standing, written.placements)
        assert (loaded.state, loaded.within_quota, loaded.charges) == (State.DISPATCHED, True, {"A100": 8})
        assert loaded.specification == b"specification 1"
        assert await workload_row(connection) == ("DISPATCHED", 1, 0.0, 0.0, 0)
        assert await queued(connection) == ["w000002"]

    in_one_transaction(database_url, story)


def test_an_attempt_starts_once(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        await submit(connection, [submission(1)])
        await dispatch(connection, new_attempt(W1))
        assert set(await attempt_store.record_started(connection, [(FIRST, 2100.0)])) == {FIRST}
        assert set(await attempt_store.record_started(connection, [(FIRST, 2200.0)])) == set()
        (loaded,) = await attempt_store.load_live(connection, EAST)
        assert (loaded.state, loaded.started_s) == (State.RUNNING, 2100.0)

    in_one_transaction(database_url, story)


def test_an_evicted_attempt_leaves_what_its_checkpoint_holds_and_the_workload_is_queued_again(
    database_url: str,
) -> None:
    async def story(connection: AnyConnection) -> None:
        await submit(connection, [submission(1)])
        await dispatch(connection, new_attempt(W1))
        by = AttemptKey(WorkloadId("w000009"), AttemptNumber(1))
        eviction = Eviction(EvictionCause.PREEMPTED, by, Standing(0, 0))
        assert await attempt_store.begin_evictions(connection, [(FIRST, eviction)], 2_000.0) == {FIRST}
        assert await attempt_store.begin_evictions(connection, [(FIRST, eviction)], 2_000.0) == set()
        (loaded,) = await attempt_store.load_live(connection, EAST)
        assert (loaded.state, loaded.eviction) == (State.PREEMPTING, eviction)
        ended = await attempt_store.record_ends(connection, [end_of(FIRST, "preempted", State.PENDING)], ENTRY)
        assert set(ended) == {FIRST}
        assert await workload_row(connection) == ("PENDING", 1, 40.0, 40.0, 0)
        assert await queued(connection) == [W1]
        assert await attempt_store.load_live(connection, EAST) == []

    in_one_transaction(database_url, story)


def test_never_does_a_stale_attempt_change_anything(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        await submit(connection, [submission(1)])
        await dispatch(connection, new_attempt(W1))
        await attempt_store.record_ends(connection, [end_of(FIRST, "machine_lost", State.PENDING)], ENTRY)
        await dispatch(connection, new_attempt(W1, attempt=2))
        before = await workload_row(connection)
        assert before[:2] == ("DISPATCHED", 2)

        assert set(await attempt_store.record_started(connection, [(FIRST, 2500.0)])) == set()
        assert (
            await attempt_store.begin_evictions(connection, [(FIRST, Eviction(EvictionCause.DRAINED))], 2_000.0)
            == set()
        )
        assert (
            set(await attempt_store.record_ends(connection, [end_of(FIRST, "completed", State.COMPLETED)], {})) == set()
        )
        await attempt_store.record_progress(connection, [AttemptProgress(FIRST, 900.0, 900.0, 1.0)])

        assert await workload_row(connection) == before
        (loaded,) = await attempt_store.load_live(connection, EAST)
        assert (loaded.key, loaded.state) == (SECOND, State.DISPATCHED)

    in_one_transaction(database_url, story)


def test_an_attempt_ends_once_and_a_completed_workload_keeps_all_its_work(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        await submit(connection, [submission(1)])
        await dispatch(connection, new_attempt(W1))
        completed = end_of(FIRST, "completed", State.COMPLETED, progress=600.0, checkpoint=550.0)
        assert set(await attempt_store.record_ends(connection, [completed], {})) == {FIRST}
        assert set(await attempt_store.record_ends(connection, [end_of(FIRST, "failed", State.FAILED)], {})) == set()
        assert await workload_row(connection) == ("COMPLETED", 1, 600.0, 550.0, 0)
        assert await queued(connection) == []

    in_one_transaction(database_url, story)


def test_never_does_progress_go_back(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        await submit(connection, [submission(1)])
        await dispatch(connection, new_attempt(W1))
        await attempt_store.record_progress(connection, [AttemptProgress(FIRST, 80.0, 60.0, 2.0)])
        await attempt_store.record_progress(connection, [AttemptProgress(FIRST, 70.0, 50.0, 3.0)])
        (loaded,) = await attempt_store.load_live(connection, EAST)
        assert (loaded.progress, loaded.checkpoint_progress) == (80.0, 60.0)
        shown = await workload_reader.get(connection, W1)
        assert shown is not None
        assert (shown.progress, shown.checkpoint_progress, shown.throughput) == (80.0, 60.0, 3.0)

    in_one_transaction(database_url, story)
