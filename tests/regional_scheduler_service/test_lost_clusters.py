"""What ends when a cluster or a region is lost, and what an operator is told who says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from cluster_manager.attempt_run.events import Eviction
from domain.events import EvictionCause
from domain.identifiers import AttemptNumber, ClusterId, RegionId, WorkloadId
from domain.placement import AttemptKey
from services.clock import SystemClock
from services.configuration import Configuration, LeaseConfiguration
from services.database import attempt_store, fleet_store, lease_store, lost_cluster_store, quota_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.global_scheduler.declaring_lost import declare_lost
from services.grpc_errors import CallRefused, InvalidArgument, NotFound, PreconditionFailed
from services.regional_scheduler.lost_clusters import STOP_PATIENCE_REAL_S
from services.regional_scheduler.tier import RegionalSchedulerTier
from services.wire.workloads import specification_to_proto
from tests.database.small_world import (
    ADS,
    EAST,
    FLEET,
    dispatch,
    new_attempt,
    placement,
    specification,
    submission,
    submit,
)
from topmast.v1.global_scheduler_pb2 import DeclareLostRequest, DeclareLostResponse

COAST = RegionId("coast")
LOST, OTHER = ClusterId("east-b"), ClusterId("east-a")
PATIENCE_REAL_S = 240.0
"""A guard against hangs, not a measure of speed."""
LIMITS = (30.0, 10.0)
SOON = Configuration(lease=LeaseConfiguration(duration_real_s=1.0, tasks_stop_after_real_s=30.0, lost_grace_real_s=1.0))
SAVED = 30.0
"""Progress of the running attempt at its last checkpoint."""
LONG_AGO_REAL_S = 3_600.0

RUNNING, WAITING_TO_START, DRAINED, CANCELLED = (WorkloadId(f"w00000{number}") for number in range(1, 5))
EVERYTHING = (RUNNING, WAITING_TO_START, DRAINED, CANCELLED)


async def held(
    connection: AnyConnection, name: str, ended_real_s: float = 0.0, stop_after_s: float | None = None
) -> None:
    """The lease is held for long yet, or ended so long ago."""
    assert await lease_store.acquire(connection, name, "it", "nowhere:1", 1, 600.0, stop_after_s) is not None
    if ended_real_s:
        await connection.execute(
            "UPDATE leases SET expires_at = clock_timestamp() - make_interval(secs => %s) WHERE name = %s",
            (ended_real_s, name),
        )


async def at_work(connection: AnyConnection) -> None:
    """One attempt in each state, all of them in one cluster of the east."""
    await fleet_store.apply_fleet(connection, FLEET)
    serialized = specification_to_proto(specification(gpus=2)).SerializeToString()
    wanted = [replace(submission(number, specification(gpus=2)), serialized=serialized) for number in range(1, 5)]
    await submit(connection, wanted)
    await quota_store.release(connection, [(ADS, {"A100": -8})])
    for number, name in enumerate(EVERYTHING):
        there = placement()._replace(gpu_indices=(2 * number, 2 * number + 1), millicpus=1_000, mebibytes=64)
        await dispatch(connection, replace(new_attempt(name), placements=(there,), charges={"A100": 2}))
    started = [name for name in EVERYTHING if name != WAITING_TO_START]
    await attempt_store.record_started(connection, [(first(name), 2_100.0) for name in started])
    await attempt_store.record_checkpoints(connection, [(first(RUNNING), SAVED, 2_150.0)])
    await connection.execute(
        "UPDATE attempts SET progress = %s, checkpoint_progress = %s WHERE workload = %s",
        (SAVED + 15.0, SAVED, RUNNING),
    )
    await attempt_store.begin_evictions(connection, [(first(DRAINED), Eviction(EvictionCause.DRAINED))], 2_200.0)
    await connection.execute("UPDATE workloads SET cancel_requested = true WHERE workload = %s", (CANCELLED,))


def first(workload: WorkloadId) -> AttemptKey:
    return AttemptKey(workload, AttemptNumber(1))


@asynccontextmanager
async def scheduler_at_work(database: Database, region: RegionId) -> AsyncIterator[None]:
    tier = RegionalSchedulerTier(region, database, SystemClock(), SOON)
    port = await tier.start("127.0.0.1:0")
    running = asyncio.ensure_future(tier.run(f"127.0.0.1:{port}", "it"))
    try:
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await tier.stop(0.0)


async def until_none_is_live(database: Database) -> None:
    async with asyncio.timeout(PATIENCE_REAL_S):
        while True:
            async with database.transaction() as connection:
                cursor = await connection.execute("SELECT count(*) FROM attempts WHERE ended_s IS NULL")
                if await cursor.fetchone() == (0,):
                    return
            await asyncio.sleep(0.05)


async def check_all_ended(connection: AnyConnection, *, why: str, lost: set[str]) -> None:
    """As it is when the cluster of `at_work` was lost."""
    cursor = await connection.execute('SELECT workload, "end", end_reason FROM attempts ORDER BY workload')
    ends = {row[0]: (row[1], row[2]) for row in await cursor.fetchall()}
    assert {name: end for name, (end, _) in ends.items()} == {
        RUNNING: "machine_lost",
        WAITING_TO_START: "machine_lost",
        DRAINED: "machine_lost",
        CANCELLED: "cancelled",
    }
    assert all(why in reason or name == WAITING_TO_START for name, (_, reason) in ends.items()), ends
    cursor = await connection.execute("SELECT workload, state FROM workloads ORDER BY workload")
    states: dict[str, str] = dict(await cursor.fetchall())
    assert states == {**dict.fromkeys(EVERYTHING, "PENDING"), CANCELLED: "CANCELLED"}
    cursor = await connection.execute("SELECT checkpoint_progress FROM workloads WHERE workload = %s", (RUNNING,))
    assert await cursor.fetchone() == (SAVED,), "it goes on from its last checkpoint"
    cursor = await connection.execute("SELECT count(*) FROM queue_entries")
    assert await cursor.fetchone() == (3,)
    assert (await quota_store.lock(connection, [(ADS, "A100")]))[ADS, "A100"] == 0
    cursor = await connection.execute("SELECT event, cluster FROM events WHERE event IN ('cluster_lost', 'evicted')")
    events = await cursor.fetchall()
    assert {cluster for event, cluster in events if event == "cluster_lost"} == lost
    assert sum(event == "evicted" for event, _ in events) == 3


# ---------------------------------------------------------------- by itself


def test_a_region_ends_what_a_lost_cluster_had_in_whatever_state_it_was(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await at_work(connection)
                await held(connection, f"cluster/{LOST}", LONG_AGO_REAL_S)
                await held(connection, f"cluster/{OTHER}")
            async with scheduler_at_work(database, EAST):
                await until_none_is_live(database)
                async with database.transaction() as connection:
                    await check_all_ended(connection, why="its manager has held no lease for 36", lost={LOST})
                    (standing,) = [one for one in await standings(connection) if one.cluster == LOST]
                    assert standing.lost is not None

    asyncio.run(scenario())


def test_another_region_ends_what_a_lost_region_had(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await at_work(connection)
                await held(connection, f"regional/{EAST}", LONG_AGO_REAL_S)
                # A manager is there: what runs goes on without a scheduler, however long that is away.
                await held(connection, f"cluster/{LOST}", stop_after_s=30.0)
                assert await lost_cluster_store.overdue_regions(connection, COAST, *LIMITS) == []
                await held(connection, f"cluster/{LOST}", 35.0, stop_after_s=30.0)
                assert await lost_cluster_store.overdue_regions(connection, COAST, *LIMITS) == []
                await held(connection, f"cluster/{LOST}", 45.0, stop_after_s=30.0)
                assert await lost_cluster_store.overdue_regions(connection, COAST, *LIMITS) == [EAST]
            async with scheduler_at_work(database, COAST):
                await until_none_is_live(database)
                async with database.transaction() as connection:
                    await check_all_ended(connection, why="the scheduler of its region", lost={LOST, OTHER})

    asyncio.run(scenario())


async def standings(connection: AnyConnection) -> list[lost_cluster_store.ClusterStanding]:
    return await lost_cluster_store.standings(connection, EAST, *LIMITS)


def in_one_transaction(database_url: str, story: Callable[[AnyConnection], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await story(connection)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("ended_real_s", "stop_after_s", "overdue"),
    [
        (0.0, None, False),
        (LIMITS[0] + 1.0, None, False),
        (sum(LIMITS) + 1.0, None, True),
        # What the manager said counts, not what the region is configured to.
        (sum(LIMITS) + 1.0, 300.0, False),
        (LIMITS[1] + 6.0, 5.0, True),
    ],
)
def test_a_cluster_is_lost_when_its_manager_has_held_no_lease_for_as_long_as_it_has_said(
    database_url: str, ended_real_s: float, stop_after_s: float | None, overdue: bool
) -> None:
    async def story(connection: AnyConnection) -> None:
        await fleet_store.apply_fleet(connection, FLEET)
        await held(connection, f"cluster/{LOST}", ended_real_s, stop_after_s)
        never, known = await standings(connection)
        assert (never.cluster, never.live, never.overdue, never.silent_s) == (OTHER, False, True, None)
        assert (known.cluster, known.live, known.overdue) == (LOST, ended_real_s == 0.0, overdue)
        assert await lost_cluster_store.fence_if_silent(connection, LOST, *LIMITS) is overdue
        lease = lease_store.Lease(f"cluster/{LOST}", "it", 1)
        assert await lease_store.renew(connection, lease, 60.0) is not overdue, "one that wakes up is fenced"

    in_one_transaction(database_url, story)


# ---------------------------------------------------------------- by an operator


async def ask(connection: AnyConnection, region: str, cluster: str = "", *, yes: bool = False) -> DeclareLostResponse:
    return await declare_lost(connection, DeclareLostRequest(region=region, cluster=cluster, yes=yes), SystemClock())


@pytest.mark.parametrize(
    ("region", "cluster", "refusal", "sentence"),
    [
        ("", "", InvalidArgument, "region: is empty"),
        ("moon", "", NotFound, "there is no region 'moon'; the fleet has coast, east"),
        ("east", "coast-a", NotFound, "there is no cluster 'east/coast-a'; region east has east-a, east-b"),
        (
            "east",
            LOST,
            PreconditionFailed,
            "the manager of cluster east-b holds its lease; 4 attempts run there: w000001#1",
        ),
        ("east", "", PreconditionFailed, "the scheduler of region east holds its lease, the manager of cluster east-b"),
    ],
)
def test_what_is_not_there_or_is_alive_is_refused_in_words(
    database_url: str, region: str, cluster: str, refusal: type[CallRefused], sentence: str
) -> None:
    async def story(connection: AnyConnection) -> None:
        await at_work(connection)
        await held(connection, f"regional/{EAST}")
        await held(connection, f"cluster/{LOST}")
        with pytest.raises(refusal) as refused:
            await ask(connection, region, cluster)
        assert sentence in refused.value.sentence
        cursor = await connection.execute("SELECT count(*) FROM lost_clusters")
        assert await cursor.fetchone() == (0,)

    in_one_transaction(database_url, story)


@pytest.mark.parametrize(("ended_real_s", "asks"), [(1.0, True), (29.0, True), (31.0, False)])
def test_whose_tasks_may_still_run_is_lost_only_to_who_says_yes(
    database_url: str, ended_real_s: float, asks: bool
) -> None:
    """Its manager has just lost its lease: what it runs stops itself soon, and until then it would run twice."""

    async def story(connection: AnyConnection) -> None:
        await at_work(connection)
        await held(connection, f"cluster/{LOST}", ended_real_s, stop_after_s=30.0)
        if asks:
            with pytest.raises(PreconditionFailed) as refused:
                await ask(connection, EAST)
            assert "the tasks of cluster east-b may run on for" in refused.value.sentence
            assert "4 attempts run there: w000001#1" in refused.value.sentence
        answer = await ask(connection, EAST, yes=asks)
        assert list(answer.clusters) == [OTHER, LOST]
        assert list((await ask(connection, EAST)).clusters) == [], "it was said before"
        await check_all_ended(connection, why="an operator has declared it lost", lost={LOST, OTHER})

    in_one_transaction(database_url, story)


def test_a_lost_cluster_of_a_region_that_is_there_is_left_to_that(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await at_work(connection)
                await held(connection, f"regional/{EAST}")
                await held(connection, f"cluster/{LOST}", 1.0)
                answer = await ask(connection, EAST, LOST)
                assert list(answer.clusters) == [LOST]
                assert list(answer.attempts) == [f"{name}#1" for name in EVERYTHING]
                assert list((await ask(connection, EAST, LOST)).clusters) == [], "it was said before"
                await connection.execute(
                    "UPDATE leases SET expires_at = clock_timestamp() WHERE name LIKE 'regional/%%'"
                )
            async with scheduler_at_work(database, EAST):
                await until_none_is_live(database)
                async with database.transaction() as connection:
                    await check_all_ended(connection, why="an operator has declared it lost", lost={LOST})

    asyncio.run(scenario())


@pytest.mark.parametrize("manager_is_there", [False, True])
def test_a_lost_region_is_ended_at_once_and_managers_that_are_there_get_time_to_stop(
    database_url: str, manager_is_there: bool
) -> None:
    async def story(connection: AnyConnection) -> None:
        await at_work(connection)
        await held(connection, f"regional/{EAST}", 1.0)
        await held(connection, f"cluster/{LOST}", 0.0 if manager_is_there else 1.0)
        await ask(connection, EAST, yes=manager_is_there)
        await check_all_ended(connection, why="an operator has declared it lost", lost={LOST, OTHER})
        cursor = await connection.execute("SELECT min(not_before_s), max(not_before_s) FROM queue_entries")
        row = await cursor.fetchone()
        assert row is not None
        expected = SystemClock().now() + STOP_PATIENCE_REAL_S if manager_is_there else 0.0
        assert row == (pytest.approx(expected, abs=60.0), pytest.approx(expected, abs=60.0))
        for name in (f"regional/{EAST}", f"cluster/{LOST}"):
            assert not await lease_store.renew(connection, lease_store.Lease(name, "it", 1), 60.0)

    in_one_transaction(database_url, story)
