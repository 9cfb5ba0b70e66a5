"""Reads logs for the client that waits: each cluster on a connection of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

from topmast.connection import Connection, MessageStream
from topmast.errors import TopmastError, UnavailableError
from topmast.logs import LogChunk, LogCursor, LogSelection
from topmast.status import Status
from topmast.v1 import cluster_manager_pb2, cluster_manager_pb2_grpc
from topmast.workloads import Attempt

_WAITING_CHUNKS = 1_000
"""How many chunks may wait for a slow reader before the clusters have to."""


class LogReader:
    """Reads the output of one attempt, wherever its tasks are. `status` tells where the cluster managers answer."""

    def __init__(self, connection: Connection, status: Callable[[], Status]) -> None:
        self._connection = connection
        self._status = status

    def read(self, selection: LogSelection, attempt: Attempt) -> Iterator[LogChunk]:
        """One cluster after the other; all at once when they are followed and there are several."""
        if selection.follow and len(attempt.clusters) > 1:
            yield from self._read_at_once(selection, attempt)
            return
        for cluster in attempt.clusters:
            yield from self._read_cluster(self._connection, selection, attempt.attempt, cluster)

    def _read_at_once(self, selection: LogSelection, attempt: Attempt) -> Iterator[LogChunk]:
        # Closed when the reader has had enough: that ends the threads, whatever they are waiting for.
        connection = self._connection.sibling()
        arrived: queue.Queue[LogChunk | TopmastError | None] = queue.Queue(_WAITING_CHUNKS)
        stopping = threading.Event()

        def read_one(cluster: str) -> None:
            end: TopmastError | None = None
            try:
                for chunk in self._read_cluster(connection, selection, attempt.attempt, cluster):
                    arrived.put(chunk)
                    if stopping.is_set():
                        break
            except TopmastError as error:
                end = error
            arrived.put(end)

        for cluster in attempt.clusters:
            threading.Thread(target=read_one, args=(cluster,), name=f"logs of {cluster}", daemon=True).start()
        running = len(attempt.clusters)
        try:
            while running:
                got = arrived.get()
                if isinstance(got, LogChunk):
                    yield got
                elif got is None:
                    running -= 1
                else:
                    raise got
        finally:
            stopping.set()
            connection.close()
            _drain(arrived)

    def _read_cluster(
        self, connection: Connection, selection: LogSelection, attempt: int, cluster: str
    ) -> Iterator[LogChunk]:
        cursor = LogCursor(selection.tail_lines)

        def begin() -> MessageStream[cluster_manager_pb2.ReadLogsResponse]:
            cursor.begin_stream()
            # Asked each time: a cluster manager that was restarted may answer elsewhere.
            address = self._status().cluster_address(cluster)
            if address is None:
                raise UnavailableError(f"the cluster manager of {cluster} does not answer")
            stub = cluster_manager_pb2_grpc.ClusterManagerStub(connection.channel(address))
            return stub.ReadLogs(selection.request(attempt))

        for message in connection.stream(begin, f"the cluster manager of {cluster}", endless=False):
            chunk = cursor.unread(message)
            if chunk:
                yield LogChunk(cluster, message.attempt, message.job, message.task, chunk)


def _drain(arrived: queue.Queue[LogChunk | TopmastError | None]) -> None:
    """Makes room, so that no thread waits for ever to put what nobody will get: each puts two more at most."""
    while True:
        try:
            arrived.get_nowait()
        except queue.Empty:
            return
