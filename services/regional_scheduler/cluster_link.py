"""The link to one cluster manager: its reports come into the inbox, orders go out in the order they were given.

When anything goes wrong the link is dropped and made anew; the first report of a new link names every attempt that
the cluster manager knows, and the reader of the inbox then gives again the orders that were lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypedDict

import grpc
import structlog

from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, WorkloadId
from domain.placement import AttemptKey
from domain.plan import TaskName
from services.database.lease_store import Lease
from services.execution.executor import AttemptPhase, AttemptStatus, JobMeasurement, JobRendezvous
from services.regional_scheduler.order_batches import keys_in_requests, plans_in_requests
from services.security.certificate_folder import CertificatesUnusable
from services.security.transport import PLAINTEXT, TransportSecurity
from services.task_end import end_task
from services.tiers.tier_channel import tier_channel
from services.wire.plans import attempt_reference_to_proto
from topmast.v1 import cluster_manager_pb2, cluster_manager_pb2_grpc

CALL_TIMEOUT_REAL_S = 10.0
RECONNECT_REAL_S = 0.25

_STATUSES_AT_ONCE = 256
"""To read more of one message would hold the event loop up."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MachineReport:
    machine: MachineId
    up: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """A cluster manager's report. `complete`: it names every attempt that it knows.

    `connection` counts the connections of the link: with the complete report of one begins what it may be asked.
    """

    cluster: ClusterId
    connection: int
    complete: bool
    attempts: tuple[AttemptStatus, ...]
    machines: tuple[MachineReport, ...]


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The cluster manager cannot be reached; orders given on the last connection may be lost."""

    cluster: ClusterId


@dataclass(frozen=True, slots=True)
class ChangeRefused:
    """The cluster manager says that this change of an attempt's placements, by its number, is impossible."""

    cluster: ClusterId
    key: AttemptKey
    revision: int
    reason: str


LinkMessage = ClusterReport | LinkLost | ChangeRefused


@dataclass(frozen=True, slots=True)
class StartOrders:
    plans: tuple[cluster_manager_pb2.AttemptPlan, ...]


@dataclass(frozen=True, slots=True)
class StopOrders:
    attempts: tuple[AttemptKey, ...]
    grace_s: float


@dataclass(frozen=True, slots=True)
class ForgetOrders:
    attempts: tuple[AttemptKey, ...]


@dataclass(frozen=True, slots=True)
class ResizeOrder:
    request: cluster_manager_pb2.ResizeAttemptRequest


class Fence(TypedDict):
    """The fields of a request that show in the name of which lease it is made."""

    fencing_token: int
    fencing_secret: str


OutgoingOrder = StartOrders | StopOrders | ForgetOrders | ResizeOrder


