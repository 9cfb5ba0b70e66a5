"""The gRPC server of a cluster manager, with an emulated executor behind it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from domain.workload import Command
from services.clock import CompressedClock, SystemClock
from services.cluster_manager.fence import STALE_LEASE
from services.cluster_manager.server import ClusterManagerServer
from services.cluster_manager.servicers import STALE_ATTEMPT
from services.execution.emulated_executor import EmulatedExecutor
from services.execution.executor import AttemptOrder
from tests.examples import examples
from tests.execution.calls import (
    ENDED,
    Stub,
    calling,
    detail_of,
    end_of,
    execute,
    fields_of,
    forget,
    plan_of,
    statuses,
    stop,
    watch_until,
)
from tests.execution.orders import CLUSTER, emulated, job, key, order
from topmast.v1 import (
    cluster_manager_pb2,
    cluster_manager_pb2_grpc,
    training_session_pb2,
    training_session_pb2_grpc,
    workload_pb2,
)


@asynccontextmanager
async def serving(executor: EmulatedExecutor | None = None) -> AsyncIterator[tuple[int, Stub]]:
    clock = SystemClock()
    server = ClusterManagerServer(CLUSTER, executor or EmulatedExecutor(clock), clock)
    port = await server.start("127.0.0.1:0")
    try:
        async with calling(port) as stub:
            yield port, stub
    finally:
        await server.stop(5.0)


def violation_of(error: grpc.aio.AioRpcError) -> tuple[str, str]:
    """Kind and subject of a failed precondition."""
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    failure = detail_of(error, error_details_pb2.PreconditionFailure)
    assert isinstance(failure, error_details_pb2.PreconditionFailure)
    (violation,) = failure.violations
    return violation.type, violation.subject


def test_attempts_go_from_order_to_end_through_the_stream() -> None:
    async def scenario() -> None:
        clock = CompressedClock(time.time(), 1e6, 1000.0)
        async with serving(EmulatedExecutor(clock)) as (_, stub):
            await execute(stub, emulated(200.0), emulated(300.0, workload="v"))
            ended = await end_of(stub, key("v"))
            assert (ended.progress, ended.checkpoint_progress, ended.emulated) == (300.0, 300.0, True)
            assert ended.since_s - ended.started_s == pytest.approx(300.0)
            # An end is told again in each new stream until it is forgotten.
            assert await end_of(stub, key("v")) == ended
            await forget(stub, key("v"))
            assert [status.workload for status in await statuses(stub)] == ["w"]

    asyncio.run(scenario())


def test_the_first_message_is_complete_and_changes_follow() -> None:
    async def scenario() -> None:
        async with serving() as (_, stub):
            await execute(stub, emulated(1e6))
            stream = stub.WatchStatus(cluster_manager_pb2.WatchStatusRequest())
            messages = aiter(stream)
            first = await anext(messages)
            assert first.complete
            assert [status.workload for status in first.attempts] == ["w"]
            await execute(stub, emulated(1e6, workload="v", hold=True))
            second = await anext(messages)
            assert not second.complete
            assert [status.phase for status in second.attempts] == [cluster_manager_pb2.ATTEMPT_PHASE_HELD]
            stream.cancel()

    asyncio.run(scenario())


def test_a_stopped_server_ends_its_streams_at_once() -> None:
    async def scenario() -> None:
        clock = SystemClock()
        server = ClusterManagerServer(CLUSTER, EmulatedExecutor(clock), clock)
        port = await server.start("127.0.0.1:0")
        async with calling(port) as stub:
            messages = aiter(stub.WatchStatus(cluster_manager_pb2.WatchStatusRequest()))
            await anext(messages)
            await server.stop(3600.0)
            with pytest.raises(StopAsyncIteration):
                await anext(messages)

    asyncio.run(scenario())


def test_of_many_orders_only_the_stale_ones_are_refused() -> None:
    async def scenario() -> None:
        async with serving() as (_, stub):
            await execute(stub, emulated(1e6, attempt=2))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await execute(stub, emulated(1e6, attempt=1), emulated(1e6, workload="v"))
            assert violation_of(refused.value) == (STALE_ATTEMPT, "w#1")
            assert {(status.workload, status.attempt) for status in await statuses(stub)} == {("w", 2), ("v", 1)}

    asyncio.run(scenario())


def test_whose_lease_is_over_is_refused() -> None:
    async def scenario() -> None:
        async with serving() as (_, stub):
            await execute(stub, emulated(1e6), fencing_token=7)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stop(stub, key(), fencing_token=6)
            assert violation_of(refused.value)[0] == STALE_LEASE
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await execute(stub, emulated(1e6, attempt=2), fencing_token=6)
            assert violation_of(refused.value)[0] == STALE_LEASE
            (status,) = await statuses(stub)
            assert status.phase == cluster_manager_pb2.ATTEMPT_PHASE_RUNNING
            await stop(stub, key(), fencing_token=7)
            assert (await end_of(stub, key())).phase == cluster_manager_pb2.ATTEMPT_PHASE_STOPPED

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("missing", "field"),
    [
        ("workload", "plans[0].workload"),
        ("attempt", "plans[0].attempt"),
        ("specification", "plans[0].specification.tenant"),
        ("tenant", "plans[0].specification.tenant"),
    ],
)
def test_a_plan_that_says_of_nobody_what_it_is_for_runs_nothing(missing: str, field: str) -> None:
    plan = plan_of(order(job(Command(("touch", "/nowhere")))))
    (plan.specification if missing == "tenant" else plan).ClearField(missing)  # type: ignore[arg-type]  # each has its own names

    async def scenario() -> None:
        async with serving() as (_, stub):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.ExecutePlan(cluster_manager_pb2.ExecutePlanRequest(plans=[plan]))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert field in fields_of(refused.value)
            assert await statuses(stub) == []

    asyncio.run(scenario())


def test_every_bad_field_is_named_and_nothing_is_done_by_halves() -> None:
    no_entry_point = plan_of(emulated(1.0, workload="v"))
    no_entry_point.specification.jobs[0].ClearField("emulated")
    bad = plan_of(emulated(1.0, workload="../etc", progress=float("nan")))
    bad.attempt = 0
    bad.placements[0].cpus = float("inf")

    async def scenario() -> None:
        async with serving() as (_, stub):
            plans = [plan_of(emulated(1e6)), no_entry_point, bad]
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.ExecutePlan(cluster_manager_pb2.ExecutePlanRequest(plans=plans))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert fields_of(refused.value) == [
                "plans[1].specification.jobs[0].entry_point",
                "plans[2].workload",
                "plans[2].attempt",
                "plans[2].progress",
                "plans[2].placements[0].cpus",
            ]
            assert await statuses(stub) == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("call", "fields"),
    [
        (cluster_manager_pb2.StopAttemptRequest(grace_s=float("nan")), ["grace_s"]),
        (
            cluster_manager_pb2.StopAttemptRequest(attempts=[cluster_manager_pb2.AttemptReference(workload="a b")]),
            ["attempts[0].workload", "attempts[0].attempt"],
        ),
        (cluster_manager_pb2.ResizeAttemptRequest(attempt=1, revision=1), ["workload"]),
        (cluster_manager_pb2.ResizeAttemptRequest(workload="w", attempt=1), ["revision"]),
        (
            cluster_manager_pb2.ReadLogsRequest(workload="w", attempt=-1, tail_lines=-1),
            ["attempt", "tail_lines"],
        ),
    ],
    ids=["grace", "reference", "resize", "revision", "logs"],
)
def test_bad_fields_of_other_calls_are_named_too(call: Message, fields: list[str]) -> None:
    async def scenario() -> None:
        async with serving() as (_, stub):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await make(stub, call)
            assert fields_of(refused.value) == fields

    asyncio.run(scenario())


async def make(stub: Stub, call: Message) -> None:
    match call:
        case cluster_manager_pb2.StopAttemptRequest():
            await stub.StopAttempt(call)
        case cluster_manager_pb2.ResizeAttemptRequest():
            await stub.ResizeAttempt(call)
        case cluster_manager_pb2.ReadLogsRequest():
            _ = [chunk async for chunk in stub.ReadLogs(call)]
        case _:
            pytest.fail("no such call")


def test_what_is_not_known_is_not_found() -> None:
    async def scenario() -> None:
        async with serving() as (port, stub):
            resize = cluster_manager_pb2.ResizeAttemptRequest(workload="nobody", attempt=1, revision=1)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.ResizeAttempt(resize)
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                _ = [c async for c in stub.ReadLogs(cluster_manager_pb2.ReadLogsRequest(workload="nobody"))]
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                session = training_session_pb2_grpc.TrainingSessionStub(channel)
                task = training_session_pb2.TaskReference(workload="nobody", attempt=1, job="train")
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await session.Heartbeat(training_session_pb2.HeartbeatRequest(task=task))
                assert refused.value.code() is grpc.StatusCode.NOT_FOUND
                bad = training_session_pb2.HeartbeatRequest(task=task, progress=float("inf"))
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await session.Heartbeat(bad)
                assert fields_of(refused.value) == ["progress"]

    asyncio.run(scenario())


def test_an_order_that_makes_no_sense_fails_and_the_rest_goes_on() -> None:
    async def scenario() -> None:
        async with serving() as (_, stub):
            await execute(stub, order(job(Command(("true",)))), emulated(1e6, workload="v"))
            failed = await end_of(stub, key())
            assert failed.phase == cluster_manager_pb2.ATTEMPT_PHASE_FAILED
            assert failed.reason == "job train of w is not emulated"
            await watch_until(stub, lambda status: status.workload == "v" and status.phase not in ENDED)

    asyncio.run(scenario())


class SlowToStart(EmulatedExecutor):
    """Adopts until it is told that it is done."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.begun = asyncio.Event()
        self.adopted = asyncio.Event()
        self.session_address = ""

    async def start(self, session_address: str) -> None:
        self.session_address = session_address
        self.begun.set()
        await self.adopted.wait()


