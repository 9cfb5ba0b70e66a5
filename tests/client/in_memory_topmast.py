"""A global scheduler and cluster managers in memory, for servers on loopback (loopback_server.py).

They keep to the promises of the protos (idempotency keys, paging, streams, google.rpc details) and decide nothing:
tests say what happens to a workload.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from topmast.v1 import (
    cluster_manager_pb2,
    event_pb2,
    fleet_state_pb2,
    global_scheduler_pb2,
    global_scheduler_pb2_grpc,
    workload_pb2,
)

Context = grpc.aio.ServicerContext[Any, Any]

ENDED = frozenset(
    {
        workload_pb2.WORKLOAD_STATE_COMPLETED,
        workload_pb2.WORKLOAD_STATE_FAILED,
        workload_pb2.WORKLOAD_STATE_CANCELLED,
    }
)


async def refuse(context: Context, code: grpc.StatusCode, sentence: str, *details: Message) -> NoReturn:
    """Ends the call with a canonical code and google.rpc details."""
    packed = []
    for detail in details:
        one = any_pb2.Any()
        one.Pack(detail)
        packed.append(one)
    status = status_pb2.Status(code=code_pb2.Code.Value(code.name), message=sentence, details=packed)
    await context.abort(code, sentence, trailing_metadata=(("grpc-status-details-bin", status.SerializeToString()),))
    raise AssertionError("abort does not return")


class InMemoryTopmast(global_scheduler_pb2_grpc.GlobalSchedulerServicer):
    """The global scheduler, and what it knows. Change it on the event loop of its server only."""

    def __init__(self) -> None:
        self.workloads: dict[str, workload_pb2.Workload] = {}
        self.keys: dict[tuple[str, str], tuple[bytes, str]] = {}
        self.events: list[event_pb2.Event] = []
        self.fleet = global_scheduler_pb2.ApplyFleetRequest()
        self.tenants = global_scheduler_pb2.ApplyTenantsRequest()
        self.changes = global_scheduler_pb2.DryRunChanges()
        """What dry runs of applying are told."""
        self.log: dict[str, list[cluster_manager_pb2.ReadLogsResponse]] = {}
        self.log_ended: set[tuple[str, int]] = set()
        self.cluster_addresses: dict[str, str] = {}
        self.reservations: list[global_scheduler_pb2.Reservation] = []
        self.calls: Counter[str] = Counter()
        self.failures: dict[str, list[tuple[grpc.StatusCode, str, tuple[Message, ...]] | None]] = {}
        """How the next calls of a method go: None is well."""
        self.break_streams_after: int | None = None
        self.break_in_order = False
        self.changed = asyncio.Event()

    def notify(self) -> None:
        """Something changed: wakes every stream."""
        self.changed.set()
        self.changed = asyncio.Event()

    # ------------------------------------------------------------ what tests make happen

    def add_event(self, **fields: Any) -> None:
        details = fields.pop("details", {})
        event = event_pb2.Event(sequence=10 * len(self.events) + 10, **fields)
        event.details.update(details)
        self.events.append(event)
        self.notify()

    def move(self, workload: str, state: workload_pb2.WorkloadState.ValueType, reason: str = "") -> None:
        found = self.workloads[workload]
        found.state = state
        found.reason = reason
        if state in ENDED:
            found.ended_s = 2_000.0
        self.notify()

    def dispatch(self, workload: str, placements: Mapping[str, str], region: str = "eu") -> None:
        """The next attempt runs: `placements` maps job names to clusters."""
        found = self.workloads[workload]
        found.attempts.add(
            attempt=len(found.attempts) + 1,
            region=region,
            dispatched_s=1_500.0,
            started_s=1_501.0,
            placements=[
                workload_pb2.TaskPlacement(
                    job=job, cluster=cluster, machine=f"{cluster}-m1", gpu_indices=[0, 1], cpus=8, memory_gib=64
                )
                for job, cluster in placements.items()
            ],
        )
        found.region = region
        self.move(workload, workload_pb2.WORKLOAD_STATE_RUNNING)

    def keep(self, workload: str, machines: Sequence[str], region: str = "eu") -> None:
        """Machines are kept for the workload."""
        specification = self.workloads[workload].specification
        self.reservations.append(
            global_scheduler_pb2.Reservation(
                workload=workload,
                name=specification.name,
                tenant=specification.tenant,
                region=region,
                clusters=[f"{region}-1"],
                machines=machines,
                gpus=16,
                priority=3,
                made_s=1_100.0,
                expected_start_s=4_700.0,
                expires_s=6_500.0,
            )
        )

    def print_line(self, cluster: str, text: str, job: str = "main", attempt: int = 1) -> None:
        self.log.setdefault(cluster, []).append(
            cluster_manager_pb2.ReadLogsResponse(attempt=attempt, job=job, chunk=text.encode())
        )
        self.notify()

    def end_log(self, cluster: str, attempt: int = 1) -> None:
        self.log_ended.add((cluster, attempt))
        self.notify()

    def fail(self, method: str, code: grpc.StatusCode, sentence: str, *details: Message, times: int = 1) -> None:
        """The next calls of a method fail."""
        self.failures.setdefault(method, []).extend([(code, sentence, details)] * times)

    async def begin(self, method: str, context: Context) -> None:
        self.calls[method] += 1
        waiting = self.failures.get(method)
        if waiting and (failure := waiting.pop(0)) is not None:
            code, sentence, details = failure
            await refuse(context, code, sentence, *details)

    async def breaks_off(self, sent: int, context: Context) -> bool:
        """Breaks a stream that has sent as much as the test allows; True when it is to end as if all were well."""
        if self.break_streams_after is None or sent < self.break_streams_after:
            return False
        if not self.break_in_order:
            await refuse(context, grpc.StatusCode.UNAVAILABLE, "the stream broke off")
        return True

    # ------------------------------------------------------------ GlobalScheduler

    async def SubmitWorkload(
        self, request: global_scheduler_pb2.SubmitWorkloadRequest, context: Context
    ) -> global_scheduler_pb2.SubmitWorkloadResponse:
        await self.begin("SubmitWorkload", context)
        return await self._submit(request, "", context)

    async def SubmitWorkloads(
        self, request: global_scheduler_pb2.SubmitWorkloadsRequest, context: Context
    ) -> global_scheduler_pb2.SubmitWorkloadsResponse:
        await self.begin("SubmitWorkloads", context)
        return global_scheduler_pb2.SubmitWorkloadsResponse(
            responses=[
                await self._submit(one, f"requests[{index}].", context) for index, one in enumerate(request.requests)
            ]
        )

    async def _submit(
        self, request: global_scheduler_pb2.SubmitWorkloadRequest, path: str, context: Context
    ) -> global_scheduler_pb2.SubmitWorkloadResponse:
        specification = request.specification
        if not specification.name:
            bad = error_details_pb2.BadRequest()
            bad.field_violations.add(field=f"{path}specification.name", description="is empty")
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "the workload is not valid", bad)
        if request.dry_run:
            host = global_scheduler_pb2.HostingRegion(region="eu", clusters=["eu-1", "eu-2"])
            return global_scheduler_pb2.SubmitWorkloadResponse(hosts=[host])
        body = specification.SerializeToString(deterministic=True)
        key = (specification.tenant, request.idempotency_key)
        if request.idempotency_key and key in self.keys:
            known_body, workload = self.keys[key]
            if known_body != body:
                await refuse(context, grpc.StatusCode.ALREADY_EXISTS, "the key was used with another workload")
            return global_scheduler_pb2.SubmitWorkloadResponse(workload=workload, existed=True)
        workload = f"w{len(self.workloads) + 1}"
        self.keys[key] = (body, workload)
        self.workloads[workload] = workload_pb2.Workload(
            workload=workload,
            specification=specification,
            state=workload_pb2.WORKLOAD_STATE_PENDING,
            submitted_s=1_000.0 + len(self.workloads),
            queue_position=workload_pb2.QueuePosition(priority=2, credit=0.5, rank=len(self.workloads) + 1),
        )
        self.add_event(t=1_000.0, event="submitted", workload=workload, tenant=specification.tenant)
        return global_scheduler_pb2.SubmitWorkloadResponse(workload=workload)

    async def _find(self, workload: str, context: Context) -> workload_pb2.Workload:
        if workload not in self.workloads:
            await refuse(context, grpc.StatusCode.NOT_FOUND, f"there is no workload {workload}")
        return self.workloads[workload]

    async def GetWorkload(
        self, request: global_scheduler_pb2.GetWorkloadRequest, context: Context
    ) -> workload_pb2.Workload:
        await self.begin("GetWorkload", context)
        return await self._find(request.workload, context)

    async def ListWorkloads(
        self, request: global_scheduler_pb2.ListWorkloadsRequest, context: Context
    ) -> global_scheduler_pb2.ListWorkloadsResponse:
        await self.begin("ListWorkloads", context)
        page_size = request.page_size or 100
        if page_size > 1_000:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "page_size is greater than 1,000")
        chosen = [
            workload
            for workload in reversed(self.workloads.values())
            if (not request.tenant or workload.specification.tenant == request.tenant)
            and (not request.states or workload.state in request.states)
            and (not request.region or workload.region == request.region)
            and request.name_contains in workload.specification.name
            and workload.submitted_s > request.submitted_after_s
            and (not request.submitted_before_s or workload.submitted_s < request.submitted_before_s)
        ]
        start = int(request.page_token or 0)
        more = len(chosen) > start + page_size
        return global_scheduler_pb2.ListWorkloadsResponse(
            workloads=chosen[start : start + page_size], next_page_token=str(start + page_size) if more else ""
        )

    async def WatchWorkload(
        self, request: global_scheduler_pb2.WatchWorkloadRequest, context: Context
    ) -> AsyncIterator[workload_pb2.Workload]:
        await self.begin("WatchWorkload", context)
        workload = await self._find(request.workload, context)
        sent = None
        while True:
            changed = self.changed
            if sent != workload:
                sent = workload_pb2.Workload()
                sent.CopyFrom(workload)
                yield sent
            if workload.state in ENDED:
                return
            await changed.wait()

    async def WatchEvents(
        self, request: global_scheduler_pb2.WatchEventsRequest, context: Context
    ) -> AsyncIterator[event_pb2.Event]:
        await self.begin("WatchEvents", context)
        after = request.after_sequence
        sent = 0
        while True:
            changed = self.changed
            for event in [event for event in self.events if event.sequence > after]:
                after = event.sequence
                wanted = (
                    (not request.workload or event.workload == request.workload)
                    and (not request.tenant or event.tenant == request.tenant)
                    and (not request.events or event.event in request.events)
                )
                if not wanted:
                    continue
                if await self.breaks_off(sent, context):
                    return
                sent += 1
                yield event
            if not request.follow:
                return
            await changed.wait()

    async def CancelWorkload(
        self, request: global_scheduler_pb2.CancelWorkloadRequest, context: Context
    ) -> global_scheduler_pb2.CancelWorkloadResponse:
        await self.begin("CancelWorkload", context)
        workload = await self._find(request.workload, context)
        if workload.state in ENDED:
            broken = error_details_pb2.PreconditionFailure()
            broken.violations.add(type="STATE", subject=request.workload, description="has ended")
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "it cannot be cancelled", broken)
        self.move(request.workload, workload_pb2.WORKLOAD_STATE_CANCELLED, request.reason)
        return global_scheduler_pb2.CancelWorkloadResponse(state=workload.state)

    async def GetQueue(
        self, request: global_scheduler_pb2.GetQueueRequest, context: Context
    ) -> global_scheduler_pb2.GetQueueResponse:
        await self.begin("GetQueue", context)
        queued = [
            workload
            for workload in self.workloads.values()
            if workload.state == workload_pb2.WORKLOAD_STATE_PENDING
            and (not request.tenant or workload.specification.tenant == request.tenant)
        ]
        return global_scheduler_pb2.GetQueueResponse(
            entries=[
                global_scheduler_pb2.QueueEntry(
                    workload=workload.workload,
                    name=workload.specification.name,
                    tenant=workload.specification.tenant,
                    state=workload.state,
                    position=workload.queue_position,
                    submitted_s=workload.submitted_s,
                    gpus=sum(job.tasks * job.resources.gpus for job in workload.specification.jobs),
                )
                for workload in queued[: request.limit or 50]
            ],
            queued=len(queued),
            scan_pass=7,
            scan_pass_s=1_100.0,
            reservations=[one for one in self.reservations if request.tenant in ("", one.tenant)],
        )

    async def ApplyFleet(
        self, request: global_scheduler_pb2.ApplyFleetRequest, context: Context
    ) -> global_scheduler_pb2.ApplyFleetResponse:
        await self.begin("ApplyFleet", context)
        if not request.dry_run:
            self.fleet = request
        clusters = [cluster for region in request.fleet.regions for cluster in region.clusters]
        machines = [machine for cluster in clusters for rack in cluster.racks for machine in rack.machines]
        return global_scheduler_pb2.ApplyFleetResponse(
            regions=len(request.fleet.regions),
            clusters=len(clusters),
            machines=len(machines),
            gpus=sum(machine.gpus for machine in machines),
            tenants=len(request.tenants.tenants),
            changes=self.changes if request.dry_run else None,
        )

    async def GetVirtualClusters(
        self, request: global_scheduler_pb2.GetVirtualClustersRequest, context: Context
    ) -> global_scheduler_pb2.GetVirtualClustersResponse:
        await self.begin("GetVirtualClusters", context)
        answer = global_scheduler_pb2.GetVirtualClustersResponse()
        if request.cluster in ("", "eu-1"):
            answer.clusters.add(region="eu", cluster="eu-1", gpus=16, guaranteed_gpus=8, idle_gpus=4, out_of_use_gpus=4)
            answer.tenants.add(
                tenant="vision", cluster="eu-1", owned_gpus=16, guaranteed_gpus=8, fair_share_gpus=3, bad_gpus=4
            )
            answer.levels.add(
                tenant="vision",
                cluster="eu-1",
                hierarchy="a100",
                level="machine",
                gpus_per_cell=8,
                owned=2,
                used=1,
                free=1,
            )
        return answer

    async def GetLoans(
        self, request: global_scheduler_pb2.GetLoansRequest, context: Context
    ) -> global_scheduler_pb2.GetLoansResponse:
        """eu-serving lends two of its four machines, eu-silent has never answered."""
        await self.begin("GetLoans", context)
        answer = global_scheduler_pb2.GetLoansResponse()
        if request.cluster in ("", "eu-serving"):
            answer.clusters.add(
                region="eu",
                cluster="eu-serving",
                machines=4,
                on_loan=2,
                wanted_on_loan=2,
                needed_machines=1,
                forecast=0.25,
                asked_s=1000.0,
                answered_s=1000.0,
            )
        if request.cluster in ("", "eu-silent"):
            answer.clusters.add(
                region="eu", cluster="eu-silent", machines=4, asked_s=1000.0, problem="it does not answer"
            )
        return answer

    async def ApplyTenants(
        self, request: global_scheduler_pb2.ApplyTenantsRequest, context: Context
    ) -> global_scheduler_pb2.ApplyTenantsResponse:
        await self.begin("ApplyTenants", context)
        if request.dry_run:
            return global_scheduler_pb2.ApplyTenantsResponse(tenants=len(request.tenants), changes=self.changes)
        self.tenants = request
        return global_scheduler_pb2.ApplyTenantsResponse(tenants=len(request.tenants))

    async def DeclareLost(
        self, request: global_scheduler_pb2.DeclareLostRequest, context: Context
    ) -> global_scheduler_pb2.DeclareLostResponse:
        await self.begin("DeclareLost", context)
        ended = {"east": ["w1#1", "w2#3"], "west": ["w3#2"]}.get(request.region, [])
        return global_scheduler_pb2.DeclareLostResponse(clusters=["east-a"] if ended else [], attempts=ended)

    async def GetFleet(
        self, _request: fleet_state_pb2.GetFleetRequest, context: Context
    ) -> fleet_state_pb2.GetFleetResponse:
        """As it was applied; nothing runs on it."""
        await self.begin("GetFleet", context)
        return fleet_state_pb2.GetFleetResponse(
            capacities=[
                fleet_state_pb2.FleetCapacity(
                    region=region.region,
                    cluster=cluster.cluster,
                    gpu_model=model,
                    machines=sum(machine.gpu_model == model for rack in cluster.racks for machine in rack.machines),
                )
                for region in self.fleet.fleet.regions
                for cluster in region.clusters
                for model in sorted({machine.gpu_model for rack in cluster.racks for machine in rack.machines})
            ]
        )

    async def GetStatus(
        self, _request: global_scheduler_pb2.GetStatusRequest, context: Context
    ) -> global_scheduler_pb2.GetStatusResponse:
        await self.begin("GetStatus", context)
        states = Counter(workload.state for workload in self.workloads.values())
        return global_scheduler_pb2.GetStatusResponse(
            now_s=1_200.0,
            version="0.1.0",
            tiers=[
                global_scheduler_pb2.TierStatus(tier="global", address="127.0.0.1:1", alive=True, process_id=11),
                global_scheduler_pb2.TierStatus(tier="regional", name="eu", address="127.0.0.1:2", alive=False),
                *(
                    global_scheduler_pb2.TierStatus(tier="cluster", name=name, address=address, alive=True)
                    for name, address in self.cluster_addresses.items()
                ),
            ],
            regions=[
                global_scheduler_pb2.RegionStatus(
                    region="eu",
                    clusters=2,
                    machines=4,
                    machines_up=3,
                    gpus=32,
                    gpus_in_use=20,
                    live_attempts=5,
                    invariant_violations=41,
                )
            ],
            workloads={
                workload_pb2.WorkloadState.Name(state).removeprefix("WORKLOAD_STATE_"): count
                for state, count in states.items()
            },
            scan_pass=7,
        )


class InMemoryClusterManager:
    """The logs of one cluster: what `topmast.log[cluster]` holds, to the end when `topmast.log_ended` says so."""

    def __init__(self, topmast: InMemoryTopmast, cluster: str) -> None:
        self._topmast = topmast
        self._cluster = cluster

    async def read_logs(
        self, request: cluster_manager_pb2.ReadLogsRequest, context: Context
    ) -> AsyncIterator[cluster_manager_pb2.ReadLogsResponse]:
        topmast = self._topmast
        await topmast.begin("ReadLogs", context)
        position = 0
        while True:
            changed = topmast.changed
            for line in topmast.log.get(self._cluster, [])[position:]:
                position += 1
                if line.attempt == request.attempt and request.job in {"", line.job}:
                    yield line
                if await topmast.breaks_off(position, context):
                    return
            if not request.follow or (self._cluster, request.attempt) in topmast.log_ended:
                return
            await changed.wait()

    def add_to_server(self, server: grpc.aio.Server) -> None:
        handler = grpc.unary_stream_rpc_method_handler(
            self.read_logs,
            request_deserializer=cluster_manager_pb2.ReadLogsRequest.FromString,
            response_serializer=cluster_manager_pb2.ReadLogsResponse.SerializeToString,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("topmast.v1.ClusterManager", {"ReadLogs": handler}),)
        )
