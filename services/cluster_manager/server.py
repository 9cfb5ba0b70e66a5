"""The cluster manager's gRPC server: takes orders for its executor, and answers the tasks that it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import grpc
import structlog

from domain.identifiers import ClusterId
from services.clock import ServiceClock
from services.cluster_manager.fence import Fence
from services.cluster_manager.servicers import ClusterManagerServicer, Gate, TrainingSessionServicer
from services.database.lease_store import CLUSTER_PREFIX, IssuedFence
from services.execution.executor import Executor
from services.metrics.service_metrics import ServiceMetrics
from services.security.authorization import Authorization
from services.security.transport import PLAINTEXT, TransportSecurity
from services.tiers.grpc_server import TierServer
from services.tiers.request_settings import USUAL_REQUESTS, RequestSettings
from services.tracing.traces import Traces
from topmast.v1 import (
    cluster_manager_pb2,
    cluster_manager_pb2_grpc,
    training_session_pb2,
    training_session_pb2_grpc,
)

_log = structlog.get_logger(__name__)


class ClusterManagerServer:
    """Serves one cluster. Health says NOT_SERVING, and calls fail with UNAVAILABLE, until what ran is adopted."""

    def __init__(
        self,
        cluster: ClusterId,
        executor: Executor,
        clock: ServiceClock,
        *,
        issued_fence: Callable[[], Awaitable[IssuedFence]] | None = None,
        may_act: Callable[[], bool] = lambda: True,
        adopted: Callable[[Executor], Awaitable[None]] | None = None,
        requests: RequestSettings = USUAL_REQUESTS,
        metrics: ServiceMetrics | None = None,
        traces: Traces | None = None,
        authorization: Authorization | None = None,
        security: TransportSecurity = PLAINTEXT,
    ) -> None:
        """`adopted` is awaited when the executor has adopted what runs, before anything is answered. `issued_fence`
        returns the newest lease that was given to a regional scheduler: see Fence.

        `may_act` says whether this process is certain to be the cluster's only manager: see Gate. `authorization` None: nobody is asked who is calling.
        """
        self._cluster = cluster
        self._executor = executor
        self._clock = clock
        self._gate = Gate(cluster, may_act)
        self._cluster_manager = ClusterManagerServicer(
            cluster, executor, self._gate, Fence(issued_fence), metrics, traces
        )
        services = (
            cluster_manager_pb2.DESCRIPTOR.services_by_name["ClusterManager"],
            training_session_pb2.DESCRIPTOR.services_by_name["TrainingSession"],
        )
        self._adopted = adopted
        self._server = TierServer(
            services,
            self._register,
            requests,
            tier=f"{CLUSTER_PREFIX}{cluster}",
            metrics=metrics,
            authorization=authorization,
            security=security,
        )
        # Tasks have no certificate, but a token of their attempt.
        self._sessions: TierServer | None = None
        if security.requires_client_certificates:
            self._sessions = TierServer(
                services[1:],
                self._register_sessions,
                requests,
                tier=f"{CLUSTER_PREFIX}{cluster}",
                metrics=metrics,
                authorization=authorization,
                security=replace(security, requires_client_certificates=False),
            )

    async def start(self, listen: str, *, advertised_host: str | None = None) -> int:
        """Listens on `host:port` (port 0: any free one), has the executor adopt what runs, then serves.

        Tasks report to `advertised_host` (default: the host of `listen`), where callers must show a certificate at a port of their own.
        Returns the port; raises RuntimeError when it is taken, and CertificatesUnusable.
        """
        port = await self._server.start(listen)
        host = listen.rpartition(":")[0]
        sessions = port if self._sessions is None else await self._sessions.start(f"{host}:0")
        await self._executor.start(f"{advertised_host or host}:{sessions}")
        if self._adopted is not None:
            await self._adopted(self._executor)
        self._gate.open = True
        await self._server.set_serving(serving=True)
        adopted = len(self._executor.statuses())
        _log.info("adopted what was there", cluster=self._cluster, attempts=adopted, at_s=self._clock.now())
        return port

    async def stop(self, grace_s: float) -> None:
        """Ends within `grace_s` real seconds. What runs goes on, and is adopted by the next server."""
        self._gate.open = False
        await self._server.set_serving(serving=False)
        self._cluster_manager.end_watches()
        await self._server.stop(grace_s)
        if self._sessions is not None:
            await self._sessions.stop(grace_s)
        await self._executor.close()

    def _register(self, server: grpc.aio.Server) -> None:
        cluster_manager_pb2_grpc.add_ClusterManagerServicer_to_server(self._cluster_manager, server)
        self._register_sessions(server)

    def _register_sessions(self, server: grpc.aio.Server) -> None:
        training_session_pb2_grpc.add_TrainingSessionServicer_to_server(
            TrainingSessionServicer(self._executor, self._gate), server
        )
