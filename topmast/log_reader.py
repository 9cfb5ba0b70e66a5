# Generated from async_log_reader.py by `make client`; never edited.
"""Reads logs for programs that wait."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing

from topmast.connection import Connection, MessageStream
from topmast.errors import NotFoundError, UnavailableError
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
        """One cluster after the other; all at once when they are followed and there are several.

        Clusters may share the folder of the logs, and each hands out what it finds there: the output of a task is taken from
        the cluster that runs it alone.
        """
        owners = {(one.job, one.task): one.cluster for one in attempt.placements}
        if selection.follow and len(attempt.clusters) > 1:
            with closing(self._read_at_once(selection, attempt, owners)) as chunks:
                for chunk in chunks:
                    yield chunk
            return
        for cluster in attempt.clusters:
            reading = self._read_cluster(self._connection, selection, attempt, cluster, owners)
            with closing(reading) as chunks:
                for chunk in chunks:
                    yield chunk

    def _read_at_once(
        self, selection: LogSelection, attempt: Attempt, owners: dict[tuple[str, int], str]
    ) -> Generator[LogChunk, None, None]:
        # Closed when the reader has had enough: that ends the streams, whatever they are waiting for.
        connection = self._connection.sibling()
        readers = {
            f"logs of {cluster}": self._read_cluster(connection, selection, attempt, cluster, owners)
            for cluster in attempt.clusters
        }
        with closing(side_by_side(readers, connection.close)) as chunks:
            yield from chunks

    def _read_cluster(
        self,
        connection: Connection,
        selection: LogSelection,
        attempt: Attempt,
        cluster: str,
        owners: dict[tuple[str, int], str],
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
            return stub.ReadLogs(selection.request(attempt.attempt))

        peer = f"the cluster manager of {cluster}"
        # The order to start it may still be on its way there.
        live = attempt.ended_s is None
        stream = connection.stream(begin, peer, endless=False, may_come=live and selection.follow)
        with closing(stream) as messages:
            try:
                for message in messages:
                    chunk = cursor.unread(message)
                    # A job may have grown since: what nobody knew of belongs to the first that hands it out.
                    if chunk and owners.setdefault((message.job, message.task), cluster) == cluster:
                        yield LogChunk(cluster, message.attempt, message.job, message.task, chunk)
            except NotFoundError:
                if not live or selection.follow:
                    raise