def test_nothing_is_served_until_what_ran_is_adopted() -> None:
    async def scenario() -> None:
        executor = SlowToStart()
        server = ClusterManagerServer(CLUSTER, executor, SystemClock())
        starting = asyncio.ensure_future(server.start("127.0.0.1:0"))
        await executor.begun.wait()
        async with grpc.aio.insecure_channel(executor.session_address) as channel:
            assert await health_of(channel) == health_pb2.HealthCheckResponse.NOT_SERVING
            stub = cluster_manager_pb2_grpc.ClusterManagerStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.GetStatus(cluster_manager_pb2.GetClusterStatusRequest())
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert isinstance(detail_of(refused.value, error_details_pb2.RetryInfo), error_details_pb2.RetryInfo)
            executor.adopted.set()
            await starting
            assert await health_of(channel) == health_pb2.HealthCheckResponse.SERVING
            assert {"topmast.v1.ClusterManager", "topmast.v1.TrainingSession"} <= await services_of(channel)
        await server.stop(5.0)

    asyncio.run(scenario())


async def health_of(channel: grpc.aio.Channel) -> int:
    name = cluster_manager_pb2.DESCRIPTOR.services_by_name["ClusterManager"].full_name
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        health_pb2.HealthCheckRequest.SerializeToString,
        health_pb2.HealthCheckResponse.FromString,
    )
    answer = await check(health_pb2.HealthCheckRequest(service=name))
    return int(answer.status)


