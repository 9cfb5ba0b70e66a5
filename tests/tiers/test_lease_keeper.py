"""A lease as a process keeps it: what it may be certain of, and what a late writer may not do."""

import asyncio
import time

import grpc
import pytest

from services.clock import SystemClock
from services.cluster_manager.server import ClusterManagerServer
from services.database.engine import Database
from services.database.lease_store import LeaseLost
from services.execution.emulated_executor import EmulatedExecutor
from services.tiers.fenced_transaction import fenced_transaction
from services.tiers.lease_keeper import LeaseKeeper
from services.tiers.side_by_side import until_one_ends
from tests.execution.calls import calling, execute, statuses, stop
from tests.execution.orders import CLUSTER, emulated, key

_NAME = "regional/east"


def _keeper(database: Database, holder: str, duration_real_s: float = 60.0) -> LeaseKeeper:
    return LeaseKeeper(database, _NAME, holder, f"{holder}:1", duration_real_s)


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


def test_each_session_of_the_same_holder_has_a_greater_token(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            keeper = _keeper(database, "one")
            tokens = [(await keeper.wait_until_held()).token for _ in range(3)]
            assert tokens == sorted(set(tokens))

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
