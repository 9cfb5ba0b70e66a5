import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster_manager.attempt_run.actions import RecordEnd
from domain.identifiers import AttemptNumber, TenantId, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.rank import QueuePosition, Standing
from services.database import attempt_store, queue_store, workload_reader, workload_store
from services.database.engine import Database
from services.database.queue_store import RankedEntries
from services.database.requeue_store import RequeuedEntry
from services.database.workload_reader import BadPageToken, StoredWorkload, StoredWorkloadFilter
from tests.database.small_world import (
    ADS,
    EAST,
    FORGET_WORKLOADS,
    VISION,
    dispatch,
    new_attempt,
    placement,
    specification,
    submission,
    submit,
)
from tests.examples import examples


async def _list_all(database: Database, wanted: StoredWorkloadFilter, page_size: int) -> list[StoredWorkload]:
    found: list[StoredWorkload] = []
    token = ""
    while True:
        async with database.transaction() as connection:
            page = await workload_reader.list_page(connection, wanted, page_size, token)
        found += page.workloads
        token = page.next_page_token
        if not token:
            return found
        assert len(page.workloads) == page_size


async def _prepare(database: Database) -> None:
    """w1 ended, w2 live in the east, w3 waits, w4 and w5 are pending."""
    batch = [
        submission(1),
        submission(2, specification(name="click-model")),
        submission(3, specification(VISION)),
        submission(4, specification(VISION, name="Click!")),
        submission(5, submitted_s=1004.0),
    ]
    await database.run(lambda connection: submit(connection, batch))
    for number in (1, 2):
        async with database.transaction() as connection:
            await dispatch(connection, new_attempt(WorkloadId(f"w00000{number}"), machine=f"east-b-r0-m{number}"))
    end = RecordEnd(AttemptKey(WorkloadId("w000001"), AttemptNumber(1)), "failed", "exit 1", 3e3, 1, 1, State.FAILED)
    async with database.transaction() as connection:
        await attempt_store.record_ends(connection, [end], {})
        await connection.execute(
            "UPDATE queue_entries SET state = 'WAITING', reason = 'full' WHERE workload = 'w000003'"
        )


def _numbers(found: Sequence[StoredWorkload]) -> list[int]:
    return [int(stored.workload[1:]) for stored in found]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (StoredWorkloadFilter(), [5, 4, 3, 2, 1]),
        (StoredWorkloadFilter(tenant=VISION), [4, 3]),
        (StoredWorkloadFilter(states=(State.PENDING,)), [5, 4]),
        (StoredWorkloadFilter(states=(State.WAITING, State.FAILED)), [3, 1]),
        (StoredWorkloadFilter(states=(State.DISPATCHED,), region=EAST), [2]),
        (StoredWorkloadFilter(region=EAST), [2, 1]),
        (StoredWorkloadFilter(name_contains="click"), [2]),
        (StoredWorkloadFilter(name_contains="%"), []),
        (StoredWorkloadFilter(submitted_after_s=1002.0, submitted_before_s=1004.0), [3]),
        (StoredWorkloadFilter(tenant=TenantId("nobody")), []),
    ],
    ids=["all", "tenant", "pending", "two states", "live", "region", "name", "no pattern", "times", "nobody"],
)
def test_filters(database_url: str, wanted: StoredWorkloadFilter, expected: list[int]) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await _prepare(database)
            for page_size in (1, 2, 10):
                assert _numbers(await _list_all(database, wanted, page_size)) == expected

    asyncio.run(scenario())


def test_queue_entry_shows_state_reason_and_position(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await _prepare(database)
            name = WorkloadId("w000003")
            stored = await database.run(lambda connection: workload_reader.get(connection, name))
            assert stored is not None
            assert (stored.state, stored.reason, stored.position) == (State.WAITING, "full", None)
            ranked = RankedEntries([name], [3], [0], [-0.25], [True])
            await database.run(lambda connection: queue_store.store_ranks(connection, ranked))
            stored = await database.run(lambda connection: workload_reader.get(connection, name))
            assert stored is not None
            assert stored.position == QueuePosition(name, Standing(3, 0), -0.25, 1003.0, within_quota=True)
            assert await database.run(lambda connection: workload_reader.get(connection, WorkloadId("none"))) is None
            counts = await database.run(workload_reader.count_by_state)
            assert counts == {State.PENDING: 2, State.WAITING: 1, State.DISPATCHED: 1, State.FAILED: 1}

    asyncio.run(scenario())


def test_attempts_are_reported_with_their_placements(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            name = WorkloadId("w000001")
            await database.run(lambda connection: submit(connection, [submission(1)]))
            first, second = new_attempt(name), new_attempt(name, 2, machine="east-a-r0-m0", dispatched_s=2500.0)
            end = RecordEnd(first.key, "preempted", "made room", 2400.0, 5.0, 4.0, State.PENDING)
            async with database.transaction() as connection:
                await dispatch(connection, first)
                await attempt_store.record_started(connection, [(first.key, 2001.0)])
                await attempt_store.record_ends(connection, [end], {name: RequeuedEntry("A100", 8, 0.0)})
                await dispatch(connection, second)
            names = [name, WorkloadId("x")]
            attempts = await database.run(lambda connection: workload_reader.load_attempts(connection, names))
            assert attempts.keys() == {name}
            older, newer = attempts[name]
            assert (older.key, older.state, older.end, older.end_reason) == (
                first.key,
                "ENDED",
                "preempted",
                "made room",
            )
            assert (older.started_s, older.ended_s, older.checkpoint_progress) == (2001.0, 2400.0, 4.0)
            assert older.placements == (placement(),)
            assert (newer.key.attempt, newer.state, newer.started_s) == (2, "DISPATCHED", None)
            assert newer.placements == (placement("east-a-r0-m0"),)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "token", ["x", "é", "bnVsbA==", "WzEsMl0=", "W251bGwsIm4iLCJtIl0=", "WzFlOTk5LCAibiIsICJtIl0="], ids=str
)
def test_damaged_page_token_is_refused(database_url: str, token: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            with pytest.raises(BadPageToken):
                await database.run(
                    lambda connection: workload_reader.list_page(connection, StoredWorkloadFilter(), 1, token)
                )

    asyncio.run(scenario())


def test_page_token_of_another_filter_is_refused(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await _prepare(database)
            page = await database.run(
                lambda connection: workload_reader.list_page(connection, StoredWorkloadFilter(), 2)
            )
            with pytest.raises(BadPageToken, match="another list"):
                await database.run(
                    lambda connection: workload_reader.list_page(
                        connection, StoredWorkloadFilter(tenant=ADS), 2, page.next_page_token
                    )
                )

    asyncio.run(scenario())


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(1, 4))
def test_never_repeats_or_skips_a_workload_while_newer_ones_arrive(
    database_url: str, seconds: list[int], page_size: int
) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await connection.execute(FORGET_WORKLOADS)
                await submit(connection, [submission(n, submitted_s=float(s)) for n, s in enumerate(seconds)])
            found: list[StoredWorkload] = []
            token, newer = "", 100
            while True:
                async with database.transaction() as connection:
                    page = await workload_reader.list_page(connection, StoredWorkloadFilter(), page_size, token)
                    await workload_store.insert_submissions(connection, [submission(newer, submitted_s=50.0)])
                found += page.workloads
                token, newer = page.next_page_token, newer + 1
                if not token:
                    break
            expected = sorted(range(len(seconds)), key=lambda n: (-seconds[n], -n))
            assert _numbers(found) == expected

    asyncio.run(scenario())
