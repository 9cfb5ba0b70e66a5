# Generated from async_task_sessions.py by `make client`; never edited.
"""Sessions with running tasks, for programs that wait: what goes in and comes out as it does."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing

import grpc

from topmast.connection import Connection
from topmast.errors import UnavailableError, error_from_call
from topmast.sessions import SessionPlace, TerminalSize, input_request
from topmast.status import Status
from topmast.v1 import cluster_manager_pb2, cluster_manager_pb2_grpc
from topmast.waiting import in_thread


class TaskSessions:
    """Opens sessions with tasks at the managers of their clusters. `status` says where these answer."""

    def __init__(self, connection: Connection, status: Callable[[], Status]) -> None:
        self._connection = connection
        self._status = status

    def open(
        self,
        place: SessionPlace,
        opening: cluster_manager_pb2.OpenSessionRequest,
        inputs: Generator[bytes | TerminalSize, None, None],
    ) -> Generator[cluster_manager_pb2.OpenSessionResponse, None, None]:
        """The answers, from the first one, that it is open. Closing the generator ends the session, and its command with it.

        The end of `inputs` is the end of the command's input. Raises TopmastError, also when the session breaks off: it is
        never opened a second time, for the command might run twice.
        """

        def requests() -> Generator[cluster_manager_pb2.OpenSessionRequest, None, None]:
            yield opening
            with closing(inputs) as given:
                for one in given:
                    yield input_request(one)

        status = self._status()
        address = status.cluster_address(place.cluster)
        if address is None:
            raise UnavailableError(f"the cluster manager of {place.cluster} does not answer")
        connection = self._connection.sibling(attempts=1)
        try:
            stub = cluster_manager_pb2_grpc.ClusterManagerStub(connection.channel(address))
            stream = stub.OpenSession(requests())
            try:
                for response in stream:
                    yield response
                    if response.WhichOneof("part") == "exit_code":
                        # It is the last one. What is still being sent must not fail for it.
                        return
            except grpc.RpcError as error:
                raise error_from_call(error, f"the cluster manager of {place.cluster}") from error
            finally:
                stream.cancel()
        finally:
            connection.close()


def parts(read: Callable[[], bytes]) -> Generator[bytes | TerminalSize, None, None]:
    """What `read` returns until that is empty."""
    while part := in_thread(read):
        yield part
