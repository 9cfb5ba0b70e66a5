"""What workloads have attained survives ends, requeues, evictions and changes of size; and what estimates go by."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np
import pytest

from cluster_manager.attempt_run.actions import RecordEnd
from cluster_manager.attempt_run.events import Eviction
from domain.attained_service import AttainedService
from domain.events import EvictionCause
from domain.identifiers import AttemptNumber, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.placement_changes import ChangeKind, PlacementChange
from global_scheduler.knowledge import EstimateSource
from services.database import attempt_store, completed_store, estimate_store, placement_change_store, queue_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.requeue_store import RequeuedEntry
from tests.database.small_world import (
    A100,
    ADS,
    VISION,
    dispatch,
    new_attempt,
    placement,
    specification,
    submission,
    submit,
)

W1 = WorkloadId("w000001")


def in_one_transaction(database_url: str, story: Callable[[AnyConnection], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await story(connection)

    asyncio.run(scenario())


async def start(connection: AnyConnection, attempt: int, started_s: float, workload: WorkloadId = W1) -> AttemptKey:
    key = AttemptKey(workload, AttemptNumber(attempt))
    await attempt_store.record_started(connection, [(key, started_s)])
    return key


async def end(
    connection: AnyConnection, key: AttemptKey, ended_s: float, next_state: State = State.PENDING, kept: float = 0.0
) -> None:
    ended = RecordEnd(key, "ended", "", ended_s, kept, kept, next_state)
    entry = {key.workload: RequeuedEntry(A100, 8, 0.0)} if next_state is State.PENDING else {}
    assert set(await attempt_store.record_ends(connection, [ended], entry)) == {key}


async def waiting(connection: AnyConnection) -> tuple[float, float]:
    """GPU-seconds attained, and since when it waits, of the only workload in the queue."""
    rows = await queue_store.load_pending(connection, 1e9)
    assert rows.workloads == [W1]
    return float(np.asarray(rows.attained_gpu_s)[0]), float(np.asarray(rows.queued_since_s)[0])


async def live_service(connection: AnyConnection, now: float) -> float:
    """GPU-seconds attained at `now` by the only workload that runs, as a scan pass reckons."""
    rows = await queue_store.load_running(connection)
    (attained,), (gpus,), (since_s,) = (
        np.asarray(column, np.float64) for column in (rows.attained_gpu_s, rows.gpus, rows.changed_s)
    )
    return float(attained) if np.isnan(since_s) else float(attained + gpus * (now - since_s))


def test_never_does_a_requeue_lose_attained_service(database_url: str) -> None:
    """Attempts that were set up or not, resized or not, evicted or lost: the sums are those of `AttainedService`."""
    generator = np.random.default_rng(3)

    async def story(connection: AnyConnection) -> None:
        await submit(connection, [submission(1)])
        assert await waiting(connection) == (0.0, 1001.0)
        now, service = 2000.0, AttainedService()
        for attempt in range(1, 31):
            await dispatch(connection, new_attempt(W1, attempt, dispatched_s=now))
            assert await live_service(connection, now + 7.0) == pytest.approx(service.at(now)), "set-up is no service"
            now += 10.0
            run_s, saving_s = generator.uniform(1.0, 500.0, size=2).tolist()
            starts, resized, noted = generator.random(3) < 0.7
            key = await start(connection, attempt, now) if starts else AttemptKey(W1, AttemptNumber(attempt))
            if starts:
                service = service.holding(8, now)
            if starts and resized:
                now += run_s
                gpus = int(generator.integers(1, 9))
                change = PlacementChange(ChangeKind.RESIZED, (placement(),))
                to_be = (placement(gpus=gpus),)
                assert await placement_change_store.begin_change(connection, key, 1, to_be, change, now)
                service = service.holding(gpus, now)
            now += run_s
            assert await live_service(connection, now) == pytest.approx(service.at(now))
            service = service.settled(now)
            if noted:
                await attempt_store.begin_evictions(connection, [(key, Eviction(EvictionCause.DRAINED))], now)
                now += saving_s
            await end(connection, key, now)
            attained_gpu_s, queued_since_s = await waiting(connection)
            assert attained_gpu_s == pytest.approx(service.at(now))
            assert queued_since_s == now
            now += 60.0

    in_one_transaction(database_url, story)


def test_a_clock_that_is_behind_counts_no_second_twice(database_url: str) -> None:
    """A region's next session may be on another host, and clusters have clocks of their own."""

    async def story(connection: AnyConnection) -> None:
        await submit(connection, [submission(1)])
        await dispatch(connection, new_attempt(W1))
        key = await start(connection, 1, 2100.0)
        smaller, service = (placement(gpus=2),), AttainedService().holding(8, 2100.0).holding(2, 2090.0)
        change = PlacementChange(ChangeKind.RESIZED, (placement(),))
        assert await placement_change_store.begin_change(connection, key, 1, smaller, change, 2090.0)
        assert await live_service(connection, 2150.0) == service.at(2150.0) == 2 * 50

    in_one_transaction(database_url, story)


