"""Takes the reports of one program that uses `topmast.training`: how long its iterations take."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import grpc

from topmast.v1 import training_session_pb2, training_session_pb2_grpc


class Reported(NamedTuple):
    """What was reported last: units of progress, and seconds for each since the first; 0 while that is not known."""

    progress: float = 0.0
    iteration_s: float = 0.0


class IterationCounter(training_session_pb2_grpc.TrainingSessionServicer):
    """What a cluster manager is to the program, as far as that asks: never to stop."""

    def __init__(self) -> None:
        self._reported = Reported()
        self._changed = threading.Event()

    def Heartbeat(
        self,
        request: training_session_pb2.HeartbeatRequest,
        context: grpc.ServicerContext,
    ) -> training_session_pb2.HeartbeatResponse:
        self._reported = Reported(request.progress, request.iteration_s)
        self._changed.set()
        return training_session_pb2.HeartbeatResponse()

    def CheckpointSaved(
        self,
        request: training_session_pb2.CheckpointSavedRequest,
        context: grpc.ServicerContext,
    ) -> training_session_pb2.CheckpointSavedResponse:
        return training_session_pb2.CheckpointSavedResponse()

    def wait(self, timeout_s: float) -> Reported:
        """What was reported last; waits so long for news."""
        self._changed.wait(timeout_s)
        self._changed.clear()
        return self._reported


@contextmanager
def serving(counter: IterationCounter) -> Iterator[str]:
    """The address at which the counter answers."""
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    training_session_pb2_grpc.add_TrainingSessionServicer_to_server(counter, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
