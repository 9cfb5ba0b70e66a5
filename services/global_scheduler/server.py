"""The gRPC face of the global scheduler. Every method checks what came, asks the database, and says it in messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeVar

import grpc

from global_scheduler.credit import CreditSettings
from services.clock import ServiceClock
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.workload_reader import BadPageToken
from services.database.workload_store import SubmissionResult
from services.global_scheduler import draining, fleet_look, queue_look, tenant_look
from services.global_scheduler.applying import applied_message, checked_request, replacement
from services.global_scheduler.array_look import refuse_array
from services.global_scheduler.before_changes import (
    Before,
    fleet_before,
    machines_before,
    states_before,
    tenants_before,
)
from services.global_scheduler.cancellation import cancel_workload_or_array
from services.global_scheduler.declaring_lost import declare_lost
from services.global_scheduler.disk_room import DiskRoom
from services.global_scheduler.dry_run import changes_of_fleet, changes_of_tenants
from services.global_scheduler.event_stream import event_stream
from services.global_scheduler.fleet_uploads import FleetUploads
from services.global_scheduler.loan_look import loans
from services.global_scheduler.machine_assignment_look import (
    apply_requests,
    explain,
    load_questions,
    time_limit_of,
)
from services.global_scheduler.overview import load_overview, overview_message
from services.global_scheduler.region_calls import call_region, destination, region_of
from services.global_scheduler.replacement_checks import checked_tenants
from services.global_scheduler.replacing import replace_tenants
from services.global_scheduler.request_checks import (
    cancellation_reason,
    event_filter,
    list_filter,
    queue_selection,
    workload_named,
)
from services.global_scheduler.shared_looks import SharedLooks
from services.global_scheduler.snapshot_stream import snapshot_stream
from services.global_scheduler.submission import GREATEST_BATCH, SubmissionBatcher
from services.global_scheduler.surroundings import SurroundingsKeeper
from services.global_scheduler.user_requests import UserRequests
from services.global_scheduler.virtual_cluster_look import virtual_clusters
from services.global_scheduler.visible import may_see, owned_among, owners, without_others
from services.global_scheduler.workload_graph import graph_message
from services.global_scheduler.workload_look import Seen, WorkloadLook
from services.global_scheduler.workload_watchers import WorkloadWatchers
from services.grpc_errors import InvalidArgument, NotFound
from services.machine_decision import decide, decision_message
from services.security.audit import audited, note_before
from services.security.transport import PLAINTEXT, TransportSecurity
from services.tracing.traces import NoTraces, Traces
from services.wire.workloads import state_to_proto
from topmast.v1 import (
    event_pb2,
    fleet_state_pb2,
    global_scheduler_pb2_grpc,
    machine_assignment_pb2,
    regional_scheduler_pb2,
    tenant_use_pb2,
    workload_pb2,
)
from topmast.v1 import global_scheduler_pb2 as messages

PATIENCE_REAL_S = 10.0
"""For how long a call waits for a database that has just been lost."""

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
        uploads: FleetUploads,
        look: WorkloadLook,
        watchers: WorkloadWatchers,
        credit_settings: CreditSettings,
        user_requests: UserRequests,
        *,
        require_ready: Callable[[], None],
        room: DiskRoom,
        traces: Traces | None = None,
        security: TransportSecurity = PLAINTEXT,
    ) -> None:
        """`require_ready` raises Unavailable while calls cannot be answered."""
        self._room = room
        self._security = security
        self._credit_settings = credit_settings
        self._database = database
        self._clock = clock
        self._batcher = batcher
        self._surroundings = surroundings
        self._uploads = uploads
        self._workload_look = look
        self._looks = SharedLooks(database, look, PATIENCE_REAL_S)
        self._watchers = watchers
        self._user_requests = user_requests
        self._require_ready = require_ready
        self._traces = traces or NoTraces()

    # ------------------------------------------------------------ submit and cancel

    async def SubmitWorkload(
        self, request: messages.SubmitWorkloadRequest, context: Context
    ) -> messages.SubmitWorkloadResponse:
        self._room.require_room()
        self._require_ready()
        if request.dry_run:
            (checked,) = await self._batcher.check([request], lambda _: "")
            return checked
        came_real_s = time.time()
        (result,) = await self._batcher.submit([request], lambda _: "")
        self._tell([result], came_real_s, context)
        return self._accepted(request, result)

    async def SubmitWorkloads(
        self, request: messages.SubmitWorkloadsRequest, context: Context
    ) -> messages.SubmitWorkloadsResponse:
        self._room.require_room()
        self._require_ready()
        if len(request.requests) > GREATEST_BATCH:
            raise InvalidArgument.of(
                "requests", f"are {len(request.requests)}; at most {GREATEST_BATCH} are possible at a time"
            )
        if not request.requests:
            return messages.SubmitWorkloadsResponse()
        if any(one.dry_run for one in request.requests):
            if not all(one.dry_run for one in request.requests):
                raise InvalidArgument.of("requests", "are a dry run in part; say dry_run of all or of none")
            checked = await self._batcher.check(request.requests, lambda index: f"requests[{index}].")
            return messages.SubmitWorkloadsResponse(responses=checked)
        came_real_s = time.time()
        results = await self._batcher.submit(request.requests, lambda index: f"requests[{index}].")
        self._tell(results, came_real_s, context)
        return messages.SubmitWorkloadsResponse(
            responses=[self._accepted(one, result) for one, result in zip(request.requests, results, strict=True)]
        )

    def _tell(self, results: Sequence[SubmissionResult], came_real_s: float, context: Context) -> None:
        """Begins the traces of what was submitted; that of an array is its first element's."""
        if not self._traces.wanted:
            return
        metadata, stored_real_s = tuple(context.invocation_metadata() or ()), time.time()
        for result in results:
            if not result.existed:
                self._traces.submitted(result.workload, came_real_s, stored_real_s, metadata)

    def _accepted(
        self, request: messages.SubmitWorkloadRequest, result: SubmissionResult
    ) -> messages.SubmitWorkloadResponse:
        remarks = self._workload_look.remarks(request.specification)
        return messages.SubmitWorkloadResponse(workload=result.workload, existed=result.existed, remarks=remarks)

    async def CancelWorkload(
        self, request: messages.CancelWorkloadRequest, context: Context
    ) -> messages.CancelWorkloadResponse:
        workload, reason = workload_named(request.workload), cancellation_reason(request)
        now = self._clock.now()
        state = await self._run(
            lambda connection: cancel_workload_or_array(connection, workload, reason, now), states_before([workload])
        )
        return messages.CancelWorkloadResponse(state=state_to_proto(state))

    async def CancelWorkloads(
        self, request: messages.CancelWorkloadsRequest, context: Context
    ) -> messages.WorkloadStates:
        self._require_ready()
        return await self._user_requests.cancel(request)

    # ------------------------------------------------------------ hold, release, requeue and change

    async def HoldWorkloads(self, request: messages.HoldWorkloadsRequest, context: Context) -> messages.WorkloadStates:
        self._require_ready()
        return await self._user_requests.hold(request)

    async def ReleaseWorkloads(
        self, request: messages.ReleaseWorkloadsRequest, context: Context
    ) -> messages.WorkloadStates:
        self._require_ready()
        return await self._user_requests.release(request)

    async def RequeueWorkloads(
        self, request: messages.RequeueWorkloadsRequest, context: Context
    ) -> messages.WorkloadStates:
        self._require_ready()
        return await self._user_requests.requeue(request)

    async def ChangeWorkloads(
        self, request: messages.ChangeWorkloadsRequest, context: Context
    ) -> messages.WorkloadStates:
        self._require_ready()
        return await self._user_requests.change(request)

    async def GetWorkloadGraph(
        self, request: messages.GetWorkloadGraphRequest, context: Context
    ) -> messages.WorkloadGraph:
        workload = workload_named(request.workload)
        return await self._snapshot(lambda connection: graph_message(connection, workload))

    # ------------------------------------------------------------ change what runs

    async def ResizeWorkload(
        self, request: regional_scheduler_pb2.ResizeWorkloadRequest, context: Context
    ) -> regional_scheduler_pb2.ActionResponse:
        request.workload = workload = workload_named(request.workload)
        _, address = await self._snapshot(lambda connection: region_of(connection, workload))
        return await call_region(address, workload, lambda region: region.ResizeWorkload(request), self._security)

    async def RetuneWorkload(
        self, request: regional_scheduler_pb2.RetuneWorkloadRequest, context: Context
    ) -> regional_scheduler_pb2.ActionResponse:
        request.workload = workload = workload_named(request.workload)
        _, address = await self._snapshot(lambda connection: region_of(connection, workload))
        return await call_region(address, workload, lambda region: region.RetuneWorkload(request), self._security)

    async def MigrateWorkload(
        self, request: messages.MoveWorkloadRequest, context: Context
    ) -> regional_scheduler_pb2.ActionResponse:
        request.workload = workload = workload_named(request.workload)
        address, asked = await self._snapshot(lambda connection: destination(connection, request))
        return await call_region(address, workload, lambda region: region.MigrateWorkload(asked), self._security)

    async def DeclareLost(self, request: messages.DeclareLostRequest, context: Context) -> messages.DeclareLostResponse:
        return await self._run(lambda connection: declare_lost(connection, request, self._clock))

    # ------------------------------------------------------------ look

    async def GetWorkload(self, request: messages.GetWorkloadRequest, context: Context) -> workload_pb2.Workload:
        workload = workload_named(request.workload)
        message = await self._snapshot(lambda connection: self._workload_look.message_in_full(connection, workload))
        if message is None:
            raise NotFound("workload", workload)
        return message

    async def ListWorkloads(
        self, request: messages.ListWorkloadsRequest, context: Context
    ) -> messages.ListWorkloadsResponse:
        wanted, page_size = list_filter(request)
        wanted = replace(wanted, owners=owners())
        try:
            return await self._snapshot(
                lambda connection: queue_look.page(connection, wanted, page_size, request.page_token)
            )
        except BadPageToken as bad:
            raise InvalidArgument.of("page_token", str(bad)) from bad

    async def GetQueue(self, request: messages.GetQueueRequest, context: Context) -> messages.GetQueueResponse:
        tenant, limit = queue_selection(request)
        wanted = owned_among(tenant)
        return await self._snapshot(lambda connection: queue_look.queue(connection, wanted, limit))

    async def GetStatus(self, request: messages.GetStatusRequest, context: Context) -> messages.GetStatusResponse:
        return overview_message(
            await self._snapshot(partial(load_overview, owners=owners())), self._clock.now(), self._room.full
        )

    async def GetVirtualClusters(
        self, request: messages.GetVirtualClustersRequest, context: Context
    ) -> messages.GetVirtualClustersResponse:
        return await self._snapshot(
            lambda connection: virtual_clusters(connection, request.tenant, request.cluster, owners=owners())
        )

    async def GetLoans(self, request: messages.GetLoansRequest, context: Context) -> messages.GetLoansResponse:
        return await self._snapshot(lambda connection: loans(connection, request.cluster))

    async def GetFleet(
        self, request: fleet_state_pb2.GetFleetRequest, context: Context
    ) -> fleet_state_pb2.GetFleetResponse:
        return await self._snapshot(lambda connection: fleet_look.capacities(connection, request))

    async def ListMachines(
        self, request: fleet_state_pb2.ListMachinesRequest, context: Context
    ) -> fleet_state_pb2.ListMachinesResponse:
        return await self._snapshot(lambda connection: fleet_look.machines(connection, request, owners()))

    async def ListTenants(
        self, request: tenant_use_pb2.ListTenantsRequest, context: Context
    ) -> tenant_use_pb2.ListTenantsResponse:
        now = self._clock.now()
        return await self._snapshot(
            lambda connection: tenant_look.tenants(connection, request, self._credit_settings, now, owners())
        )

    async def GetUsage(
        self, request: tenant_use_pb2.GetUsageRequest, context: Context
    ) -> tenant_use_pb2.GetUsageResponse:
        now = self._clock.now()
        return await self._snapshot(lambda connection: tenant_look.usage(connection, request, now, owners()))

    # ------------------------------------------------------------ machines in and out of use

    async def Drain(self, request: fleet_state_pb2.DrainRequest, context: Context) -> fleet_state_pb2.DrainResponse:
        reason, deadline_s = draining.checked_reason(request), draining.deadline_of(request, self._clock.now())
        chosen = await self._snapshot(
            lambda connection: draining.choose_machines(connection, request.names, request.kind)
        )
        note_before(machines_before(chosen.states))
        return await draining.drain(chosen, reason, deadline_s, self._security)

    async def Undrain(
        self, request: fleet_state_pb2.UndrainRequest, context: Context
    ) -> fleet_state_pb2.UndrainResponse:
        chosen = await self._snapshot(
            lambda connection: draining.choose_machines(connection, request.names, request.kind)
        )
        note_before(machines_before(chosen.states))
        return await draining.undrain(chosen, self._security)

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
        seen: Seen | None = None
        sent: workload_pb2.Workload | None = None
        soon = True
        async with self._watchers.watch(workload) as watcher:
            while True:
                self._require_ready()
                now_seen = await self._looks.take(workload, seen, soon=soon)
                if now_seen is None:
                    raise NotFound("workload", workload)
                if now_seen != seen:
                    message = self._workload_look.message(now_seen)
                    if message != sent:
                        yield message
                    if message.ended_s:
                        return
                    seen, sent = now_seen, message
                await asyncio.sleep(_LEAST_INTERVAL_REAL_S)
                soon = await watcher.wait()

    async def WatchEvents(
        self, request: messages.WatchEventsRequest, context: Context
    ) -> AsyncIterator[event_pb2.Event]:
        wanted = replace(event_filter(request), owners=owners())
        self._require_ready()
        named = wanted.workload
        if named is not None and await self._snapshot(partial(may_see, workload=named)):
            # Its elements have events, and it has none: who follows it would wait for ever.
            await self._snapshot(lambda connection: refuse_array(connection, named))
        async with aclosing(
            event_stream(self._database, request.after_sequence, wanted, endless=request.follow)
        ) as events:
            async for event in events:
                yield event if wanted.owners is None else without_others(event)

    async def SaveSnapshot(
        self, request: messages.SaveSnapshotRequest, context: Context
    ) -> AsyncIterator[messages.SnapshotChunk]:
        self._require_ready()
        async with aclosing(snapshot_stream(self._database, self._clock, PATIENCE_REAL_S)) as chunks:
            async for chunk in chunks:
                yield chunk

    # ------------------------------------------------------------ apply

    async def ApplyFleet(self, request: messages.ApplyFleetRequest, context: Context) -> messages.ApplyFleetResponse:
        self._require_ready()
        described, tenants = await checked_request(request)
        if request.dry_run:
            changes = await changes_of_fleet(
                self._database, described, tenants, self._clock.now(), give_up_after_s=PATIENCE_REAL_S
            )
            return applied_message(described.fleet, tenants, changes)
        await self._run(replacement(described, tenants, self._clock.now()), fleet_before)
        await self._surroundings.refresh()
        return applied_message(described.fleet, tenants)

    async def BeginFleetUpload(
        self, request: messages.BeginFleetUploadRequest, context: Context
    ) -> messages.FleetUpload:
        self._room.require_room()
        self._require_ready()
        return await self._uploads.begin(request)

    async def UploadFleet(
        self, request_iterator: AsyncIterator[messages.FleetUploadPart], context: Context
    ) -> messages.FleetUpload:
        self._require_ready()
        return await self._uploads.receive(request_iterator)

    async def ApplyUploadedFleet(
        self, request: messages.ApplyUploadedFleetRequest, context: Context
    ) -> messages.ApplyFleetResponse:
        self._require_ready()
        return await self._uploads.apply(request.upload)

    async def ApplyTenants(
        self, request: messages.ApplyTenantsRequest, context: Context
    ) -> messages.ApplyTenantsResponse:
        self._require_ready()
        tenants = await asyncio.to_thread(checked_tenants, tuple(request.tenants))
        if request.dry_run:
            changes = await changes_of_tenants(self._database, tenants, give_up_after_s=PATIENCE_REAL_S)
            return messages.ApplyTenantsResponse(tenants=len(tenants), changes=changes)
        await self._run(partial(replace_tenants, tenants=tenants), tenants_before)
        await self._surroundings.refresh()
        return messages.ApplyTenantsResponse(tenants=len(tenants))

    # ------------------------------------------------------------ the database

    async def _run(
        self, operation: Callable[[AnyConnection], Awaitable[_Result]], before: Before | None = None
    ) -> _Result:
        self._require_ready()
        return await self._database.run(audited(operation, before), give_up_after_s=PATIENCE_REAL_S)

    async def _snapshot(self, operation: Callable[[AnyConnection], Awaitable[_Result]]) -> _Result:
        self._require_ready()
        return await self._database.run(operation, snapshot=True, give_up_after_s=PATIENCE_REAL_S)
