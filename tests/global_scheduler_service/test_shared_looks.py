"""Looks at many workloads are taken together: as many queries as for one, and nobody learns, waits or fails for another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from google.protobuf.message import DecodeError

from domain.identifiers import WorkloadId
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.global_scheduler.shared_looks import WORKLOADS_AT_ONCE, SharedLooks
from services.global_scheduler.workload_look import Seen
from tests.database.proxies import counting_proxy, failing_proxy
from tests.database.small_world import until_somebody_waits
from tests.global_scheduler_service.watched_world import KINDS, LOOK, name_of, store_world

_ROUND_TRIPS = 31
"""Of a batch with workloads of every kind: each of its queries is one, or four where a result comes in parts."""

_LOCK = "LOCK TABLE workloads IN ACCESS EXCLUSIVE MODE"


async def _store(url: str, copies: int) -> list[WorkloadId]:
    async with Database(url) as database, database.transaction() as connection:
        return await store_world(connection, copies)


def _looks(database: Database, patience_real_s: float = 10.0) -> SharedLooks:
    return SharedLooks(database, LOOK, patience_real_s)


def _asked(looks: SharedLooks, names: Sequence[WorkloadId], *, soon: bool = True) -> list[asyncio.Task[Seen | None]]:
    return [asyncio.create_task(looks.take(name, None, soon=soon)) for name in names]


def test_a_look_at_many_sees_of_each_what_a_look_at_it_alone_sees(database_url: str) -> None:
    async def scenario() -> None:
        names = await _store(database_url, 3)

        async def compare(connection: AnyConnection) -> None:
            together = await LOOK.load(connection, names)
            again = await LOOK.load(connection, names[::2], together)
            for name in names:
                alone = (await LOOK.load(connection, [name])).get(name)
                assert together.get(name) == alone
                assert name not in names[::2] or again.get(name) == alone
                if alone is not None:
                    assert LOOK.message(together[name]) == LOOK.message(alone)
            assert {name for name in names if name not in together} == {name_of("missing", copy) for copy in range(3)}
            told = {kind: LOOK.message(together[name_of(kind, 1)]) for kind in KINDS if kind != "missing"}
            # There is something to see of each kind of thing, or it would not be compared.
            assert [told[kind].queue_position.rank for kind in ("told", "ranked", "unranked")] == [2, 5, 0]
            assert told["live"].attempts[0].tunings[0].profile
            assert [len(told[kind].attempts) for kind in ("unranked", "live", "again")] == [0, 1, 2]
            assert told["ranked"].consolidations[0].skew
            assert told["told"].notification.host == "example.org"
            assert told["waits"].waits_for[0].workload == name_of("array", 1)
            assert told["array-over"].elements.failed == [0]
            assert told["array"].elements.size == 4

        async with Database(database_url) as database:
            await database.run(compare, snapshot=True)

    asyncio.run(scenario())


def test_many_looks_wait_for_the_database_as_often_as_one(database_url: str) -> None:
    async def scenario() -> None:
        copies = WORKLOADS_AT_ONCE // len(KINDS)
        names = await _store(database_url, copies)
        async with counting_proxy(database_url) as proxy, Database(proxy.url) as database:
            looks = _looks(database)
            await looks.take(names[0], None, soon=True)  # opens the connection
            trips = []
            for some in (names[: len(KINDS)], names):
                before = proxy.so_far()
                seen = await asyncio.gather(*_asked(looks, some), *_asked(looks, some, soon=False))
                assert seen[: len(some)] == seen[len(some) :]
                trips.append(proxy.since(before))
            assert trips == [_ROUND_TRIPS, _ROUND_TRIPS]

    asyncio.run(scenario())


def test_whoever_has_just_come_and_whoever_looks_again_wait_for_one_batch_only(database_url: str) -> None:
    async def scenario() -> None:
        await _store(database_url, 1)
        async with Database(database_url) as database:
            for soon in (True, False):
                looks, answered = _looks(database), list[WorkloadId]()

                async def one(name: WorkloadId, looks: SharedLooks, answered: list[WorkloadId], *, soon: bool) -> None:
                    await looks.take(name, None, soon=soon)
                    answered.append(name)

                async with asyncio.TaskGroup() as group, database.transaction() as connection:
                    await connection.execute(_LOCK)
                    group.create_task(one(name_of("live", 0), looks, answered, soon=True))
                    await until_somebody_waits(database)
                    for number in range(4 * WORKLOADS_AT_ONCE):
                        group.create_task(one(WorkloadId(f"other-{number}"), looks, answered, soon=soon))
                    group.create_task(one(name_of("ended", 0), looks, answered, soon=not soon))
                    await asyncio.sleep(0)  # all have asked
                assert len(answered) == 4 * WORKLOADS_AT_ONCE + 2
                assert answered.index(name_of("ended", 0)) <= WORKLOADS_AT_ONCE

    asyncio.run(scenario())


def test_a_look_is_never_older_than_the_question(database_url: str) -> None:
    async def scenario() -> None:
        await _store(database_url, 1)
        name = name_of("live", 0)
        async with Database(database_url) as database:
            looks = _looks(database)
            async with database.transaction() as connection:
                await connection.execute(_LOCK)
                first = _asked(looks, [name])
                await until_somebody_waits(database)
                # The snapshot of the look under way is older than this change.
                await connection.execute("UPDATE attempts SET progress = 99")
                second = _asked(looks, [name])
                await asyncio.sleep(0)
            await asyncio.gather(*first)
            (seen,) = await asyncio.gather(*second)
            assert seen is not None
            assert LOOK.message(seen).progress == 99

    asyncio.run(scenario())


def test_who_goes_away_disturbs_nobody(database_url: str) -> None:
    async def scenario() -> None:
        await _store(database_url, 1)
        async with Database(database_url) as database:
            looks = _looks(database)
            async with database.transaction() as connection:
                await connection.execute(_LOCK)
                under_way = _asked(looks, [name_of("live", 0)] * 3)
                await until_somebody_waits(database)
                waiting = _asked(looks, [name_of("ended", 0), name_of("ended", 0), name_of("held", 0)])
                await asyncio.sleep(0)
                for gone in (under_way[0], waiting[0], waiting[2]):
                    gone.cancel()
            results = await asyncio.gather(*under_way, *waiting, return_exceptions=True)
            went = [isinstance(result, asyncio.CancelledError) for result in results]
            assert went == [True, False, False, True, False, True]
            assert results[1] == results[2] == await looks.take(name_of("live", 0), None, soon=True)
            assert results[4] == await looks.take(name_of("ended", 0), None, soon=True)

    asyncio.run(scenario())


def test_a_lost_database_fails_only_those_who_wait_for_it(database_url: str) -> None:
    async def scenario() -> None:
        names = await _store(database_url, 2)
        async with failing_proxy(database_url) as proxy, Database(proxy.url) as database:
            impatient = _looks(database, 0.0)
            proxy.break_next_commit(delivers=False)
            results = await asyncio.gather(*_asked(impatient, names), return_exceptions=True)
            assert all(isinstance(result, DatabaseUnavailable) for result in results)
            seen = await asyncio.gather(*_asked(impatient, names))
            # Who has the time of a call waits until the database is there again.
            proxy.break_next_commit(delivers=False)
            assert await asyncio.gather(*_asked(_looks(database), names)) == seen

    asyncio.run(scenario())


def test_what_cannot_be_said_of_one_is_told_to_who_asked_for_that_one(database_url: str) -> None:
    async def scenario() -> None:
        names = await _store(database_url, 1)
        async with Database(database_url) as database:
            looks = _looks(database)
            before = await asyncio.gather(*_asked(looks, names))
            async with database.transaction() as connection:
                await connection.execute(
                    "UPDATE workloads SET specification = %s WHERE workload = %s", (b"\x0a\x01", name_of("ended", 0))
                )
            after = await asyncio.gather(*_asked(looks, names), return_exceptions=True)
            for name, then, now in zip(names, before, after, strict=True):
                assert isinstance(now, DecodeError) if name == name_of("ended", 0) else now == then
            with pytest.raises(DecodeError):
                await looks.take(name_of("ended", 0), None, soon=True)

    asyncio.run(scenario())