async def services_of(channel: grpc.aio.Channel) -> set[str]:
    """What reflection says there is."""
    ask = channel.stream_stream(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    call = ask(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
    return {service.name async for answer in call for service in answer.list_services_response.service}


PLANS = st.builds(
    lambda workload, attempt, numbers, duration, job_name, placed, cpus, indices: cluster_manager_pb2.AttemptPlan(
        workload=workload,
        attempt=attempt,
        progress=numbers[0],
        started_s=numbers[1],
        specification=workload_pb2.WorkloadSpecification(
            jobs=[
                workload_pb2.JobSpecification(
                    name=job_name, tasks=1, emulated=workload_pb2.Emulated(duration_s=duration)
                )
            ]
        ),
        placements=[workload_pb2.TaskPlacement(job=placed, machine="m0", cpus=cpus, gpu_indices=indices)],
    ),
    st.one_of(st.just("w"), st.text(max_size=5)),
    st.integers(-(2**31), 2**31 - 1),
    st.tuples(st.floats(), st.floats()),
    st.floats(),
    st.one_of(st.just("train"), st.text(max_size=5)),
    st.one_of(st.just("train"), st.text(max_size=5)),
    st.floats(),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
)


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(PLANS, max_size=3), min_size=10, max_size=30))
def test_never_does_a_plan_break_the_server(requests: list[list[cluster_manager_pb2.AttemptPlan]]) -> None:
    good: AttemptOrder = emulated(1e6, workload="still-there")

    async def scenario() -> None:
        async with serving() as (_, stub):
            for plans in requests:
                call = stub.ExecutePlan(cluster_manager_pb2.ExecutePlanRequest(plans=plans))
                assert await call.code() in {
                    grpc.StatusCode.OK,
                    grpc.StatusCode.INVALID_ARGUMENT,
                    grpc.StatusCode.FAILED_PRECONDITION,
                }
            await execute(stub, good)
            assert "still-there" in {status.workload for status in await statuses(stub)}

    asyncio.run(scenario())
