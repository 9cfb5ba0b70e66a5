"""Sessions with running tasks, for asyncio: what goes in and comes out as it does. task_sessions.py is generated from it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import grpc

from topmast.async_connection import AsyncConnection
from topmast.async_waiting import async_in_thread
from topmast.errors import UnavailableError, error_from_call
from topmast.sessions import SessionPlace, TerminalSize, input_request
from topmast.status import Status
from topmast.v1 import cluster_manager_pb2, cluster_manager_pb2_grpc


class AsyncTaskSessions:
    """Opens sessions with tasks at the managers of their clusters. `status` says where these answer."""

    def __init__(self, connection: AsyncConnection, status: Callable[[], Awaitable[Status]]) -> None:
        self._connection = connection
        self._status = status

    async def open(
        self,
        place: SessionPlace,
        opening: cluster_manager_pb2.OpenSessionRequest,
        inputs: AsyncGenerator[bytes | TerminalSize, None],
    ) -> AsyncGenerator[cluster_manager_pb2.OpenSessionResponse, None]:
        """The answers, from the first one, that it is open. Closing the generator ends the session, and its command with it.

        The end of `inputs` is the end of the command's input. Raises TopmastError, also when the session breaks off: it is
        never opened a second time, for the command might run twice.
        """

        async def requests() -> AsyncGenerator[cluster_manager_pb2.OpenSessionRequest, None]:
            yield opening
            async with aclosing(inputs) as given:
                async for one in given:
                    yield input_request(one)

        status = await self._status()
        address = status.cluster_address(place.cluster)
        if address is None:
            raise UnavailableError(f"the cluster manager of {place.cluster} does not answer")
        connection = self._connection.sibling(attempts=1)
        try:
            stub = cluster_manager_pb2_grpc.ClusterManagerStub(connection.channel(address))
            stream = stub.OpenSession(requests())
            try:
                async for response in stream:
                    yield response
                    if response.WhichOneof("part") == "exit_code":
                        # It is the last one. What is still being sent must not fail for it.
                        return
            except grpc.RpcError as error:
                raise error_from_call(error, f"the cluster manager of {place.cluster}") from error
            finally:
                stream.cancel()
        finally:
            await connection.close()


async def async_parts(read: Callable[[], bytes]) -> AsyncGenerator[bytes | TerminalSize, None]:
    """What `read` returns until that is empty."""
    while part := await async_in_thread(read):
        yield part
