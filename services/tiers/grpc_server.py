"""A gRPC server as every tier has it: health, reflection, errors without stack traces, one address."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from services.grpc_errors import CanonicalErrors
from services.metrics.counted_calls import CountedCalls
from services.metrics.service_metrics import ServiceMetrics
from services.security.authorization import Authorization
from services.security.transport import PLAINTEXT, TransportSecurity
from services.tiers.admission import Admission
from services.tiers.request_settings import USUAL_REQUESTS, RequestSettings
from services.tiers.request_sizes import greatest_of_services

LARGEST_MESSAGE_BYTES = 64 * 2**20
"""Of an answer; what requests may have is said method by method (`request_sizes`)."""

_OPTIONS = (
    # Two servers on one port would each get half of the calls: the second one must fail instead.
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", LARGEST_MESSAGE_BYTES),
    ("grpc.http2.min_ping_interval_without_data_ms", 2_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A client that vanished without a word is noticed, and its streams end.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


class TierServer:
    """One tier's gRPC server; NOT_SERVING until that is changed."""

    def __init__(
        self,
        services: Sequence[ServiceDescriptor],
        register: Callable[[grpc.aio.Server], None],
        requests: RequestSettings = USUAL_REQUESTS,
        *,
        tier: str = "",
        metrics: ServiceMetrics | None = None,
        authorization: Authorization | None = None,
        security: TransportSecurity = PLAINTEXT,
        between_tiers: bool = False,
    ) -> None:
        """`register` adds the servicers of `services` to the server, which takes on `requests` at a time. `tier`: as its lease is
        called, for the metrics of calls. `authorization` None: nobody is asked who is calling. `between_tiers`: only tiers call it,
        so with TLS each caller must show a certificate."""
        self._security = security
        self._between_tiers = between_tiers
        interceptors: list[grpc.aio.ServerInterceptor] = [
            CanonicalErrors(),
            authorization or Authorization(),
            Admission(services, requests),
        ]
        if metrics is not None:
            interceptors.insert(0, CountedCalls(metrics, tier))
        self._server = grpc.aio.server(
            interceptors=interceptors,
            options=(*_OPTIONS, ("grpc.max_receive_message_length", greatest_of_services(services))),
        )
        self._health = health.aio.HealthServicer()
        self._names = ("", *(service.full_name for service in services))
        register(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (*self._names[1:], health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )

    async def start(self, listen: str) -> int:
        """Listens on `host:port` (port 0: any free one); returns the port. Raises RuntimeError when it is taken, and CertificatesUnusable."""
        credentials = self._security.server_credentials(between_tiers=self._between_tiers)
        port = (
            self._server.add_insecure_port(listen)
            if credentials is None
            else self._server.add_secure_port(listen, credentials)
        )
        await self.set_serving(serving=False)
        await self._server.start()
        return port

    async def set_serving(self, *, serving: bool) -> None:
        """What health checks answer."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in self._names:
            await self._health.set(name, status)

    async def set_part_serving(self, name: str, *, serving: bool) -> None:
        """What health checks of that name answer, which stands for a part of what is served."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        await self._health.set(name, status)

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)
