"""Tasks have no certificate: where a cluster manager asks for them, tasks report at another port, which serves nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from domain.identifiers import ClusterId
from services.clock import SystemClock
from services.cluster_manager.server import ClusterManagerServer
from services.execution.emulated_executor import EmulatedExecutor
from services.security.transport import PLAINTEXT
from services.tiers.tier_channel import tier_channel
from tests.security.certificate_worlds import answer_on, made, security_of
from topmast.v1 import cluster_manager_pb2, cluster_manager_pb2_grpc, training_session_pb2, training_session_pb2_grpc


class Addressed(EmulatedExecutor):
    """Knows where tasks are told to report."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.session_address = ""

    async def start(self, session_address: str) -> None:
        self.session_address = session_address
        await super().start(session_address)


@pytest.mark.parametrize("required", [False, True])
def test_tasks_report_without_a_certificate(tmp_path: Path, required: bool) -> None:
    security = replace(security_of(made(tmp_path / "certificates")), requires_client_certificates=required)
    trusting = grpc.ssl_channel_credentials(security.authority().encode())

    async def scenario() -> None:
        executor = Addressed()
        server = ClusterManagerServer(ClusterId("east-a"), executor, SystemClock(), security=security)
        address = f"127.0.0.1:{await server.start('127.0.0.1:0')}"
        assert (address == executor.session_address) is not required
        assert await answer_on(tier_channel(address, security)) == "answers"
        assert (await answer_on(grpc.aio.secure_channel(address, trusting)) == "answers") is not required
        assert await answer_on(tier_channel(executor.session_address, PLAINTEXT)) != "answers"
        async with grpc.aio.secure_channel(executor.session_address, trusting) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await training_session_pb2_grpc.TrainingSessionStub(channel).Heartbeat(
                    training_session_pb2.HeartbeatRequest()
                )
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            if required:
                with pytest.raises(grpc.aio.AioRpcError) as unknown:
                    await cluster_manager_pb2_grpc.ClusterManagerStub(channel).GetStatus(
                        cluster_manager_pb2.GetClusterStatusRequest()
                    )
                assert unknown.value.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED)
        await server.stop(0.0)

    asyncio.run(scenario())
