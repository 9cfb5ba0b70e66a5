"""What a tier takes on: counts, sizes and bytes of requests, calls and streams at a time, and how long one may take."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TypeAlias, cast

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2_grpc
from grpc_status import rpc_status

from services.database import token_store
from services.database.engine import Database
from services.security.authentication import TokenAuthentication
from services.security.authorization import Authorization
from services.security.tokens import new_token
from services.tiers.grpc_server import TierServer
from services.tiers.request_settings import RequestSettings
from topmast.v1 import cluster_manager_pb2, cluster_manager_pb2_grpc, workload_pb2

Context: TypeAlias = "grpc.aio.ServicerContext[object, object]"
Stub: TypeAlias = "cluster_manager_pb2_grpc.ClusterManagerAsyncStub"

RawCall: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]"

_SERVICE = "/topmast.v1.ClusterManager/"


class _Waits(cluster_manager_pb2_grpc.ClusterManagerServicer):
    """Answers when it is told to, and says what has come."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[str] = asyncio.Queue()
        self.may_answer = asyncio.Event()

    async def ExecutePlan(
        self, request: cluster_manager_pb2.ExecutePlanRequest, context: Context
    ) -> cluster_manager_pb2.ExecutePlanResponse:
        self.came.put_nowait("plan")
        await self.may_answer.wait()
        return cluster_manager_pb2.ExecutePlanResponse()

    async def WatchStatus(
        self, request: cluster_manager_pb2.WatchStatusRequest, context: Context
    ) -> AsyncIterator[cluster_manager_pb2.WatchStatusResponse]:
        self.came.put_nowait("watch")
        yield cluster_manager_pb2.WatchStatusResponse()
        await self.may_answer.wait()

    async def ReadLogs(
        self, request: cluster_manager_pb2.ReadLogsRequest, context: Context
    ) -> AsyncIterator[cluster_manager_pb2.ReadLogsResponse]:
        yield cluster_manager_pb2.ReadLogsResponse()
        await self.may_answer.wait()


@asynccontextmanager
async def _serving(
    requests: RequestSettings, authorization: Authorization | None = None
) -> AsyncIterator[tuple[_Waits, str]]:
    servicer = _Waits()  # type: ignore[abstract]  # nothing else is called
    server = TierServer(
        [cluster_manager_pb2.DESCRIPTOR.services_by_name["ClusterManager"]],
        lambda server: cluster_manager_pb2_grpc.add_ClusterManagerServicer_to_server(servicer, server),
        requests,
        authorization=authorization,
    )
    port = await server.start("127.0.0.1:0")
    try:
        async with asyncio.timeout(60.0):
            yield servicer, f"127.0.0.1:{port}"
    finally:
        await server.stop(0.0)


@asynccontextmanager
async def _client(address: str) -> AsyncIterator[Stub]:
    """One of its own, with a connection of its own."""
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1))
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        yield cluster_manager_pb2_grpc.ClusterManagerStub(channel)


async def _refusal(call: Awaitable[object]) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value


def _retry_after_s(error: grpc.aio.AioRpcError) -> float | None:
    status = rpc_status.from_call(error)  # type: ignore[arg-type]  # it has all that is asked of a call
    for detail in status.details if status is not None else ():
        advice = error_details_pb2.RetryInfo()
        if detail.Unpack(advice):
            return float(advice.retry_delay.seconds + advice.retry_delay.nanos / 1e9)
    return None


def _plans_of(size_bytes: int) -> cluster_manager_pb2.ExecutePlanRequest:
    specification = workload_pb2.WorkloadSpecification(name="x" * size_bytes)
    return cluster_manager_pb2.ExecutePlanRequest(
        plans=[cluster_manager_pb2.AttemptPlan(workload="w", attempt=1, specification=specification)]
    )


def _run(story: Callable[[_Waits, str], Awaitable[None]], **requests: float) -> None:
    async def run() -> None:
        async with _serving(RequestSettings.model_validate(requests)) as (servicer, address):
            await story(servicer, address)

    asyncio.run(run())


