"""Promotions and samples of service in the database: what they leave of attained service, and what a restart finds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np

from cluster_manager.attempt_run.actions import RecordEnd
from domain.identifiers import AttemptNumber, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.service_scope import DistributionScope
from global_scheduler.levels.attained_service import AttainedService
from global_scheduler.ordering.gittins import GittinsOrdering
from global_scheduler.scan_settings import QueueRule, ScanSettings
from services.database import attempt_store, completed_store, promotion_store, queue_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.requeue_store import RequeuedEntry
from services.global_scheduler.completed_service import CompletedService
from tests.database.small_world import A100, ADS, VISION, dispatch, new_attempt, specification, submission, submit

W1, W2 = WorkloadId("w000001"), WorkloadId("w000002")


def run(database_url: str, story: Callable[[Database], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await story(database)

    asyncio.run(scenario())


async def attempt(
    connection: AnyConnection,
    workload: WorkloadId,
    number: int,
    started_s: float,
    ended_s: float,
    state: State = State.PENDING,
) -> None:
    """One of eight GPUs, from its dispatch to its end."""
    key = AttemptKey(workload, AttemptNumber(number))
    await dispatch(connection, new_attempt(workload, number, dispatched_s=started_s - 10.0))
    await attempt_store.record_started(connection, [(key, started_s)])
    entry = {workload: RequeuedEntry(A100, 8, 0.0)} if state is State.PENDING else {}
    await attempt_store.record_ends(connection, [RecordEnd(key, "ended", "", ended_s, 0.0, 0.0, state)], entry)


async def known(connection: AnyConnection) -> list[tuple[str, float, float, float]]:
    """Of each that waits: GPU-seconds and seconds since its promotion, and its first start."""
    rows = await queue_store.load_pending(connection, 1e9)
    columns = [np.asarray(column).tolist() for column in (rows.attained_gpu_s, rows.attained_s, rows.first_started_s)]
    return list(zip(rows.workloads, *columns, strict=True))


def test_a_promotion_counts_from_zero_and_keeps_the_account_whole(database_url: str) -> None:
    async def story(database: Database) -> None:
        async with database.transaction() as connection:
            await submit(connection, [submission(1), submission(2)])
            assert await known(connection) == [(W1, 0.0, 0.0, np.inf), (W2, 0.0, 0.0, np.inf)]
            await attempt(connection, W1, 1, 2_000.0, 2_100.0)
            assert await known(connection) == [(W1, 800.0, 100.0, 2_000.0), (W2, 0.0, 0.0, np.inf)]
            assert await promotion_store.promote(connection, [(W1, 2_099.0)]) == {}, "it waits since another time"
            done = await promotion_store.promote(connection, [(W1, 2_100.0)])
            assert done == {W1: promotion_store.StoredPromotion(W1, 100.0, 800.0)}
            assert (await known(connection))[0] == (W1, 0.0, 0.0, 2_000.0)
            await attempt(connection, W1, 2, 3_000.0, 3_050.0)
            assert (await known(connection))[0] == (W1, 400.0, 50.0, 2_000.0)
            cursor = await connection.execute(
                """SELECT attained_s, attained_gpu_s, before_promotion_s, before_promotion_gpu_s, first_started_s
                     FROM workloads WHERE workload = %s""",
                (W1,),
            )
            assert await cursor.fetchone() == (150.0, 1_200.0, 100.0, 800.0, 2_000.0)
        async with database.transaction() as connection:
            await dispatch(connection, new_attempt(W1, 3, dispatched_s=4_100.0))
            rows = await queue_store.load_running(connection)
            assert np.asarray(rows.attained_gpu_s).tolist() == [400.0], "of live attempts, too"

    run(database_url, story)


def test_a_promotion_waits_for_nobody(database_url: str) -> None:
    async def story(database: Database) -> None:
        async with database.transaction() as connection:
            await submit(connection, [submission(1), submission(2)])
            await attempt(connection, W1, 1, 2_000.0, 2_100.0)
            await attempt(connection, W2, 1, 2_000.0, 2_100.0)
        async with database.transaction() as other:
            await other.execute("SELECT 1 FROM workloads WHERE workload = %s FOR UPDATE", (W1,))
            async with database.transaction() as connection:
                done = await promotion_store.promote(connection, [(W1, 2_100.0), (W2, 2_100.0)])
                assert list(done) == [W2]
                assert [row[1] for row in await known(connection)] == [800.0, 0.0]

    run(database_url, story)


def test_samples_come_by_end_once_each_and_a_restart_finds_the_same_distribution(database_url: str) -> None:
    settings = ScanSettings(
        rules=(QueueRule(GittinsOrdering(), AttainedService()),) * 7, distribution=DistributionScope.GLOBAL
    )

    async def count(database: Database) -> int:
        return await database.run(completed_store.count_completed)

    async def story(database: Database) -> None:
        async with database.transaction() as connection:
            wanted = [specification(tenant) for tenant in (ADS, VISION, ADS)]
            await submit(connection, [submission(number, each) for number, each in enumerate(wanted, 1)])
            await attempt(connection, W1, 1, 2_000.0, 2_900.0, State.COMPLETED)
            await attempt(connection, W2, 1, 2_000.0, 2_100.0, State.COMPLETED)
        follows = CompletedService(settings)
        await follows.catch_up(database)
        assert follows.history is not None
        assert follows.history.distribution_for(ADS) is None
        assert await count(database) == 2
        assert await count(database) == 0
        async with database.transaction() as connection:
            samples = await completed_store.load_samples(connection, 0)
            assert (samples.tenants, samples.gpu_s.tolist()) == ((VISION, ADS), [800.0, 7_200.0])
            assert not (await completed_store.load_samples(connection, samples.last)).tenants
            # A promotion does not shorten what a workload received in all.
            await attempt(connection, WorkloadId("w000003"), 1, 3_000.0, 3_100.0)
            await promotion_store.promote(connection, [(WorkloadId("w000003"), 3_100.0)])
            await attempt(connection, WorkloadId("w000003"), 2, 3_200.0, 3_210.0, State.COMPLETED)
        await follows.catch_up(database)
        assert await count(database) == 1
        await follows.catch_up(database)
        anew = CompletedService(settings)
        await anew.catch_up(database)
        assert anew.history is not None
        for history in (follows.history, anew.history):
            distribution = history.distribution_for(ADS)
            assert distribution is not None
            assert distribution.samples_gpu_s.tolist() == [800.0, 880.0, 7_200.0]

    run(database_url, story)


def test_without_a_policy_that_asks_nothing_is_read(database_url: str) -> None:
    async def story(database: Database) -> None:
        service = CompletedService(ScanSettings())
        await service.catch_up(database)
        assert (service.needed, service.history) == (False, None)

    run(database_url, story)
