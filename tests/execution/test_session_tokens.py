"""A task reports for its own attempt, and for no other; and nothing absurd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from domain.placement import AttemptKey
from services.clock import SystemClock
from services.cluster_manager.server import ClusterManagerServer
from tests.execution.calls import Stub, calling, end_of, execute, fields_of, statuses, stop, watch_until
from tests.execution.conftest import cluster_of
from tests.execution.live import make_executor
from tests.execution.orders import key, order, shell
from topmast.v1 import cluster_manager_pb2, training_session_pb2, training_session_pb2_grpc

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("ray_address")]

_TELLS = "echo token=$TOPMAST_SESSION_TOKEN; exec sleep 1000"


@asynccontextmanager
async def _manager(home: Path) -> AsyncIterator[int]:
    server = ClusterManagerServer(cluster_of(home), make_executor(home), SystemClock())
    port = await server.start("127.0.0.1:0")
    try:
        yield port
    finally:
        await server.stop(5.0)


async def _token(stub: Stub, workload: str) -> str:
    request = cluster_manager_pb2.ReadLogsRequest(workload=workload, attempt=1, follow=True)
    log = b""
    async for chunk in stub.ReadLogs(request, timeout=60):
        log += chunk.chunk
        if b"\n" in log:
            break
    return log.decode().removeprefix("token=").strip()


async def _refusal(port: int, of: AttemptKey, token: str, progress: float) -> grpc.aio.AioRpcError | None:
    """What both calls of a task are refused with; None: both were taken."""
    task = training_session_pb2.TaskReference(workload=of.workload, attempt=of.attempt, job="train", token=token)
    refusals: list[grpc.aio.AioRpcError] = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        session = training_session_pb2_grpc.TrainingSessionStub(channel)
        for call in (
            session.Heartbeat(training_session_pb2.HeartbeatRequest(task=task, progress=progress)),
            session.CheckpointSaved(training_session_pb2.CheckpointSavedRequest(task=task, progress=progress)),
        ):
            try:
                await call
            except grpc.aio.AioRpcError as error:
                refusals.append(error)
    if not refusals:
        return None
    assert len(refusals) == 2
    assert len({(refusal.code(), refusal.details()) for refusal in refusals}) == 1
    return refusals[0]


async def _progress(stub: Stub, of: AttemptKey) -> tuple[float, float]:
    found = {status.workload: status for status in await statuses(stub)}[of.workload]
    return found.progress, found.checkpoint_progress


def test_a_task_reports_for_its_own_attempt_and_no_other_also_to_the_next_manager(home: Path) -> None:
    own, other = key("w"), key("v")

    async def scenario() -> None:
        async with _manager(home) as port, calling(port) as stub:
            await execute(stub, order(shell(_TELLS)), order(shell(_TELLS), workload="v"))
            await watch_until(stub, lambda status: status.workload == "w" and status.started_s > 0)
            await watch_until(stub, lambda status: status.workload == "v" and status.started_s > 0)
            token, foreign = await _token(stub, "w"), await _token(stub, "v")
            assert len(token) == len(foreign) == 64
            assert token != foreign
            # 1. Its own: taken.
            assert await _refusal(port, own, token, 7.0) is None
            assert await _progress(stub, own) == (7.0, 7.0)
            # 2. Another's, a guess, none: refused, in one sentence, and nothing is stored.
            for shown, code in (
                (foreign, grpc.StatusCode.PERMISSION_DENIED),
                ("0" * 64, grpc.StatusCode.PERMISSION_DENIED),
                ("", grpc.StatusCode.UNAUTHENTICATED),
            ):
                refused = await _refusal(port, own, shown, 8.0)
                assert refused is not None
                assert refused.code() is code
                assert "task.token" in str(refused.details())
                assert token not in str(refused.details())
            # Nor does it learn whether there is such an attempt.
            unknown = await _refusal(port, key("nobody"), token, 8.0)
            assert unknown is not None
            assert unknown.code() is grpc.StatusCode.PERMISSION_DENIED
            # 3. Absurd amounts: the field is named, and nothing is stored.
            for absurd in (1e300, float("nan"), float("inf"), -1.0):
                refused = await _refusal(port, own, token, absurd)
                assert refused is not None
                assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
                assert fields_of(refused) == ["progress"]
            assert await _progress(stub, own) == (7.0, 7.0)
            assert await _progress(stub, other) == (0.0, 0.0)
        async with _manager(home) as port, calling(port) as stub:
            assert await _refusal(port, own, token, 9.0) is None
            refused = await _refusal(port, other, token, 9.0)
            assert refused is not None
            assert refused.code() is grpc.StatusCode.PERMISSION_DENIED
            await stop(stub, own, other, grace_s=0.0)
            await end_of(stub, own)
            await end_of(stub, other)

    asyncio.run(scenario())
