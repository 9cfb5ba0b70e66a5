"""Reads logs for asyncio: each cluster on a connection of its own. log_reader.py is generated from it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from topmast.async_connection import AsyncConnection, AsyncMessageStream
from topmast.async_waiting import async_side_by_side
from topmast.errors import UnavailableError
from topmast.logs import LogChunk, LogCursor, LogSelection
from topmast.status import Status
from topmast.v1 import cluster_manager_pb2, cluster_manager_pb2_grpc
from topmast.workloads import Attempt


class AsyncLogReader:
    """Reads the output of one attempt, wherever its tasks are. `status` says where the cluster managers answer."""

    def __init__(self, connection: AsyncConnection, status: Callable[[], Awaitable[Status]]) -> None:
        self._connection = connection
        self._status = status

    async def read(self, selection: LogSelection, attempt: Attempt) -> AsyncGenerator[LogChunk, None]:
        """One cluster after the other; all at once when they are followed and there are several."""
        if selection.follow and len(attempt.clusters) > 1:
            async with aclosing(self._read_at_once(selection, attempt)) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        for cluster in attempt.clusters:
            async with aclosing(self._read_cluster(self._connection, selection, attempt.attempt, cluster)) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def _read_at_once(self, selection: LogSelection, attempt: Attempt) -> AsyncGenerator[LogChunk, None]:
        # Closed when the reader has had enough: that ends the streams, whatever they are waiting for.
        connection = self._connection.sibling()
        readers = {
            f"logs of {cluster}": self._read_cluster(connection, selection, attempt.attempt, cluster)
            for cluster in attempt.clusters
        }
        async with aclosing(async_side_by_side(readers, connection.close)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _read_cluster(
        self, connection: AsyncConnection, selection: LogSelection, attempt: int, cluster: str
    ) -> AsyncGenerator[LogChunk, None]:
        cursor = LogCursor(selection.tail_lines)

        async def begin() -> AsyncMessageStream[cluster_manager_pb2.ReadLogsResponse]:
            cursor.begin_stream()
            # Asked each time: a cluster manager that was restarted may answer elsewhere.
            status = await self._status()
            address = status.cluster_address(cluster)
            if address is None:
                raise UnavailableError(f"the cluster manager of {cluster} does not answer")
            stub = cluster_manager_pb2_grpc.ClusterManagerStub(connection.channel(address))
            return stub.ReadLogs(selection.request(attempt))

        peer = f"the cluster manager of {cluster}"
        async with aclosing(connection.stream(begin, peer, endless=False)) as messages:
            async for message in messages:
                chunk = cursor.unread(message)
                if chunk:
                    yield LogChunk(cluster, message.attempt, message.job, message.task, chunk)
