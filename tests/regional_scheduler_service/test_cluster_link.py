"""A link to a cluster manager: what that refuses as impossible keeps no other order from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc

from domain.identifiers import AttemptNumber, ClusterId, WorkloadId
from domain.placement import AttemptKey
from services.database.lease_store import Lease
from services.grpc_errors import CanonicalErrors, InvalidArgument
from services.regional_scheduler.cluster_link import (
    ChangeRefused,
    ClusterLink,
    ClusterReport,
    ForgetOrders,
    LinkMessage,
    ResizeOrder,
    StopOrders,
)
from topmast.v1 import cluster_manager_pb2 as messages
from topmast.v1 import cluster_manager_pb2_grpc

KEY = AttemptKey(WorkloadId("w"), AttemptNumber(1))
Context = grpc.aio.ServicerContext[object, object]


class RefusesChanges(cluster_manager_pb2_grpc.ClusterManagerServicer):
    """A cluster manager to which every change of placements is impossible."""

    def __init__(self) -> None:
        self.watched = 0
        self.stopped = asyncio.Event()
        self.forgotten: list[int] = []
        """Of each call, how many attempts it named."""

    async def WatchStatus(
        self, request: messages.WatchStatusRequest, context: Context
    ) -> AsyncIterator[messages.WatchStatusResponse]:
        self.watched += 1
        yield messages.WatchStatusResponse(complete=True)
        await self.stopped.wait()

    async def ResizeAttempt(
        self, request: messages.ResizeAttemptRequest, context: Context
    ) -> messages.ResizeAttemptResponse:
        raise InvalidArgument.of("placements", "would have other jobs here than when it was started")

    async def StopAttempt(self, request: messages.StopAttemptRequest, context: Context) -> messages.StopAttemptResponse:
        self.stopped.set()
        return messages.StopAttemptResponse()

    async def ExecutePlan(self, request: messages.ExecutePlanRequest, context: Context) -> messages.ExecutePlanResponse:
        raise AssertionError("nothing is started here")

    async def ForgetAttempts(
        self, request: messages.ForgetAttemptsRequest, context: Context
    ) -> messages.ForgetAttemptsResponse:
        self.forgotten.append(len(request.attempts))
        return messages.ForgetAttemptsResponse()

    async def GetStatus(
        self, request: messages.GetClusterStatusRequest, context: Context
    ) -> messages.GetClusterStatusResponse:
        raise AssertionError("a link does not ask for it")

    async def ReadLogs(
        self, request: messages.ReadLogsRequest, context: Context
    ) -> AsyncIterator[messages.ReadLogsResponse]:
        yield messages.ReadLogsResponse()

    async def OpenSession(
        self, request_iterator: AsyncIterator[messages.OpenSessionRequest], context: Context
    ) -> AsyncIterator[messages.OpenSessionResponse]:
        yield messages.OpenSessionResponse()


async def _in_link(story: Callable[[RefusesChanges, ClusterLink, asyncio.Queue[LinkMessage]], Awaitable[None]]) -> None:
    """A link with a cluster manager at its other end."""
    manager, server = RefusesChanges(), grpc.aio.server(interceptors=[CanonicalErrors()])
    cluster_manager_pb2_grpc.add_ClusterManagerServicer_to_server(manager, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    said: asyncio.Queue[LinkMessage] = asyncio.Queue()

    async def address(cluster: ClusterId) -> str:
        return f"127.0.0.1:{port}" if cluster == "c" else ""

    link = ClusterLink(ClusterId("c"), address, said.put_nowait, Lease("regional/r", "it", 1))
    running = asyncio.create_task(link.run())
    try:
        async with asyncio.timeout(60.0):
            await story(manager, link, said)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.stop(0.0)


def test_an_impossible_change_is_told_and_does_not_break_the_link() -> None:
    async def story(manager: RefusesChanges, link: ClusterLink, said: asyncio.Queue[LinkMessage]) -> None:
        report = await said.get()
        assert isinstance(report, ClusterReport)
        link.send(ResizeOrder(messages.ResizeAttemptRequest(workload="w", attempt=1, revision=1)), report.connection)
        link.send(StopOrders((KEY,), 5.0), report.connection)
        await manager.stopped.wait()
        assert manager.watched == 1
        refused = await said.get()
        assert isinstance(refused, ChangeRefused)
        assert (refused.cluster, refused.key, refused.revision) == ("c", KEY, 1)
        assert "would have other jobs here than when it was started" in refused.reason

    asyncio.run(_in_link(story))


def test_many_ends_keep_no_order_waiting_for_a_round_trip_each() -> None:
    async def story(manager: RefusesChanges, link: ClusterLink, said: asyncio.Queue[LinkMessage]) -> None:
        report = await said.get()
        assert isinstance(report, ClusterReport)
        for number in range(200):
            link.send(ForgetOrders((AttemptKey(WorkloadId(f"w{number}"), AttemptNumber(1)),)), report.connection)
        link.send(StopOrders((KEY,), 5.0), report.connection)
        await manager.stopped.wait()
        assert sum(manager.forgotten) == 200
        assert len(manager.forgotten) <= 2, "the first one may have gone before the others came"

    asyncio.run(_in_link(story))
