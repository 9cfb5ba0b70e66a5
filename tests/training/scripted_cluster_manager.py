"""The other side of a training session: answers as it is scripted, and writes down what it hears."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from typing import Self

import grpc

from topmast.v1 import training_session_pb2, training_session_pb2_grpc

_PATIENCE_S = 240.0

Heartbeat = training_session_pb2.HeartbeatRequest
Saved = training_session_pb2.CheckpointSavedRequest


class ScriptedClusterManager(training_session_pb2_grpc.TrainingSessionServicer):
    """Serves on `address` until `stop`; a context manager."""

    def __init__(self, credentials: grpc.ServerCredentials | None = None) -> None:
        self.advice = training_session_pb2.HeartbeatResponse()
        self.refusal: grpc.StatusCode | None = None
        self.heartbeats: list[Heartbeat] = []
        self.saved: list[Saved] = []
        self._heard = threading.Condition()
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
        training_session_pb2_grpc.add_TrainingSessionServicer_to_server(self, self._server)
        listen = "127.0.0.1:0"
        port = (
            self._server.add_insecure_port(listen)
            if credentials is None
            else self._server.add_secure_port(listen, credentials)
        )
        self.address = f"127.0.0.1:{port}"
        self._server.start()

    def Heartbeat(self, request: Heartbeat, context: grpc.ServicerContext) -> training_session_pb2.HeartbeatResponse:
        with self._heard:
            self.heartbeats.append(request)
            self._heard.notify_all()
        if self.refusal is not None:
            context.abort(self.refusal, "as the script says")
        return self.advice

    def CheckpointSaved(
        self, request: Saved, context: grpc.ServicerContext
    ) -> training_session_pb2.CheckpointSavedResponse:
        with self._heard:
            self.saved.append(request)
            self._heard.notify_all()
        return training_session_pb2.CheckpointSavedResponse()

    def wait_until(self, condition: Callable[[ScriptedClusterManager], bool]) -> None:
        """Waits for what it is still to hear."""
        with self._heard:
            assert self._heard.wait_for(lambda: condition(self), _PATIENCE_S), "it was not heard"

    def stop(self) -> None:
        self._server.stop(0).wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
