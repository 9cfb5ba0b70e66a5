"""The gRPC face of the global scheduler. Every method checks what came, asks the database, and says it in messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import TypeAlias, TypeVar

import grpc

from services.clock import ServiceClock
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.workload_reader import BadPageToken
from services.global_scheduler.cancellation import cancel_workload
from services.global_scheduler.declaring_lost import declare_lost
from services.global_scheduler.event_stream import event_stream
from services.global_scheduler.loan_look import loans
from services.global_scheduler.machine_assignment_look import (
    apply_requests,
    explain,
    load_questions,
    time_limit_of,
)
from services.global_scheduler.overview import load_overview, overview_message
from services.global_scheduler.queue_look import QueueLook
from services.global_scheduler.region_calls import call_region, destination, region_of
from services.global_scheduler.replacement_checks import checked_fleet, checked_tenants
from services.global_scheduler.replacing import replace_fleet, replace_tenants
from services.global_scheduler.request_checks import (
    cancellation_reason,
    event_filter,
    list_filter,
    queue_selection,
    workload_named,
)
from services.global_scheduler.snapshot_stream import snapshot_stream
from services.global_scheduler.submission import GREATEST_BATCH, SubmissionBatcher
from services.global_scheduler.surroundings import SurroundingsKeeper
from services.global_scheduler.virtual_cluster_look import virtual_clusters
from services.global_scheduler.workload_watchers import WorkloadWatchers
from services.grpc_errors import InvalidArgument, NotFound
from services.machine_decision import decide, decision_message
from services.wire.workloads import state_to_proto
from topmast.v1 import (
    event_pb2,
    global_scheduler_pb2_grpc,
    machine_assignment_pb2,
    regional_scheduler_pb2,
    workload_pb2,
)
from topmast.v1 import global_scheduler_pb2 as messages

_PATIENCE_REAL_S = 10.0
"""For how long a call waits for a database that has just been lost."""

_LOOK_INTERVAL_REAL_S = 1.0
"""A watcher of a workload also gets its progress, which is no event; so often."""

_LEAST_INTERVAL_REAL_S = 0.05
"""What happens within that time is sent at once."""

Context: TypeAlias = "grpc.aio.ServicerContext[object, object]"
_Result = TypeVar("_Result")


class GlobalSchedulerServicer(global_scheduler_pb2_grpc.GlobalSchedulerServicer):
    """The front door."""

    def __init__(
        self,
        database: Database,
        clock: ServiceClock,
        batcher: SubmissionBatcher,
        surroundings: SurroundingsKeeper,
        look: QueueLook,
        watchers: WorkloadWatchers,
        *,
        require_ready: Callable[[], None],
    ) -> None:
        """`require_ready` raises Unavailable while calls cannot be answered."""
        self._database = database
        self._clock = clock
        self._batcher = batcher
        self._surroundings = surroundings
        self._look = look
        self._watchers = watchers
        self._require_ready = require_ready

    # ------------------------------------------------------------ submit and cancel

    async def SubmitWorkload(
        self, request: messages.SubmitWorkloadRequest, context: Context
    ) -> messages.SubmitWorkloadResponse:
        self._require_ready()
        (result,) = await self._batcher.submit([request], lambda _: "")
        return messages.SubmitWorkloadResponse(workload=result.workload, existed=result.existed)

    async def SubmitWorkloads(
        self, request: messages.SubmitWorkloadsRequest, context: Context
    ) -> messages.SubmitWorkloadsResponse:
        self._require_ready()
        if len(request.requests) > GREATEST_BATCH:
            raise InvalidArgument.of(
                "requests", f"are {len(request.requests)}; at most {GREATEST_BATCH} are possible at a time"
            )
        if not request.requests:
            return messages.SubmitWorkloadsResponse()
        results = await self._batcher.submit(request.requests, lambda index: f"requests[{index}].")
        return messages.SubmitWorkloadsResponse(
            responses=[
                messages.SubmitWorkloadResponse(workload=result.workload, existed=result.existed) for result in results
            ]
        )

    async def CancelWorkload(
        self, request: messages.CancelWorkloadRequest, context: Context
    ) -> messages.CancelWorkloadResponse:
        workload, reason = workload_named(request.workload), cancellation_reason(request)
        now = self._clock.now()
        state = await self._run(lambda connection: cancel_workload(connection, workload, reason, now))
        return messages.CancelWorkloadResponse(state=state_to_proto(state))

    # ------------------------------------------------------------ change what runs

    async def ResizeWorkload(
        self, request: regional_scheduler_pb2.ResizeWorkloadRequest, context: Context
    ) -> regional_scheduler_pb2.ActionResponse:
        workload = workload_named(request.workload)
        _, address = await self._snapshot(lambda connection: region_of(connection, workload))
        return await call_region(address, workload, lambda region: region.ResizeWorkload(request))

    async def RetuneWorkload(
        self, request: regional_scheduler_pb2.RetuneWorkloadRequest, context: Context
    ) -> regional_scheduler_pb2.ActionResponse:
        workload = workload_named(request.workload)
        _, address = await self._snapshot(lambda connection: region_of(connection, workload))
        return await call_region(address, workload, lambda region: region.RetuneWorkload(request))

    async def MigrateWorkload(
        self, request: messages.MoveWorkloadRequest, context: Context
    ) -> regional_scheduler_pb2.ActionResponse:
        workload = workload_named(request.workload)
        address, asked = await self._snapshot(lambda connection: destination(connection, request))
        return await call_region(address, workload, lambda region: region.MigrateWorkload(asked))

    async def DeclareLost(self, request: messages.DeclareLostRequest, context: Context) -> messages.DeclareLostResponse:
        return await self._run(lambda connection: declare_lost(connection, request, self._clock))

    # ------------------------------------------------------------ look

    async def GetWorkload(self, request: messages.GetWorkloadRequest, context: Context) -> workload_pb2.Workload:
        workload = workload_named(request.workload)
        message = await self._snapshot(lambda connection: self._look.workload(connection, workload))
        if message is None:
            raise NotFound("workload", workload)
        return message

    async def ListWorkloads(
        self, request: messages.ListWorkloadsRequest, context: Context
    ) -> messages.ListWorkloadsResponse:
        wanted, page_size = list_filter(request)
        try:
            return await self._snapshot(
                lambda connection: self._look.page(connection, wanted, page_size, request.page_token)
            )
        except BadPageToken as bad:
            raise InvalidArgument.of("page_token", str(bad)) from bad

    async def GetQueue(self, request: messages.GetQueueRequest, context: Context) -> messages.GetQueueResponse:
        tenant, limit = queue_selection(request)
        return await self._snapshot(lambda connection: self._look.queue(connection, tenant, limit))

    async def GetStatus(self, request: messages.GetStatusRequest, context: Context) -> messages.GetStatusResponse:
        return overview_message(await self._snapshot(load_overview), self._clock.now())

    async def GetVirtualClusters(
        self, request: messages.GetVirtualClustersRequest, context: Context
    ) -> messages.GetVirtualClustersResponse:
        return await self._snapshot(lambda connection: virtual_clusters(connection, request.tenant, request.cluster))

    async def GetLoans(self, request: messages.GetLoansRequest, context: Context) -> messages.GetLoansResponse:
        return await self._snapshot(lambda connection: loans(connection, request.cluster))

    # ------------------------------------------------------------ machines to clusters

    async def PlanMachines(
        self, request: machine_assignment_pb2.PlanMachinesRequest, context: Context
    ) -> machine_assignment_pb2.PlanMachinesResponse:
        answer = machine_assignment_pb2.PlanMachinesResponse()
        for question, requests in await self._snapshot(lambda connection: load_questions(connection, request)):
            began_real_s = time.monotonic()
            decision = await decide(question, requests, time_limit_of(request))
            answer.regions.append(decision_message(decision, time.monotonic() - began_real_s))
        return answer

    async def ApplyMachineRequests(
        self, request: machine_assignment_pb2.ApplyMachineRequestsRequest, context: Context
    ) -> machine_assignment_pb2.ApplyMachineRequestsResponse:
        applying = partial(apply_requests, text=request.requests, only=request.region, now=self._clock.now())
        return machine_assignment_pb2.ApplyMachineRequestsResponse(regions=await self._run(applying))

    async def ExplainMachine(
        self, request: machine_assignment_pb2.ExplainMachineRequest, context: Context
    ) -> machine_assignment_pb2.ExplainMachineResponse:
        sentences = await self._snapshot(lambda connection: explain(connection, request.name))
        return machine_assignment_pb2.ExplainMachineResponse(sentences=sentences)

    # ------------------------------------------------------------ watch

    async def WatchWorkload(
        self, request: messages.WatchWorkloadRequest, context: Context
    ) -> AsyncIterator[workload_pb2.Workload]:
        workload = workload_named(request.workload)
        sent: workload_pb2.Workload | None = None
        async with self._watchers.watch(workload) as watcher:
            while True:
                message = await self._snapshot(lambda connection: self._look.workload(connection, workload))
                if message is None:
                    raise NotFound("workload", workload)
                if message != sent:
                    yield message
                    sent = message
                if message.ended_s:
                    return
                await asyncio.sleep(_LEAST_INTERVAL_REAL_S)
                await watcher.wait(_LOOK_INTERVAL_REAL_S)

    async def WatchEvents(
        self, request: messages.WatchEventsRequest, context: Context
    ) -> AsyncIterator[event_pb2.Event]:
        wanted = event_filter(request)
        self._require_ready()
        async with aclosing(
            event_stream(self._database, request.after_sequence, wanted, endless=request.follow)
        ) as events:
            async for event in events:
                yield event

    async def SaveSnapshot(
        self, request: messages.SaveSnapshotRequest, context: Context
    ) -> AsyncIterator[messages.SnapshotChunk]:
        self._require_ready()
        async with aclosing(snapshot_stream(self._database, self._clock, _PATIENCE_REAL_S)) as chunks:
            async for chunk in chunks:
                yield chunk

    # ------------------------------------------------------------ apply

    async def ApplyFleet(self, request: messages.ApplyFleetRequest, context: Context) -> messages.ApplyFleetResponse:
        self._require_ready()
        described = await asyncio.to_thread(checked_fleet, request.fleet)
        fleet, tenants = described.fleet, None
        if request.HasField("tenants"):
            tenants = await asyncio.to_thread(checked_tenants, tuple(request.tenants.tenants), "tenants.tenants")
        replacing = partial(replace_fleet, fleet=fleet, tables=described.tables, now=self._clock.now(), tenants=tenants)
        await self._run(replacing)
        await self._surroundings.refresh()
        machines = [machine for region in fleet.regions for machine in region.machines()]
        return messages.ApplyFleetResponse(
            regions=len(fleet.regions),
            clusters=sum(len(region.clusters) for region in fleet.regions),
            machines=len(machines),
            gpus=sum(machine.gpus for machine in machines),
            tenants=len(tenants or ()),
        )

    async def ApplyTenants(
        self, request: messages.ApplyTenantsRequest, context: Context
    ) -> messages.ApplyTenantsResponse:
        self._require_ready()
        tenants = await asyncio.to_thread(checked_tenants, tuple(request.tenants))
        await self._run(partial(replace_tenants, tenants=tenants))
        await self._surroundings.refresh()
        return messages.ApplyTenantsResponse(tenants=len(tenants))

    # ------------------------------------------------------------ the database

    async def _run(self, operation: Callable[[AnyConnection], Awaitable[_Result]]) -> _Result:
        self._require_ready()
        return await self._database.run(operation, give_up_after_s=_PATIENCE_REAL_S)

    async def _snapshot(self, operation: Callable[[AnyConnection], Awaitable[_Result]]) -> _Result:
        self._require_ready()
        return await self._database.run(operation, snapshot=True, give_up_after_s=_PATIENCE_REAL_S)
