import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from domain.events import Event, EventKind
from domain.identifiers import ClusterId, RegionId, TenantId, WorkloadId
from services.database import event_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.event_follower import follow
from services.database.event_store import EventFilter, StoredEvent
from tests.examples import examples


def _event(number: int, workload: str = "w") -> Event:
    return Event(float(number), EventKind.SUBMITTED, WorkloadId(workload), details={"number": number})


def _numbers(stored: Sequence[StoredEvent]) -> list[object]:
    return [event.event.details["number"] for event in stored]


async def _append(connection: AnyConnection, *events: Event) -> None:
    await event_store.append(connection, events)


def test_every_field_comes_back(database_url: str) -> None:
    written = [
        Event(1.5, EventKind.MACHINE_DOWN, region=RegionId("r1"), cluster=ClusterId("c1"), details={"machine": "m"}),
        Event(
            2.25,
            EventKind.STARTED,
            WorkloadId("w"),
            3,
            TenantId("t"),
            0,
            0,
            RegionId("r1"),
            None,
            {"placement": [{"job": "train", "gpus": [0, 1], "cpus": 1.5}], "within_quota": False, "note": "ü\n'\\\""},
        ),
    ]

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: event_store.append(connection, written))
            page = await database.run(lambda connection: event_store.read(connection, 0, 10))
            assert [stored.event for stored in page.events] == written
            assert page.complete

    asyncio.run(scenario())


def test_appends_of_one_transaction_follow_each_other(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await _append(connection, _event(1), _event(2))
                await _append(connection)
                await _append(connection, _event(3))
            async with database.transaction() as connection:
                await _append(connection, _event(4))
            page = await database.run(lambda connection: event_store.read(connection, 0, 10))
            assert _numbers(page.events) == [1, 2, 3, 4]
            sequences = [stored.sequence for stored in page.events]
            assert sequences[:3] == [sequences[0], sequences[0] + 1, sequences[0] + 2]

    asyncio.run(scenario())


def test_reader_stops_before_a_transaction_that_may_still_add_something(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as early:
                await _append(early, _event(1))
                async with database.transaction() as late:
                    await _append(late, _event(2))
                # The later one is committed, but the earlier one will stand before it.
                page = await database.run(lambda connection: event_store.read(connection, 0, 10))
                assert page.events == ()
            after = page.through
            page = await database.run(lambda connection: event_store.read(connection, after, 10))
            assert _numbers(page.events) == [1, 2]

    asyncio.run(scenario())


def test_pages_join_without_gap_or_repetition(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            for number in range(7):
                async with database.transaction() as connection:
                    await _append(connection, _event(number))
            seen: list[object] = []
            after, complete = 0, False
            while not complete:
                async with database.transaction() as connection:
                    page = await event_store.read(connection, after, 3)
                seen += _numbers(page.events)
                after, complete = page.through, page.complete
            assert seen == list(range(7))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (EventFilter(workload=WorkloadId("b")), [2, 3]),
        (EventFilter(tenant=TenantId("t2")), [3]),
        (EventFilter(kinds=(EventKind.STARTED, EventKind.EVICTED)), [2]),
        (EventFilter(workload=WorkloadId("b"), kinds=(EventKind.SUBMITTED,)), [3]),
        (EventFilter(workload=WorkloadId("nobody")), []),
    ],
    ids=["workload", "tenant", "kinds", "two", "none"],
)
def test_filters(database_url: str, wanted: EventFilter, expected: list[int]) -> None:
    events = [
        Event(1.0, EventKind.SUBMITTED, WorkloadId("a"), tenant=TenantId("t1"), details={"number": 1}),
        Event(2.0, EventKind.STARTED, WorkloadId("b"), tenant=TenantId("t1"), details={"number": 2}),
        Event(3.0, EventKind.SUBMITTED, WorkloadId("b"), tenant=TenantId("t2"), details={"number": 3}),
    ]

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: event_store.append(connection, events))
            page = await database.run(lambda connection: event_store.read(connection, 0, 10, wanted))
            assert _numbers(page.events) == expected
            newest = await database.run(event_store.newest_sequence)
            assert 0 < page.through <= newest

    asyncio.run(scenario())


def test_what_postgres_cannot_hold_is_replaced_or_refused(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            spoken = Event(1.0, EventKind.FAILED, WorkloadId("w"), details={"reason": "exit 1: \x00\\"})
            await database.run(lambda connection: event_store.append(connection, [spoken]))
            page = await database.run(lambda connection: event_store.read(connection, 0, 10))
            assert page.events[0].event.details["reason"] == "exit 1: \ufffd\\"
            absurd = Event(1.0, EventKind.FAILED, WorkloadId("w"), details={"loss": float("nan")})
            with pytest.raises(ValueError, match="not JSON compliant"):
                await database.run(lambda connection: event_store.append(connection, [absurd]))

    asyncio.run(scenario())


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=3, max_size=8))
def test_never_misses_or_repeats_an_event_while_writers_overlap(
    database_url: str, writers: list[tuple[int, bool]]
) -> None:
    """Writers hold their transactions open in a tangle, some give up; a follower reads all the while."""

    async def write(database: Database, writer: int, appends: int, gives_up: bool) -> set[tuple[int, int]]:
        with suppress(InterruptedError):
            async with database.transaction() as connection:
                for number in range(appends):
                    await _append(
                        connection, Event(0.0, EventKind.RANKED, details={"writer": writer, "number": number})
                    )
                    await connection.execute("SELECT pg_sleep(%s)", [0.003 * ((writer * 7 + number * 5) % 4)])
                _interrupt(gives_up)
            return {(writer, number) for number in range(appends)}
        return set()

    async def read_until_last(database: Database, start: int) -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []
        async with aclosing(follow(database, start)) as pages:
            async for page in pages:
                for stored in page.events:
                    if stored.event.event is EventKind.COMPLETED:
                        return seen
                    details = stored.event.details
                    seen.append((int(str(details["writer"])), int(str(details["number"]))))
        return seen

    async def scenario() -> None:
        async with Database(database_url, connections=12) as database:
            start = await database.run(event_store.newest_sequence)
            reading = asyncio.create_task(read_until_last(database, start))
            written = await asyncio.gather(
                *(write(database, writer, *behaviour) for writer, behaviour in enumerate([*writers, (1, False)]))
            )
            await database.run(lambda connection: _append(connection, Event(0.0, EventKind.COMPLETED)))
            seen = await reading
            assert sorted(seen) == sorted(set.union(*written))
            for writer in range(len(writers) + 1):
                numbers = [number for by, number in seen if by == writer]
                assert numbers == sorted(numbers)

    asyncio.run(scenario())


def _interrupt(gives_up: bool) -> None:
    if gives_up:
        raise InterruptedError
