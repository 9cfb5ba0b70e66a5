# Generated from async_log_reader.py by `make client`; never edited.
"""Reads logs for programs that wait."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing

from topmast.connection import Connection, MessageStream
from topmast.errors import UnavailableError
from topmast.logs import LogChunk, LogCursor, LogSelection
from topmast.status import Status
from topmast.v1 import cluster_manager_pb2, cluster_manager_pb2_grpc
from topmast.waiting import side_by_side
from topmast.workloads import Attempt


class LogReader:
    """Reads the output of one attempt, wherever its tasks are. `status` says where the cluster managers answer."""

    def __init__(self, connection: Connection, status: Callable[[], Status]) -> None:
        self._connection = connection
        self._status = status

    def read(self, selection: LogSelection, attempt: Attempt) -> Generator[LogChunk, None, None]:
        """One cluster after the other; all at once when they are followed and there are several."""
        if selection.follow and len(attempt.clusters) > 1:
            with closing(self._read_at_once(selection, attempt)) as chunks:
                for chunk in chunks:
                    yield chunk
            return
        for cluster in attempt.clusters:
            with closing(self._read_cluster(self._connection, selection, attempt.attempt, cluster)) as chunks:
                for chunk in chunks:
                    yield chunk

    def _read_at_once(self, selection: LogSelection, attempt: Attempt) -> Generator[LogChunk, None, None]:
        # Closed when the reader has had enough: that ends the streams, whatever they are waiting for.
        connection = self._connection.sibling()
        readers = {
            f"logs of {cluster}": self._read_cluster(connection, selection, attempt.attempt, cluster)
            for cluster in attempt.clusters
        }
        with closing(side_by_side(readers, connection.close)) as chunks:
            yield from chunks

    def _read_cluster(
        self, connection: Connection, selection: LogSelection, attempt: int, cluster: str
    ) -> Generator[LogChunk, None, None]:
        cursor = LogCursor(selection.tail_lines)

        def begin() -> MessageStream[cluster_manager_pb2.ReadLogsResponse]:
            cursor.begin_stream()
            # Asked each time: a cluster manager that was restarted may answer elsewhere.
            status = self._status()
            address = status.cluster_address(cluster)
            if address is None:
                raise UnavailableError(f"the cluster manager of {cluster} does not answer")
            stub = cluster_manager_pb2_grpc.ClusterManagerStub(connection.channel(address))
            return stub.ReadLogs(selection.request(attempt))

        peer = f"the cluster manager of {cluster}"
        with closing(connection.stream(begin, peer, endless=False)) as messages:
            for message in messages:
                chunk = cursor.unread(message)
                if chunk:
                    yield LogChunk(cluster, message.attempt, message.job, message.task, chunk)
