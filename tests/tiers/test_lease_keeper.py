"""A lease as a process keeps it: what it may be certain of, and what a late writer may not do."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import grpc
import pytest

from services.clock import SystemClock
from services.cluster_manager.server import ClusterManagerServer
from services.database import lease_store, standby_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import LeaseLost
from services.execution.emulated_executor import EmulatedExecutor
from services.tiers.fenced_transaction import fenced_transaction
from services.tiers.lease_keeper import LeaseKeeper
from services.tiers.side_by_side import until_one_ends
from tests.database.small_world import until_somebody_waits
from tests.execution.calls import calling, execute, statuses, stop
from tests.execution.orders import CLUSTER, emulated, key

_NAME = "regional/east"

_Result = TypeVar("_Result")


def _keeper(database: Database, holder: str, duration_real_s: float = 60.0) -> LeaseKeeper:
    return LeaseKeeper(database, _NAME, holder, f"{holder}:1", duration_real_s)


def _beside(story: Callable[[], Coroutine[object, object, _Result]]) -> _Result:
    """What the story returns, told on a loop of its own in another thread; this thread stands still until then."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, story()).result()


def test_one_that_slept_longer_than_its_lease_is_certain_of_nothing(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            keeper = _keeper(database, "one", duration_real_s=0.5)
            certain = [keeper.certain]
            await keeper.wait_until_held()
            certain.append(keeper.certain)
            time.sleep(0.6)  # noqa: ASYNC251 - the whole process sleeps, its event loop and all
            certain.append(keeper.certain)
            await keeper.wait_until_held()
            certain.append(keeper.certain)
            assert certain == [False, True, False, True]

    asyncio.run(scenario())


def test_who_is_late_writes_nothing(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            one, two = _keeper(database, "one", duration_real_s=0.05), _keeper(database, "two")
            former = await one.wait_until_held()
            present = await two.wait_until_held()
            assert present.token > former.token
            begun = []
            with pytest.raises(LeaseLost):
                async with fenced_transaction(database, former):
                    begun.append("the transaction")
            assert not begun
            async with fenced_transaction(database, present) as connection:
                await connection.execute("SELECT 1")

    asyncio.run(scenario())


def test_a_released_lease_is_taken_over_at_once_and_its_keeper_notices(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            one, two = _keeper(database, "one", duration_real_s=0.3), _keeper(database, "two")
            lease = await one.wait_until_held()
            await one.release(lease)
            await two.wait_until_held()
            await one.keep(lease)  # ends, because there is nothing to keep

    asyncio.run(scenario())


def test_who_stands_by_is_listed_until_it_leads_or_is_not_heard_of_any_more(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            # The lease outlasts whatever the machine does meanwhile; who stands by is forgotten soon.
            one, two, three = _keeper(database, "one"), _keeper(database, "two", 1.0), _keeper(database, "three", 1.0)
            lease = await one.wait_until_held()
            assert await _standing_by(database) == set()
            waiting = [asyncio.create_task(two.wait_until_held())]
            await _until_standing_by(database, {"two:1"})
            waiting.append(asyncio.create_task(three.wait_until_held()))
            await _until_standing_by(database, {"two:1", "three:1"})
            waiting[1].cancel()
            await _until_standing_by(database, {"two:1"})
            # It takes the lease when that is given back: then it leads, and stands by no more.
            await one.release(lease)
            await waiting[0]
            assert await _standing_by(database) == set()

    asyncio.run(scenario())


def test_who_stands_by_takes_over_though_what_it_says_of_itself_waits(database_url: str) -> None:
    """As where a connection of its own was lost in a transaction, of which the server has not heard yet."""

    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as hanging:
            one, two = _keeper(database, "one", duration_real_s=2.0), _keeper(database, "two")
            lease = await one.wait_until_held()
            await standby_store.stand_by(hanging, _NAME, "two", "two:1", 1, 600.0)
            waiting = asyncio.create_task(two.wait_until_held())
            async with asyncio.timeout(60.0):
                await until_somebody_waits(database)
                await one.release(lease)
                await waiting

    asyncio.run(scenario())


def test_who_has_led_stands_by_since_it_does_so_again(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(_stand_by)
            # It was heard of last an hour ago: it has led since.
            async with database.transaction() as connection:
                await connection.execute(
                    "UPDATE standbys SET since = since - interval '2 hours', seen_until = since - interval '1 hour'"
                )
            began = datetime.now(UTC)
            await database.run(_stand_by)
            (again,) = await database.run(standby_store.list_standbys)
            assert again.since > began - timedelta(minutes=1)
            await database.run(_stand_by)
            assert await database.run(standby_store.list_standbys) == [again]

    asyncio.run(scenario())


async def _stand_by(connection: AnyConnection) -> None:
    await standby_store.stand_by(connection, _NAME, "two", "two:1", 1, 600.0)


async def _standing_by(database: Database) -> set[str]:
    standbys = await database.run(standby_store.list_standbys)
    assert {standby.name for standby in standbys} <= {_NAME}
    return {standby.address for standby in standbys}


async def _until_standing_by(database: Database, addresses: set[str]) -> None:
    async with asyncio.timeout(60.0):
        while True:
            if await _standing_by(database) == addresses:
                break
            await asyncio.sleep(0.02)


def test_each_session_of_the_same_holder_has_a_greater_token(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            keeper = _keeper(database, "one")
            tokens = [(await keeper.wait_until_held()).token for _ in range(3)]
            assert tokens == sorted(set(tokens))

    asyncio.run(scenario())


def test_a_loop_that_is_busy_for_longer_than_its_lease_keeps_it(database_url: str) -> None:
    async def renewals_seen() -> int:
        """Beside the loop that is busy: until the lease was renewed often enough to have ended without that."""
        seen: set[datetime] = set()
        async with Database(database_url) as database:
            while len(seen) < 5:
                (record,) = await database.run(lease_store.list_leases)
                assert record.live
                seen.add(record.expires_at)
                await asyncio.sleep(0.01)
        return len(seen)

    async def scenario() -> None:
        async with Database(database_url) as database:
            keeper = _keeper(database, "one", duration_real_s=2.0)
            lease = await keeper.wait_until_held()

            async def work() -> int:
                seen = _beside(renewals_seen)  # The loop stands still meanwhile.
                async with fenced_transaction(database, lease) as connection:
                    await connection.execute("SELECT 1")
                assert keeper.certain
                return seen

            keeping = asyncio.ensure_future(keeper.keep(lease))
            await asyncio.sleep(0)
            assert await work() == 5
            assert not keeping.done()
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    asyncio.run(scenario())


def test_a_loop_that_makes_no_turn_for_too_long_loses_its_lease_and_writes_nothing_more(database_url: str) -> None:
    async def taken_over() -> int:
        """Beside the loop that is dead."""
        async with Database(database_url) as database:
            return (await _keeper(database, "two", duration_real_s=0.3).wait_until_held()).token

    async def scenario() -> None:
        async with Database(database_url) as database:
            keeper = LeaseKeeper(database, _NAME, "one", "one:1", 1.0, silence_real_s=0.2)
            lease = await keeper.wait_until_held()
            keeping = asyncio.ensure_future(keeper.keep(lease))
            await asyncio.sleep(0)
            assert _beside(taken_over) > lease.token  # The loop stands still until it has happened.
            assert not keeper.certain
            with pytest.raises(LeaseLost):
                async with fenced_transaction(database, lease) as connection:
                    await connection.execute("CREATE TABLE written_too_late ()")
            await keeping  # ends, because it was given up
            async with database.transaction() as connection:
                cursor = await connection.execute("SELECT to_regclass('written_too_late')")
                assert await cursor.fetchone() == (None,)

    asyncio.run(scenario())


def test_work_ends_when_its_loop_goes_on_after_the_lease_was_given_up(database_url: str) -> None:
    async def given_up() -> None:
        async with Database(database_url) as database:
            live = True
            while live:
                await asyncio.sleep(0.01)
                live = any(record.live for record in await database.run(lease_store.list_leases))

    async def scenario() -> None:
        async with Database(database_url) as database:
            # Without being given up it would last for an hour.
            keeper = LeaseKeeper(database, _NAME, "one", "one:1", 3_600.0, silence_real_s=0.2)
            lease = await keeper.wait_until_held()
            ended = []

            async def work() -> None:
                try:
                    await asyncio.sleep(0)
                    _beside(given_up)
                    await asyncio.Event().wait()
                finally:
                    ended.append("work")

            await until_one_ends(work(), keeper.keep(lease))
            assert ended == ["work"]
            assert (await keeper.wait_until_held()).token > lease.token

    asyncio.run(scenario())


def test_a_cluster_manager_that_may_have_lost_its_lease_takes_no_orders_but_answers() -> None:
    async def scenario() -> None:
        acts = True
        clock = SystemClock()
        server = ClusterManagerServer(CLUSTER, EmulatedExecutor(clock), clock, may_act=lambda: acts)
        port = await server.start("127.0.0.1:0")
        try:
            async with calling(port) as stub:
                await execute(stub, emulated(1e6))
                acts = False
                for refused in (execute(stub, emulated(1e6, workload="v")), stop(stub, key())):
                    with pytest.raises(grpc.aio.AioRpcError) as error:
                        await refused
                    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
                assert [status.workload for status in await statuses(stub)] == ["w"]
        finally:
            await server.stop(0.0)

    asyncio.run(scenario())


def test_when_one_of_several_works_fails_the_others_have_ended_before_it_is_reported() -> None:
    ended = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("endless")

    async def failing() -> None:
        await asyncio.sleep(0)
        raise LookupError("on purpose")

    with pytest.raises(LookupError):
        asyncio.run(until_one_ends(endless(), failing()))
    assert ended == ["endless"]