class ClusterLink:
    """One link. `run` until cancelled; `send` at any time.

    The reader of the inbox is always a little behind: the link may have broken, and be there again, without its
    knowing. So an order names the connection that it is meant for, and one for an earlier connection is dropped:
    what a complete report does not name was not ordered before it and never will be by what was sent before it.
    Orders on the way of an earlier link, or of an earlier holder of the lease, are refused by the cluster manager,
    for the watch that brings the complete report shows it the present fencing token first.
    """

    def __init__(
        self,
        cluster: ClusterId,
        find_address: Callable[[ClusterId], Awaitable[str | None]],
        inbox: Callable[[LinkMessage], None],
        lease: Lease,
        security: TransportSecurity = PLAINTEXT,
    ) -> None:
        self.cluster = cluster
        self._connection = 0
        self._reported = False
        self._find_address = find_address
        self._inbox = inbox
        self._lease = lease
        self._security = security
        self._outgoing: asyncio.Queue[OutgoingOrder] = asyncio.Queue()

    def send(self, order: OutgoingOrder, connection: int) -> None:
        """Sends it after what was sent before, unless that connection is over."""
        if connection == self._connection:
            self._outgoing.put_nowait(order)

    async def run(self) -> None:
        while True:
            try:
                await self._run_once()
            except grpc.aio.AioRpcError as error:
                _log.info("cluster link broke", cluster=self.cluster, code=error.code().name, said=error.details())
            except CertificatesUnusable as unusable:
                _log.warning("cannot call the cluster", cluster=self.cluster, why=str(unusable))
            self._connection += 1
            if self._reported:
                self._reported = False
                self._inbox(LinkLost(self.cluster))
            await asyncio.sleep(RECONNECT_REAL_S)

    async def _run_once(self) -> None:
        address = await self._find_address(self.cluster)
        if address is None:
            return
        self._outgoing = asyncio.Queue()
        async with tier_channel(address, self._security) as channel:
            stub = cluster_manager_pb2_grpc.ClusterManagerStub(channel)
            async with _in_background(self._send_orders(stub)) as sending:
                reports = stub.WatchStatus(cluster_manager_pb2.WatchStatusRequest(**self._fence()))
                reading = asyncio.ensure_future(self._read_reports(reports))
                try:
                    await asyncio.wait({sending, reading}, return_when=asyncio.FIRST_COMPLETED)
                    for task in (sending, reading):
                        if task.done():
                            task.result()
                finally:
                    reports.cancel()
                    await _end(reading)

    async def _read_reports(
        self,
        reports: grpc.aio.UnaryStreamCall[
            cluster_manager_pb2.WatchStatusRequest, cluster_manager_pb2.WatchStatusResponse
        ],
    ) -> None:
        async for message in reports:
            self._reported = True
            self._inbox(await self._report_of(message))

    async def _report_of(self, message: cluster_manager_pb2.WatchStatusResponse) -> ClusterReport:
        """In a thread when it is long: the lease is kept, and calls answered, meanwhile."""
        if len(message.attempts) + len(message.machines) <= _STATUSES_AT_ONCE:
            return report_from_proto(self.cluster, self._connection, message)
        return await asyncio.to_thread(report_from_proto, self.cluster, self._connection, message)

    async def _send_orders(self, stub: cluster_manager_pb2_grpc.ClusterManagerAsyncStub) -> None:
        following: OutgoingOrder | None = None
        while True:
            order, following = following or await self._outgoing.get(), None
            if isinstance(order, ForgetOrders):
                order, following = self._with_those_behind(order)
            match order:
                case StartOrders(plans):
                    for some_plans in plans_in_requests(plans):
                        await stub.ExecutePlan(
                            cluster_manager_pb2.ExecutePlanRequest(plans=some_plans, **self._fence()),
                            timeout=CALL_TIMEOUT_REAL_S,
                        )
                case StopOrders(attempts, grace_s):
                    for some in keys_in_requests(attempts):
                        await stub.StopAttempt(
                            cluster_manager_pb2.StopAttemptRequest(
                                attempts=[attempt_reference_to_proto(key) for key in some],
                                grace_s=grace_s,
                                **self._fence(),
                            ),
                            timeout=CALL_TIMEOUT_REAL_S,
                        )
                case ForgetOrders(attempts):
                    for some in keys_in_requests(attempts):
                        await stub.ForgetAttempts(
                            cluster_manager_pb2.ForgetAttemptsRequest(
                                attempts=[attempt_reference_to_proto(key) for key in some],
                                **self._fence(),
                            ),
                            timeout=CALL_TIMEOUT_REAL_S,
                        )
                case ResizeOrder(request):
                    request.fencing_token, request.fencing_secret = self._lease.token, self._lease.secret
                    await self._resize(stub, request)

    def _fence(self) -> Fence:
        return {"fencing_token": self._lease.token, "fencing_secret": self._lease.secret}

    def _with_those_behind(self, order: ForgetOrders) -> tuple[ForgetOrders, OutgoingOrder | None]:
        """One order for all that are to be forgotten now, and what comes behind them: attempts end one by one, and each call takes
        a round trip, for which all orders behind it would wait."""
        attempts = list(order.attempts)
        while not self._outgoing.empty():
            behind = self._outgoing.get_nowait()
            if not isinstance(behind, ForgetOrders):
                return ForgetOrders(tuple(attempts)), behind
            attempts += behind.attempts
        return ForgetOrders(tuple(attempts)), None

    async def _resize(
        self, stub: cluster_manager_pb2_grpc.ClusterManagerAsyncStub, request: cluster_manager_pb2.ResizeAttemptRequest
    ) -> None:
        try:
            await stub.ResizeAttempt(request, timeout=CALL_TIMEOUT_REAL_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
                raise
            # Nothing is lost and a new link would not help: all other orders go on, and the region undoes the change.
            key = AttemptKey(WorkloadId(request.workload), AttemptNumber(request.attempt))
            self._inbox(ChangeRefused(self.cluster, key, request.revision, error.details() or "it is impossible"))


@asynccontextmanager
async def _in_background(work: Awaitable[None]) -> AsyncIterator[asyncio.Future[None]]:
    """Runs beside the block and is cancelled with it."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        await _end(task)


async def _end(task: asyncio.Future[None]) -> None:
    """Returns when it has ended, whatever the cluster manager had said to it."""
    with suppress(grpc.aio.AioRpcError):
        await end_task(task)


def report_from_proto(
    cluster: ClusterId, connection: int, message: cluster_manager_pb2.WatchStatusResponse
) -> ClusterReport:
    """A message of the status stream as values."""
    return ClusterReport(
        cluster,
        connection,
        message.complete,
        tuple(_status_from_proto(status) for status in message.attempts),
        tuple(MachineReport(MachineId(status.machine), status.up, status.reason) for status in message.machines),
    )


_PHASES = {
    value: AttemptPhase[name.removeprefix("ATTEMPT_PHASE_")]
    for name, value in cluster_manager_pb2.AttemptPhase.items()
    if value != cluster_manager_pb2.ATTEMPT_PHASE_UNSPECIFIED
}


def _status_from_proto(status: cluster_manager_pb2.AttemptStatus) -> AttemptStatus:
    return AttemptStatus(
        key=AttemptKey(WorkloadId(status.workload), AttemptNumber(status.attempt)),
        phase=_PHASES[status.phase],
        since_s=status.since_s,
        started_s=status.started_s,
        progress=status.progress,
        checkpoint_progress=status.checkpoint_progress,
        throughput=status.throughput,
        reason=status.reason,
        emulated=status.emulated,
        revision=status.revision,
        changed_s=status.changed_s,
        changed_progress=status.changed_progress,
        measured=tuple(
            JobMeasurement(JobName(one.job), one.iteration_s, one.largest_tensor_mib, one.model_mib)
            for one in status.measured
        ),
        lost_tasks=tuple(TaskName(JobName(lost.job), lost.task) for lost in status.lost_tasks),
        rendezvous=tuple(JobRendezvous(JobName(one.job), one.address, one.port) for one in status.rendezvous),
        exit_code=status.exit_code if status.HasField("exit_code") else None,
    )


def stop_orders(attempts: Sequence[tuple[AttemptKey, float]]) -> list[StopOrders]:
    """Stop orders for (attempt, grace_s), one for each length of grace, in that order."""
    by_grace: dict[float, list[AttemptKey]] = {}
    for key, grace_s in attempts:
        by_grace.setdefault(grace_s, []).append(key)
    return [StopOrders(tuple(keys), grace_s) for grace_s, keys in sorted(by_grace.items())]
