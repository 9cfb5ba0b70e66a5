"""Calls to a cluster manager's server, as its regional scheduler makes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from domain.placement import AttemptKey
from services.execution.executor import AttemptOrder
from services.wire.plans import attempt_reference_to_proto
from services.wire.workloads import placement_to_proto, specification_to_proto
from topmast.v1 import cluster_manager_pb2, cluster_manager_pb2_grpc

if TYPE_CHECKING:
    Stub: TypeAlias = cluster_manager_pb2_grpc.ClusterManagerAsyncStub
else:
    # Only the types know an asynchronous stub.
    Stub = cluster_manager_pb2_grpc.ClusterManagerStub
Status = cluster_manager_pb2.AttemptStatus

ENDED = {
    cluster_manager_pb2.ATTEMPT_PHASE_COMPLETED,
    cluster_manager_pb2.ATTEMPT_PHASE_FAILED,
    cluster_manager_pb2.ATTEMPT_PHASE_STOPPED,
    cluster_manager_pb2.ATTEMPT_PHASE_LOST,
}


@asynccontextmanager
async def calling(port: int) -> AsyncIterator[Stub]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield cluster_manager_pb2_grpc.ClusterManagerStub(channel)


def plan_of(order: AttemptOrder) -> cluster_manager_pb2.AttemptPlan:
    return cluster_manager_pb2.AttemptPlan(
        workload=order.key.workload,
        attempt=order.key.attempt,
        specification=specification_to_proto(order.specification),
        placements=[placement_to_proto(placement) for placement in order.placements],
        hold=order.hold,
        progress=order.progress,
        started_s=order.started_s,
    )


async def execute(stub: Stub, *orders: AttemptOrder, fencing_token: int = 1) -> None:
    plans = [plan_of(order) for order in orders]
    await stub.ExecutePlan(cluster_manager_pb2.ExecutePlanRequest(plans=plans, fencing_token=fencing_token))


async def stop(stub: Stub, *keys: AttemptKey, grace_s: float = 30.0, fencing_token: int = 1) -> None:
    attempts = [attempt_reference_to_proto(key) for key in keys]
    await stub.StopAttempt(
        cluster_manager_pb2.StopAttemptRequest(attempts=attempts, grace_s=grace_s, fencing_token=fencing_token)
    )


async def forget(stub: Stub, *keys: AttemptKey, fencing_token: int = 1) -> None:
    attempts = [attempt_reference_to_proto(key) for key in keys]
    await stub.ForgetAttempts(cluster_manager_pb2.ForgetAttemptsRequest(attempts=attempts, fencing_token=fencing_token))


async def statuses(stub: Stub) -> list[Status]:
    answer = await stub.GetStatus(cluster_manager_pb2.GetClusterStatusRequest())
    return list(answer.attempts)


async def watch_until(stub: Stub, condition: Callable[[Status], bool]) -> Status:
    """The first status in a new stream of which this is true."""
    async for message in stub.WatchStatus(cluster_manager_pb2.WatchStatusRequest(), timeout=60):
        for status in message.attempts:
            if condition(status):
                return status
    raise AssertionError("the stream ended before")


async def reach(stub: Stub, key: AttemptKey, progress: float) -> None:
    """Waits until an attempt is so far; an end before that is an error."""
    status = await watch_until(
        stub,
        lambda status: status.workload == key.workload and (status.progress >= progress or status.phase in ENDED),
    )
    assert status.phase not in ENDED, status


async def end_of(stub: Stub, key: AttemptKey) -> Status:
    return await watch_until(
        stub,
        lambda status: (status.workload, status.attempt) == (key.workload, key.attempt) and status.phase in ENDED,
    )


def detail_of(error: grpc.aio.AioRpcError, kind: type[Message]) -> Message:
    """The detail of that kind that came with an error."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            assert isinstance(value, bytes)
            for packed in status_pb2.Status.FromString(value).details:
                detail = kind()
                if packed.Unpack(detail):
                    return detail
    raise AssertionError(f"no {kind.__name__} came with {error.code()}: {error.details()}")


def fields_of(error: grpc.aio.AioRpcError) -> list[str]:
    """The fields that a BadRequest names."""
    bad_request = detail_of(error, error_details_pb2.BadRequest)
    assert isinstance(bad_request, error_details_pb2.BadRequest)
    return [violation.field for violation in bad_request.field_violations]