def test_service_is_counted_by_the_gpus_that_were_held_when(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        await submit(connection, [submission(1)])
        await dispatch(connection, new_attempt(W1))
        key = await start(connection, 1, 2100.0)
        smaller = (placement(gpus=2),)
        change = PlacementChange(ChangeKind.RESIZED, (placement(),))
        assert await placement_change_store.begin_change(connection, key, 1, smaller, change, 2200.0)
        assert await live_service(connection, 2250.0) == 8 * 100 + 2 * 50
        rows = await queue_store.load_running(connection)
        assert np.asarray(rows.working_since_s).tolist() == [2100.0], "it works since its start, whatever it holds"
        await end(connection, key, 2300.0)
        assert await waiting(connection) == (8 * 100 + 2 * 100, 2300.0)

    in_one_transaction(database_url, story)


def test_estimates_come_from_what_is_declared_then_from_the_past(database_url: str) -> None:
    async def completed(connection: AnyConnection, number: int, run_s: float) -> None:
        workload = WorkloadId(f"w{number:06d}")
        await dispatch(connection, new_attempt(workload))
        await end(connection, await start(connection, 1, 2000.0, workload), 2000.0 + run_s, State.COMPLETED)

    async def story(connection: AnyConnection) -> None:
        train, evaluate = (specification(ADS, name=name, emulated=False) for name in ("train", "evaluate"))
        stranger = replace(train, tenant=VISION)
        declares = specification(ADS, name="train")
        await submit(
            connection,
            [
                submission(number, wanted)
                for number, wanted in enumerate((train, train, evaluate, declares, train, stranger, replace(train, name="new")), 1)
            ],
        )  # fmt: skip
        await completed(connection, 1, 100.0)
        await completed(connection, 2, 300.0)
        await completed(connection, 3, 80.0)
        assert await completed_store.count_completed(connection) == 3
        assert await completed_store.count_completed(connection) == 0
        estimates = await estimate_store.of_pending(connection, 1e9, 3600.0)
        assert estimates.remaining_s.tolist() == [600.0, 200.0, 3600.0, 160.0]
        assert [EstimateSource(source) for source in estimates.source.tolist()] == [
            EstimateSource.DECLARED,
            EstimateSource.NAME_HISTORY,
            EstimateSource.ASSUMED,
            EstimateSource.TENANT_HISTORY,
        ]
        workload = WorkloadId("w000004")
        await dispatch(connection, new_attempt(workload))
        await end(connection, await start(connection, 1, 5000.0, workload), 5100.0, kept=75.0)
        assert (await estimate_store.of_pending(connection, 1e9, 3600.0)).remaining_s[0] == 525.0
        await dispatch(connection, new_attempt(workload, 2))
        assert (await estimate_store.of_running(connection, 1e9, 3600.0)).remaining_s.tolist() == [600.0]

    in_one_transaction(database_url, story)


def test_never_does_an_estimate_need_the_completed_workloads_again(database_url: str) -> None:
    """100,000 have completed, of 50 names: counted in parts, each once, the estimates are their means for good."""

    async def story(connection: AnyConnection) -> None:
        await submit(connection, [submission(1, specification(ADS, name="train-7", emulated=False))])
        await connection.execute(
            """INSERT INTO workloads (workload, tenant, name, specification, gpus, emulated, state, submitted_s, attained_s)
               SELECT 'old-' || n, %s, 'train-' || n %% 50, '', 1, false, %s, 0, n %% 1000
                 FROM generate_series(1, 100000) AS n""",
            (ADS, State.COMPLETED.value),
        )
        cursor = await connection.execute(
            "SELECT avg(attained_s) FROM workloads WHERE attained_s > 0 AND name = 'train-7'"
        )
        (mean_s,) = await cursor.fetchone() or (None,)
        parts = [await completed_store.count_completed(connection) for _ in range(11)]
        assert parts == [completed_store.COUNTED_AT_ONCE] * 10 + [0]
        await connection.execute("DELETE FROM workloads WHERE workload LIKE 'old-%%'")
        assert (await estimate_store.of_pending(connection, 1e9, 3600.0)).remaining_s.tolist() == [mean_s]

    in_one_transaction(database_url, story)


def test_two_services_never_count_a_completed_workload_twice(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await submit(connection, [submission(1, specification(ADS, name="train", emulated=False))])
                await connection.execute("UPDATE workloads SET state = %s, attained_s = 100", (State.COMPLETED.value,))
            async with database.transaction() as first:
                assert await completed_store.count_completed(first) == 1
                async with database.transaction() as second:
                    assert await completed_store.count_completed(second) == 0
            async with database.transaction() as connection:
                assert await completed_store.count_completed(connection) == 0
                cursor = await connection.execute("SELECT tenant, runs, total_s FROM run_times_of_tenants")
                assert await cursor.fetchall() == [(ADS, 1, 100.0)]

    asyncio.run(scenario())
