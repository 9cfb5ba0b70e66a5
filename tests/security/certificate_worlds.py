"""A folder of certificates, and a tier's server that shows them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.security.certificate_folder import initialize
from services.security.transport import TransportFiles, TransportSecurity
from services.tiers.grpc_server import TierServer
from topmast.v1 import regional_scheduler_pb2


def made(folder: Path) -> Path:
    """A folder of an authority of its own."""
    initialize(folder, [], time.time(), 10)
    return folder


def security_of(folder: Path) -> TransportSecurity:
    """What a tier with these certificates goes by."""
    return TransportSecurity(TransportFiles(folder / "tier.pem", folder / "tier-key.pem", folder / "authority.pem"))


@asynccontextmanager
async def listening(
    security: TransportSecurity, *, between_tiers: bool = False, host: str = "127.0.0.1"
) -> AsyncIterator[str]:
    """A tier that answers nothing but health checks; its address."""
    server = TierServer(
        [regional_scheduler_pb2.DESCRIPTOR.services_by_name["RegionalScheduler"]],
        lambda _: None,
        security=security,
        between_tiers=between_tiers,
    )
    port = await server.start(f"{host}:0")
    try:
        yield f"{host}:{port}"
    finally:
        await server.stop(0.0)


async def answer_on(channel: grpc.aio.Channel) -> str:
    """`answers`, or what gRPC says."""
    async with channel:
        try:
            health: Any = health_pb2_grpc.HealthStub(channel)
            await health.Check(health_pb2.HealthCheckRequest(), timeout=10)
        except grpc.aio.AioRpcError as error:
            return error.details() or ""
    return "answers"