def test_never_does_a_tenant_shut_others_out_by_opening_connections(database_url: str) -> None:
    async def began(address: str, token: str) -> bool:
        """Whether it could read a log, by a connection of its own, which stays."""
        client = await open_clients.enter_async_context(_client(address))
        call = client.ReadLogs(cluster_manager_pb2.ReadLogsRequest(), metadata=(("authorization", f"Bearer {token}"),))
        (answer,) = await asyncio.gather(call.read(), return_exceptions=True)
        if isinstance(answer, cluster_manager_pb2.ReadLogsResponse):
            return True
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        return False

    async def made(database: Database, tenant: str) -> str:
        shown, token = new_token()
        await database.run(
            lambda connection: token_store.insert(
                connection, token.token, token.secret_hash, "alice", "tenant", [tenant], "the test", None
            )
        )
        return shown

    open_clients = AsyncExitStack()

    async def run() -> None:
        async with (
            Database(database_url) as database,
            _serving(
                RequestSettings.model_validate({"streams_at_once": 16}), Authorization(TokenAuthentication(database))
            ) as (_, address),
            open_clients,
        ):
            greedy = [await made(database, "acme"), await made(database, "acme")]
            assert [await began(address, greedy[number % 2]) for number in range(16)] == [True] * 8 + [False] * 8
            assert await began(address, await made(database, "globex"))

    asyncio.run(run())


def test_counts_are_checked_before_anything_is_made_of_a_request() -> None:
    async def story(servicer: _Waits, address: str) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            execute: RawCall = channel.unary_unary(_SERVICE + "ExecutePlan")
            error = await _refusal(execute(b"\n\0" * 1_000_000))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert error.details() == "plans: are more than 1,000; at most 1,000 are possible at a time"
            # Deep inside, and in a request that is too short to be counted as bytes.
            job = workload_pb2.JobSpecification(command=workload_pb2.Command(arguments=["x"] * 5_000))
            plan = cluster_manager_pb2.AttemptPlan(specification=workload_pb2.WorkloadSpecification(jobs=[job]))
            request = cluster_manager_pb2.ExecutePlanRequest(plans=[plan])
            error = await _refusal(execute(request.SerializeToString()))
            assert "plans[0].specification.jobs[0].command.arguments: are " in str(error.details())
        assert servicer.came.empty()

    _run(story)


def test_what_is_larger_than_its_method_takes_is_refused_in_a_sentence() -> None:
    async def story(servicer: _Waits, address: str) -> None:
        async with _client(address) as stub:
            huge = (
                cluster_manager_pb2.WatchStatusRequest().SerializeToString()
                + b"\x12\xff\xff\xff\x02"
                + bytes(6_291_455)
            )
            async with grpc.aio.insecure_channel(address, options=(("grpc.max_send_message_length", -1),)) as channel:
                stop: RawCall = channel.unary_unary(_SERVICE + "StopAttempt")
                error = await _refusal(stop(huge))
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "larger than max: StopAttempt takes 4,194,304 at a time" in str(error.details())
            assert _retry_after_s(error) is None
            servicer.may_answer.set()
            await stub.ExecutePlan(_plans_of(6 * 2**20))

    _run(story)


def test_bytes_are_bounded_for_all_and_for_each_client_and_given_back() -> None:
    async def story(servicer: _Waits, address: str) -> None:
        async with _client(address) as first, _client(address) as second, _client(address) as third:
            under_way = [asyncio.ensure_future(first.ExecutePlan(_plans_of(15 * 2**20)))]
            await servicer.came.get()
            error = await _refusal(first.ExecutePlan(_plans_of(15 * 2**20)))
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "requests of 20 MiB of this client are being answered" in str(error.details())
            assert _retry_after_s(error) == 1.0
            under_way.append(asyncio.ensure_future(second.ExecutePlan(_plans_of(15 * 2**20))))
            await servicer.came.get()
            error = await _refusal(third.ExecutePlan(_plans_of(15 * 2**20)))
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "and 40 MiB is the most at a time (requests.mib_at_once)" in str(error.details())
            assert _retry_after_s(error) == 1.0
            # One of them leaves, another one is answered: there is room again.
            under_way[0].cancel()
            servicer.may_answer.set()
            await under_way[1]
            await third.ExecutePlan(_plans_of(15 * 2**20))

    _run(story, mib_at_once=40)


