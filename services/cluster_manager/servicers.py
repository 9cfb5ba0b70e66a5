"""The cluster manager's two services: for its regional scheduler, and for the tasks that run here."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager

import grpc

from domain.identifiers import ClusterId
from domain.placement import AttemptKey
from services.cluster_manager.fence import Fence
from services.cluster_manager.session_relay import relay_session
from services.cluster_manager.status_messages import (
    changes_to_proto,
    key_from_proto,
    keys_from_proto,
    log_chunk_to_proto,
    log_request_from_proto,
    machine_to_proto,
    orders_from_proto,
    placements_from_proto,
    status_to_proto,
    task_from_proto,
)
from services.execution.change_feed import ChangeReader
from services.execution.executor import (
    Change,
    Executor,
    ImpossibleOrder,
    OrderRefused,
    SessionImpossible,
    StaleOrder,
    TaskReport,
    TooManySessions,
    UnknownAttempt,
    UnknownTask,
)
from services.grpc_errors import (
    Exhausted,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    Unauthenticated,
    Unavailable,
)
from services.metrics.service_metrics import ServiceMetrics
from services.security.secret_sessions import ForeignSession
from services.storage.storage_folder import StoreFailed
from services.tracing.traces import NoTraces, Traces
from services.wire.plans import attempt_to_text
from topmast.v1 import (
    cluster_manager_pb2,
    cluster_manager_pb2_grpc,
    training_session_pb2,
    training_session_pb2_grpc,
)

STALE_ATTEMPT = "STALE_ATTEMPT"

_RETRY_AFTER_S = 0.5
_STORE_AGAIN_S = 5.0

_GREATEST_AMOUNT = 2.0**53
"""Of anything that a task reports: greater ones cannot be counted step by step, and no training has so many."""

_CHANGES_AT_ONCE = 256
"""To make a message of more would hold the event loop up."""


class Gate:
    """Closed until the executor has adopted what was running: until then no call can be answered truthfully.

    Orders are taken only while `may_act`: when this process has slept longer than its lease, another one may be
    running the same attempts by now.
    """

    def __init__(self, cluster: ClusterId, may_act: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._may_act = may_act
        self.open = False

    def check(self) -> None:
        """Raises Unavailable while it is closed."""
        if not self.open:
            raise Unavailable(f"the cluster manager of {self._cluster} is not serving at the moment", _RETRY_AFTER_S)

    def check_for_orders(self) -> None:
        """Raises Unavailable while no orders are taken."""
        self.check()
        if not self._may_act():
            raise Unavailable(f"this cluster manager may have lost the lease of {self._cluster}", _RETRY_AFTER_S)


class ClusterManagerServicer(cluster_manager_pb2_grpc.ClusterManagerServicer):
    """Orders in, statuses out."""

    def __init__(
        self,
        cluster: ClusterId,
        executor: Executor,
        gate: Gate,
        fence: Fence,
        metrics: ServiceMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        orders = (metrics or ServiceMetrics()).orders
        self._executed, self._stopped, self._resized, self._forgotten = (
            orders.labels(cluster, order) for order in ("execute", "stop", "resize", "forget")
        )
        self._traces = traces or NoTraces()
        self._cluster = cluster
        self._executor = executor
        self._gate = gate
        self._fence = fence
        self._watches: set[ChangeReader[Change]] = set()

    def end_watches(self) -> None:
        """Ends every status stream, in order."""
        for watch in self._watches:
            watch.finish()

    async def ExecutePlan(
        self, request: cluster_manager_pb2.ExecutePlanRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> cluster_manager_pb2.ExecutePlanResponse:
        """All orders are taken but the stale ones; if there were any, the call fails and names them."""
        self._gate.check_for_orders()
        orders = orders_from_proto(request.plans)
        await self._fence.check(request.fencing_token, request.fencing_secret)  # also when there is nothing to do
        stale: list[StaleOrder] = []
        for order in orders:
            await self._fence.check(
                request.fencing_token, request.fencing_secret
            )  # a newer session may have begun meanwhile
            began_real_s = time.time()
            try:
                await self._executor.execute(order)
                self._executed.inc()
                self._tell(order.key, began_real_s)
            except StaleOrder as refusal:
                stale.append(refusal)
        if stale:
            subjects = ", ".join(attempt_to_text(refusal.key) for refusal in stale)
            raise PreconditionFailed(STALE_ATTEMPT, subjects, "; ".join(str(refusal) for refusal in stale))
        return cluster_manager_pb2.ExecutePlanResponse()

    def _tell(self, key: AttemptKey, began_real_s: float) -> None:
        if self._traces.wanted:
            said: dict[str, str | int] = {"attempt": int(key.attempt), "cluster": self._cluster}
            self._traces.done("order", key.workload, began_real_s, time.time(), said)

    async def StopAttempt(
        self, request: cluster_manager_pb2.StopAttemptRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> cluster_manager_pb2.StopAttemptResponse:
        self._gate.check_for_orders()
        keys = keys_from_proto(request.attempts)
        if not (math.isfinite(request.grace_s) and request.grace_s >= 0):
            raise InvalidArgument.of("grace_s", f"is {request.grace_s}; it must be a number of seconds, or 0")
        await self._fence.check(request.fencing_token, request.fencing_secret)
        for key in keys:
            await self._fence.check(request.fencing_token, request.fencing_secret)
            await self._executor.stop(key, request.grace_s)
            self._stopped.inc()
        return cluster_manager_pb2.StopAttemptResponse()

    async def ResizeAttempt(
        self, request: cluster_manager_pb2.ResizeAttemptRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> cluster_manager_pb2.ResizeAttemptResponse:
        self._gate.check_for_orders()
        key = key_from_proto(request)
        placements = placements_from_proto(request.placements)
        if request.revision < 1:
            raise InvalidArgument.of("revision", f"is {request.revision}; changes of placements are numbered from 1")
        _check_amounts(work_rate=request.work_rate)
        await self._fence.check(request.fencing_token, request.fencing_secret)
        with _told_to_the_caller():
            await self._executor.resize(key, placements, request.revision, request.work_rate or 1.0)
        self._resized.inc()
        return cluster_manager_pb2.ResizeAttemptResponse()

    async def GetStatus(
        self, request: cluster_manager_pb2.GetClusterStatusRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> cluster_manager_pb2.GetClusterStatusResponse:
        self._gate.check()
        return cluster_manager_pb2.GetClusterStatusResponse(
            cluster=self._cluster,
            attempts=[status_to_proto(status) for status in self._executor.statuses()],
            machines=[machine_to_proto(status) for status in self._executor.machines()],
        )

    async def WatchStatus(
        self, request: cluster_manager_pb2.WatchStatusRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> AsyncIterator[cluster_manager_pb2.WatchStatusResponse]:
        self._gate.check()
        if request.fencing_token:
            await self._fence.check(request.fencing_token, request.fencing_secret)
        with self._executor.subscribe() as watch:
            self._watches.add(watch)
            try:
                known: list[Change] = [*self._executor.statuses(), *self._executor.machines()]
                # What taking stock has itself published is in the first message already.
                watch.take()
                yield await _message_of(known, complete=True)
                while changes := await watch.next():
                    yield await _message_of(changes, complete=False)
            finally:
                self._watches.discard(watch)

    async def ForgetAttempts(
        self, request: cluster_manager_pb2.ForgetAttemptsRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> cluster_manager_pb2.ForgetAttemptsResponse:
        self._gate.check()
        keys = keys_from_proto(request.attempts)
        await self._fence.check(request.fencing_token, request.fencing_secret)
        await self._executor.forget(keys)
        self._forgotten.inc(len(keys))
        return cluster_manager_pb2.ForgetAttemptsResponse()

    async def ReadLogs(
        self, request: cluster_manager_pb2.ReadLogsRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> AsyncIterator[cluster_manager_pb2.ReadLogsResponse]:
        self._gate.check()
        with _told_to_the_caller():
            async for chunk in self._executor.read_logs(log_request_from_proto(request)):
                yield log_chunk_to_proto(chunk)

    async def OpenSession(  # type: ignore[override]  # gRPC takes both kinds
        self,
        request_iterator: AsyncIterator[cluster_manager_pb2.OpenSessionRequest],
        context: grpc.aio.ServicerContext[
            cluster_manager_pb2.OpenSessionRequest, cluster_manager_pb2.OpenSessionResponse
        ],
    ) -> None:
        """Written to the context and not yielded: so a caller who leaves ends it at once, wherever it is."""
        self._gate.check()
        with _told_to_the_caller():
            await relay_session(self._executor, request_iterator, context.write)


class TrainingSessionServicer(training_session_pb2_grpc.TrainingSessionServicer):
    """Progress in, advice out."""

    def __init__(self, executor: Executor, gate: Gate) -> None:
        self._executor = executor
        self._gate = gate

    async def Heartbeat(
        self, request: training_session_pb2.HeartbeatRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> training_session_pb2.HeartbeatResponse:
        self._gate.check()
        task = task_from_proto(request.task)
        report = TaskReport(
            request.progress,
            request.steps_per_second,
            request.iteration_s,
            request.largest_tensor_mib,
            request.model_mib,
        )
        _check_amounts(**report._asdict())
        if report.largest_tensor_mib > report.model_mib:
            described = f"is {report.largest_tensor_mib:g}, more than the whole model with {report.model_mib:g}"
            raise InvalidArgument.of("largest_tensor_mib", described)
        with _told_to_the_caller():
            advice = await self._executor.heartbeat(task, report)
        return training_session_pb2.HeartbeatResponse(should_stop=advice.should_stop, grace_left_s=advice.grace_left_s)

    async def CheckpointSaved(
        self, request: training_session_pb2.CheckpointSavedRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> training_session_pb2.CheckpointSavedResponse:
        self._gate.check()
        task = task_from_proto(request.task)
        _check_amounts(progress=request.progress)
        with _told_to_the_caller():
            await self._executor.checkpoint_saved(task, request.progress, request.path)
        return training_session_pb2.CheckpointSavedResponse()


async def _message_of(changes: Sequence[Change], *, complete: bool) -> cluster_manager_pb2.WatchStatusResponse:
    """In a thread when there are many: the lease is kept, and calls answered, meanwhile."""
    if len(changes) <= _CHANGES_AT_ONCE:
        return changes_to_proto(changes, complete=complete)
    return await asyncio.to_thread(changes_to_proto, changes, complete=complete)


def _check_amounts(**amounts: float) -> None:
    for field, amount in amounts.items():
        if not (math.isfinite(amount) and amount >= 0):
            raise InvalidArgument.of(field, f"is {amount}; it must be a finite number that is not negative")
        if amount > _GREATEST_AMOUNT:
            raise InvalidArgument.of(field, f"is {amount:g}; it must be at most {_GREATEST_AMOUNT:.0f}")


@contextmanager
def _told_to_the_caller() -> Iterator[None]:
    """Turns an executor's refusals into those of a call."""
    try:
        yield
    except ForeignSession as refusal:
        raise (PermissionDenied if refusal.shown else Unauthenticated)(str(refusal)) from refusal
    except UnknownAttempt as refusal:
        raise NotFound("attempt", attempt_to_text(refusal.key)) from refusal
    except StaleOrder as refusal:
        raise PreconditionFailed(STALE_ATTEMPT, attempt_to_text(refusal.key), str(refusal)) from refusal
    except ImpossibleOrder as refusal:
        raise InvalidArgument.of("placements", str(refusal)) from refusal
    except StoreFailed as failure:
        raise Unavailable(str(failure), _STORE_AGAIN_S) from failure
    except UnknownTask as refusal:
        raise NotFound("task", refusal.name, refusal.known) from refusal
    except TooManySessions as refusal:
        raise Exhausted(str(refusal)) from refusal
    except SessionImpossible as refusal:
        raise PreconditionFailed("SESSION", attempt_to_text(refusal.key), str(refusal)) from refusal
    except OrderRefused as refusal:
        raise PreconditionFailed("ORDER", attempt_to_text(refusal.key), str(refusal)) from refusal
