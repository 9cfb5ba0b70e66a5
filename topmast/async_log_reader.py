"""Reads logs for asyncio: each cluster on a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from topmast.async_connection import AsyncConnection, AsyncMessageStream
from topmast.errors import TopmastError, UnavailableError
from topmast.logs import LogChunk, LogCursor, LogSelection
from topmast.status import Status
from topmast.v1 import cluster_manager_pb2, cluster_manager_pb2_grpc
from topmast.workloads import Attempt

_WAITING_CHUNKS = 1_000
"""How many chunks may wait for a slow reader before the clusters have to."""


class AsyncLogReader:
    """Reads the output of one attempt, wherever its tasks are. `status` tells where the cluster managers answer."""

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
            async with aclosing(self._read_cluster(selection, attempt.attempt, cluster)) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def _read_at_once(self, selection: LogSelection, attempt: Attempt) -> AsyncGenerator[LogChunk, None]:
        arrived: asyncio.Queue[LogChunk | TopmastError | None] = asyncio.Queue(_WAITING_CHUNKS)

        async def read_one(cluster: str) -> None:
            end: TopmastError | None = None
            try:
                async with aclosing(self._read_cluster(selection, attempt.attempt, cluster)) as chunks:
                    async for chunk in chunks:
                        await arrived.put(chunk)
            except TopmastError as error:
                end = error
            await arrived.put(end)

        readers = [asyncio.create_task(read_one(cluster), name=f"logs of {cluster}") for cluster in attempt.clusters]
        running = len(readers)
        try:
            while running:
                got = await arrived.get()
                if isinstance(got, LogChunk):
                    yield got
                elif got is None:
                    running -= 1
                else:
                    raise got
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def _read_cluster(
        self, selection: LogSelection, attempt: int, cluster: str
    ) -> AsyncGenerator[LogChunk, None]:
        cursor = LogCursor(selection.tail_lines)

        async def begin() -> AsyncMessageStream[cluster_manager_pb2.ReadLogsResponse]:
            cursor.begin_stream()
            # Asked each time: a cluster manager that was restarted may answer elsewhere.
            address = (await self._status()).cluster_address(cluster)
            if address is None:
                raise UnavailableError(f"the cluster manager of {cluster} does not answer")
            stub = cluster_manager_pb2_grpc.ClusterManagerStub(self._connection.channel(address))
            return stub.ReadLogs(selection.request(attempt))

        peer = f"the cluster manager of {cluster}"
        async with aclosing(self._connection.stream(begin, peer, endless=False)) as messages:
            async for message in messages:
                chunk = cursor.unread(message)
                if chunk:
                    yield LogChunk(cluster, message.attempt, message.job, message.task, chunk)
