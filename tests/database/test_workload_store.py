import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster_manager.attempt_run.actions import RecordEnd
from cluster_manager.attempt_run.events import Eviction
from domain.events import EventKind, EvictionCause
from domain.identifiers import ANY_GPU_MODEL, JobName, TenantId, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.resources import TaskResources
from domain.workload import Command, JobSpecification, WorkloadSpecification
from services.database import attempt_store, cancellation_store, event_store, workload_reader, workload_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.errors import RepeatTransaction
from services.database.requeue_store import RequeuedEntry
from services.database.workload_store import IdempotencyConflict, SubmissionResult, UnknownTenants
from tests.database.small_world import (
    A100,
    ADS,
    EAST,
    FORGET_WORKLOADS,
    VISION,
    dispatch,
    new_attempt,
    specification,
    submission,
    submit,
    until_somebody_waits,
)
from tests.examples import examples

_TABLES = ("workloads", "jobs", "queue_entries", "events")


async def _count_rows(connection: AnyConnection) -> dict[str, int]:
    counts = {}
    for table in _TABLES:
        cursor = await connection.execute(f"SELECT count(*) FROM {table}")
        row = await cursor.fetchone()
        counts[table] = -1 if row is None else row[0]
    return counts


def test_submission_stores_workload_jobs_queue_entry_and_event(database_url: str) -> None:
    wanted = WorkloadSpecification(
        "two \t jobs \\ ü",
        ADS,
        (
            JobSpecification(JobName("train"), 2, TaskResources(4, A100), Command(("a",)), max_tasks=3),
            JobSpecification(JobName("read"), 3, TaskResources(0, ANY_GPU_MODEL, 1.5, 8.0), Command(("b",))),
        ),
    )

    async def scenario() -> None:
        async with Database(database_url) as database:
            results = await database.run(lambda connection: submit(connection, [submission(1, wanted)]))
            assert results == [SubmissionResult(WorkloadId("w000001"), existed=False)]
            async with database.transaction() as connection:
                stored = await workload_reader.get(connection, WorkloadId("w000001"))
                assert stored is not None
                assert (stored.tenant, stored.specification, stored.state) == (ADS, b"specification 1", State.PENDING)
                assert (stored.submitted_s, stored.attempt, stored.position) == (1001.0, 0, None)
                cursor = await connection.execute("SELECT name, gpus, emulated FROM workloads")
                assert await cursor.fetchall() == [("two \t jobs \\ ü", 8, False)]
                cursor = await connection.execute(
                    "SELECT job, tasks, max_tasks, gpus, cpus FROM jobs ORDER BY position"
                )
                assert await cursor.fetchall() == [("train", 2, 3, 4, None), ("read", 3, 0, 0, 1.5)]
                cursor = await connection.execute(
                    "SELECT gpu_model, gpus, cpus, more_gpus, priority FROM queue_entries"
                )
                assert await cursor.fetchall() == [("A100", 8, 4.5, None, None)]
                page = await event_store.read(connection, 0, 10)
            (event,) = (stored_event.event for stored_event in page.events)
            assert (event.event, event.workload, event.tenant, event.t) == (
                EventKind.SUBMITTED,
                "w000001",
                ADS,
                1001.0,
            )
            assert event.details["work_s"] is None
            assert event.details["jobs"] == [
                {
                    "job": "train",
                    "tasks": 2,
                    "max_tasks": 3,
                    "gpus": 4,
                    "gpu_model": "A100",
                    "cpus": None,
                    "memory_gib": None,
                },
                {
                    "job": "read",
                    "tasks": 3,
                    "max_tasks": 0,
                    "gpus": 0,
                    "gpu_model": "any",
                    "cpus": 1.5,
                    "memory_gib": 8.0,
                },
            ]

    asyncio.run(scenario())


def test_batch_is_all_or_nothing(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, [submission(1, key="k", digest=b"1")]))
            clash = [submission(2), submission(3, key="k", digest=b"other"), submission(4)]
            with pytest.raises(IdempotencyConflict) as conflict:
                await database.run(lambda connection: submit(connection, clash))
            assert (conflict.value.workload, conflict.value.tenant) == ("w000001", ADS)
            stranger = [submission(5), submission(6, specification(TenantId("nobody")))]
            with pytest.raises(UnknownTenants, match="nobody"):
                await database.run(lambda connection: submit(connection, stranger))
            assert await database.run(_count_rows) == dict.fromkeys(_TABLES, 1)

    asyncio.run(scenario())


def test_repetition_gets_the_first_name_also_within_a_batch(database_url: str) -> None:
    batch = [
        submission(1, key="k", digest=b"1"),
        submission(2, key="k", digest=b"1"),
        submission(3, specification(VISION), key="k", digest=b"2"),
        submission(4, key=None, digest=b"1"),
    ]

    async def scenario() -> None:
        async with Database(database_url) as database:
            for existed in (False, True):
                results = await database.run(lambda connection: submit(connection, batch[:3]))
                assert results == [
                    SubmissionResult(WorkloadId("w000001"), existed),
                    SubmissionResult(WorkloadId("w000001"), existed=True),
                    SubmissionResult(WorkloadId("w000003"), existed),
                ]
            assert await database.run(lambda connection: submit(connection, batch[3:])) == [
                SubmissionResult(WorkloadId("w000004"), existed=False)
            ]

    asyncio.run(scenario())


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=2, max_size=6), st.integers(0, 10**6))
def test_never_accepts_two_workloads_for_one_key_however_calls_overlap(
    database_url: str, calls: list[list[int]], example: int
) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, []))

            async def call(number: int, keys: list[int]) -> list[SubmissionResult]:
                batch = [
                    submission(example * 1000 + number * 10 + place, key=f"{example}-{key}", digest=bytes([key]))
                    for place, key in enumerate(keys)
                ]
                return await database.run(lambda connection: workload_store.insert_submissions(connection, batch))

            answers = await asyncio.gather(*(call(number, keys) for number, keys in enumerate(calls)))
            names: dict[int, set[WorkloadId]] = {}
            created: list[WorkloadId] = []
            for keys, results in zip(calls, answers, strict=True):
                for key, result in zip(keys, results, strict=True):
                    names.setdefault(key, set()).add(result.workload)
                    created += [] if result.existed else [result.workload]
            assert all(len(found) == 1 for found in names.values())
            assert sorted(created) == sorted(name for found in names.values() for name in found)

    # The same database serves all examples: a new example must not find the keys of an earlier one.
    async def forget() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await connection.execute(FORGET_WORKLOADS)

    asyncio.run(forget())
    asyncio.run(scenario())