def test_calls_and_streams_are_bounded_and_a_slow_call_ends() -> None:
    async def story(servicer: _Waits, address: str) -> None:
        async with _client(address) as first, _client(address) as second, _client(address) as third:
            watches = []
            for stub in [first] * 8 + [second] * 8:
                watch = stub.WatchStatus(cluster_manager_pb2.WatchStatusRequest())
                watches.append(watch)
                await servicer.came.get()
            for stub, said in ((third, "16 streams are under way here"), (first, "16 streams")):
                error = await _refusal(stub.WatchStatus(cluster_manager_pb2.WatchStatusRequest()).read())
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert said in str(error.details())
                assert _retry_after_s(error) == 1.0
            # Calls with one answer have a bound of their own. This one takes too long.
            error = await _refusal(third.ExecutePlan(_plans_of(1)))
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert "ExecutePlan was not done within 1 s" in str(error.details())
            watches.pop().cancel()
            while True:  # until the server has heard of it
                watch = first.WatchStatus(cluster_manager_pb2.WatchStatusRequest())
                try:
                    await watch.read()
                except grpc.aio.AioRpcError as error:
                    if "this client has 8 streams under way" in str(error.details()):
                        break

    _run(story, streams_at_once=16, longest_call_real_s=1.0)


def test_never_does_a_connection_take_all_streams_that_are_open_to_everybody() -> None:
    async def watches(address: str, clients: AsyncExitStack) -> Any:
        """To begin health checks with, by a connection of its own."""
        options = (("grpc.use_local_subchannel_pool", 1),)
        return cast(
            Any,
            health_pb2_grpc.HealthStub(
                await clients.enter_async_context(grpc.aio.insecure_channel(address, options=options))
            ),
        ).Watch

    async def story(_servicer: _Waits, address: str) -> None:
        async with AsyncExitStack() as clients:
            greedy, other = await watches(address, clients), await watches(address, clients)
            under_way = [greedy(health_pb2.HealthCheckRequest()) for _ in range(8)]
            for watch in under_way:
                await watch.read()
            error = await _refusal(greedy(health_pb2.HealthCheckRequest()).read())
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "this client has 8 streams of health checks and reflection under way" in str(error.details())
            assert _retry_after_s(error) == 1.0
            under_way.append(other(health_pb2.HealthCheckRequest()))
            await under_way[-1].read()
            under_way.pop(0).cancel()
            while True:  # until the server has heard of it
                with suppress(grpc.aio.AioRpcError):
                    await greedy(health_pb2.HealthCheckRequest()).read()
                    break

    _run(story, streams_at_once=16)


def test_streams_that_are_open_to_everybody_are_bounded_and_checks_are_always_answered() -> None:
    async def story(_servicer: _Waits, address: str) -> None:
        async with (
            _client(address) as stub,
            grpc.aio.insecure_channel(address) as channel,
            grpc.aio.insecure_channel(address, options=(("grpc.use_local_subchannel_pool", 1),)) as another,
        ):
            # Their types know nothing of their methods.
            health: Any = health_pb2_grpc.HealthStub(channel)
            of_another: Any = health_pb2_grpc.HealthStub(another)
            watches = [one.Watch(health_pb2.HealthCheckRequest()) for one in (of_another, health) * 8]
            for watch in watches:
                await watch.read()
            error = await _refusal(health.Watch(health_pb2.HealthCheckRequest()).read())
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "16 streams of health checks and reflection are under way here" in str(error.details())
            assert _retry_after_s(error) == 1.0
            reflection: Any = cast(Any, reflection_pb2_grpc.ServerReflectionStub)(channel)
            # Nothing is sent: the client's own error, that the stream was over by then, would stand before the answer.
            assert (await _refusal(reflection.ServerReflectionInfo().read())).code() == error.code()
            assert (
                await health.Check(health_pb2.HealthCheckRequest())
            ).status == health_pb2.HealthCheckResponse.NOT_SERVING
            # They take nothing of what others may have.
            await stub.WatchStatus(cluster_manager_pb2.WatchStatusRequest()).read()
            watches.pop().cancel()
            while True:  # until the server has heard of it
                with suppress(grpc.aio.AioRpcError):
                    await health.Watch(health_pb2.HealthCheckRequest()).read()
                    break

    _run(story, streams_at_once=16)
