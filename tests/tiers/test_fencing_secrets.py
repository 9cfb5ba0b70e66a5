"""Who has guessed the number of a lease gives no orders: the secret that came with it is asked for too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial

import grpc
import pytest

from domain.fleet import Cluster, Fleet, Region
from domain.identifiers import ClusterId, RegionId
from services.clock import SystemClock
from services.cluster_manager.server import ClusterManagerServer
from services.database import fleet_store, lease_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import IssuedFence, Lease
from services.execution.emulated_executor import EmulatedExecutor
from services.wire.plans import attempt_reference_to_proto
from tests.execution.calls import Stub, calling, plan_of, statuses
from tests.execution.orders import emulated, key
from topmast.v1 import cluster_manager_pb2

CLUSTER = ClusterId("east-a")
RUNNING = cluster_manager_pb2.ATTEMPT_PHASE_RUNNING


async def _acquire(connection: AnyConnection) -> Lease:
    lease = await lease_store.acquire(connection, "regional/east", "one", "one:1", 17, 60.0)
    assert lease is not None
    return lease


@asynccontextmanager
async def _manager(database: Database) -> AsyncIterator[Stub]:
    fleet = Fleet((Region(RegionId("east"), (Cluster(CLUSTER, ()),)),))
    await database.run(partial(fleet_store.apply_fleet, fleet=fleet))

    async def issued() -> IssuedFence:
        return await database.run(partial(lease_store.newest_regional_fence, cluster=CLUSTER))

    clock = SystemClock()
    server = ClusterManagerServer(CLUSTER, EmulatedExecutor(clock), clock, issued_fence=issued)
    port = await server.start("127.0.0.1:0")
    try:
        async with calling(port) as stub:
            yield stub
    finally:
        await server.stop(5.0)


async def _execute(stub: Stub, token: int, secret: str) -> None:
    request = cluster_manager_pb2.ExecutePlanRequest(
        plans=[plan_of(emulated(1e6))], fencing_token=token, fencing_secret=secret
    )
    await stub.ExecutePlan(request)


async def _kill(stub: Stub, token: int, secret: str) -> None:
    attempts = [attempt_reference_to_proto(key())]
    await stub.StopAttempt(
        cluster_manager_pb2.StopAttemptRequest(attempts=attempts, fencing_token=token, fencing_secret=secret)
    )


async def _code_of(call: Awaitable[object]) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code()


def test_never_does_a_guessed_number_end_an_attempt(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, _manager(database) as stub:
            lease = await database.run(_acquire)
            await _execute(stub, lease.token, lease.secret)
            for secret in ("", "guessed", lease.secret[:-1]):
                codes = [await _code_of(_kill(stub, token, secret)) for token in range(1, 17)]
                assert codes[0] is grpc.StatusCode.PERMISSION_DENIED
                assert set(codes[1:]) == {grpc.StatusCode.INVALID_ARGUMENT}
            (status,) = await statuses(stub)
            assert status.phase == RUNNING
            await _kill(stub, lease.token, lease.secret)
            (status,) = await statuses(stub)
            assert status.phase == cluster_manager_pb2.ATTEMPT_PHASE_STOPPED

    asyncio.run(scenario())


def test_a_younger_lease_is_taken_with_its_own_secret_only(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, _manager(database) as stub:
            older = await database.run(_acquire)
            await _execute(stub, older.token, older.secret)
            younger = await database.run(_acquire)
            assert await _code_of(_kill(stub, younger.token, older.secret)) is grpc.StatusCode.PERMISSION_DENIED
            assert await _code_of(_kill(stub, younger.token, "")) is grpc.StatusCode.PERMISSION_DENIED
            # The number is known now, whoever showed it: the older lease is over.
            assert await _code_of(_kill(stub, older.token, older.secret)) is grpc.StatusCode.FAILED_PRECONDITION
            watch = stub.WatchStatus(cluster_manager_pb2.WatchStatusRequest(fencing_token=younger.token))
            assert await _code_of(anext(aiter(watch))) is grpc.StatusCode.PERMISSION_DENIED
            await _kill(stub, younger.token, younger.secret)

    asyncio.run(scenario())


def test_a_lease_of_the_version_before_is_taken_by_its_number(database_url: str) -> None:
    """Managers are replaced before, or after, the regional schedulers: neither waits for the other."""

    async def scenario() -> None:
        async with Database(database_url) as database, _manager(database) as stub:
            await database.run(_acquire)
            await database.run(_count_on)
            await _execute(stub, 2, "")
            lease = await database.run(_acquire)
            assert await _code_of(_kill(stub, lease.token, "")) is grpc.StatusCode.PERMISSION_DENIED
            await _kill(stub, lease.token, lease.secret)

    asyncio.run(scenario())


async def _count_on(connection: AnyConnection) -> None:
    """As a program does that knows of no secrets."""
    await connection.execute("UPDATE leases SET token = token + 1")