# ---------------------------------------------------------------- cancellation


def test_queued_workload_is_cancelled_at_once(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, [submission(1), submission(2)]))
            name = WorkloadId("w000001")
            for _ in range(2):
                state = await database.run(
                    lambda connection: cancellation_store.cancel(connection, name, "no need", 50.0)
                )
                assert state is State.CANCELLED
            async with database.transaction() as connection:
                stored = await workload_reader.get(connection, name)
                page = await event_store.read(connection, 0, 10)
                counts = await workload_reader.count_by_state(connection)
            assert stored is not None
            assert (stored.state, stored.ended_s, stored.reason) == (State.CANCELLED, 50.0, "no need")
            kinds = [stored_event.event.event for stored_event in page.events]
            assert kinds == [EventKind.SUBMITTED, EventKind.SUBMITTED, EventKind.CANCELLED]
            assert counts == {State.PENDING: 1, State.CANCELLED: 1}

    asyncio.run(scenario())


def test_live_workload_is_asked_to_stop(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            name = WorkloadId("w000001")
            await database.run(lambda connection: submit(connection, [submission(1)]))
            await database.run(lambda connection: dispatch(connection, new_attempt(name)))
            state = await database.run(lambda connection: cancellation_store.cancel(connection, name, "stop", 50.0))
            assert state is State.DISPATCHED
            stored = await database.run(lambda connection: workload_reader.get(connection, name))
            assert stored is not None
            assert stored.cancel_requested
            assert stored.reason == "stop"
            wanted = await database.run(lambda connection: attempt_store.stops_requested(connection, EAST))
            assert wanted == [(AttemptKey(name, new_attempt(name).key.attempt), Eviction(EvictionCause.CANCELLED))]

    asyncio.run(scenario())


def test_workload_that_ended_or_never_was_cannot_be_cancelled(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            name = WorkloadId("w000001")
            await database.run(lambda connection: submit(connection, [submission(1)]))
            await database.run(lambda connection: dispatch(connection, new_attempt(name)))
            end = RecordEnd(new_attempt(name).key, "completed", "", 60.0, 1.0, 1.0, State.COMPLETED)
            await database.run(lambda connection: attempt_store.record_ends(connection, [end], {}))
            state = await database.run(lambda connection: cancellation_store.cancel(connection, name, "late", 70.0))
            assert state is State.COMPLETED
            nobody = WorkloadId("nobody")
            assert (
                await database.run(lambda connection: cancellation_store.cancel(connection, nobody, "", 70.0)) is None
            )

    asyncio.run(scenario())


def test_cancel_and_dispatch_at_the_same_time_end_in_one_of_both(database_url: str) -> None:
    """1. The dispatcher holds the queue entry. 2. Cancel waits for it. 3. Dispatched: cancel finds it live."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            name = WorkloadId("w000001")
            await database.run(lambda connection: submit(connection, [submission(1)]))
            async with database.transaction() as dispatching:
                await dispatching.execute("SELECT FROM queue_entries WHERE workload = %s FOR UPDATE", (name,))
                cancelling = asyncio.create_task(
                    database.run(lambda connection: cancellation_store.cancel(connection, name, "stop", 50.0))
                )
                await until_somebody_waits(database)
                await dispatch(dispatching, new_attempt(name))
            assert await cancelling is State.DISPATCHED

    asyncio.run(scenario())


def test_cancel_of_a_workload_that_returns_to_the_queue_meanwhile_is_repeated(database_url: str) -> None:
    """1. Cancel finds no queue entry. 2. The attempt ends, the workload is queued again. 3. Cancel begins anew."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            name = WorkloadId("w000001")
            await database.run(lambda connection: submit(connection, [submission(1)]))
            await database.run(lambda connection: dispatch(connection, new_attempt(name)))
            end = RecordEnd(new_attempt(name).key, "preempted", "", 60.0, 1.0, 1.0, State.PENDING)
            async with database.transaction() as ending:
                await attempt_store.record_ends(ending, [end], {name: RequeuedEntry("A100", 8, 0.0)})
                cancelling = asyncio.create_task(
                    database.run(lambda connection: cancellation_store.cancel(connection, name, "stop", 70.0))
                )
                await until_somebody_waits(database)
            assert await cancelling is State.CANCELLED
            counts = await database.run(workload_reader.count_by_state)
            assert counts == {State.CANCELLED: 1}

    asyncio.run(scenario())


def test_outside_of_run_a_race_is_reported(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, []))
            async with database.transaction() as first:
                await workload_store.insert_submissions(first, [submission(1, key="k", digest=b"1")])

                async def second() -> None:
                    async with database.transaction() as connection:
                        await workload_store.insert_submissions(connection, [submission(2, key="k", digest=b"1")])

                racing = asyncio.create_task(second())
                await until_somebody_waits(database)
            with pytest.raises(RepeatTransaction):
                await racing

    asyncio.run(scenario())
