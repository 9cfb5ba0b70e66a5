"""An inference side that needs as many machines as a test says: a process of its own, asked by gRPC.

It answers with what stands in its file at that time. (A server in threads beside one for asyncio crashes gRPC.)
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent import futures
from pathlib import Path
from typing import Self

import grpc

from topmast.training.checkpoints import write_whole
from topmast.v1 import inference_scheduler_pb2, inference_scheduler_pb2_grpc


class ScriptedInference:
    """Serves on `address` until it ends; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._script = directory / "inference.json"
        self.needs(0)
        command = [sys.executable, "-m", "tests.live.scripted_inference", str(self._script)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = f"127.0.0.1:{int(self._process.stdout.readline())}"

    def needs(self, machines: int, *, lends: int | None = None, within_s: float | None = None) -> None:
        """From now on it says so."""
        answer = {"needed_machines": machines, "lends_machines": lends, "reclaim_within_s": within_s}
        write_whole(self._script, json.dumps(answer))

    def says_nothing(self) -> None:
        """From now on it does not answer."""
        write_whole(self._script, json.dumps(None))

    def stop(self) -> None:
        """The process stands still: it takes connections and answers nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """The process runs again."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """The process is not there any more."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class _Servicer(inference_scheduler_pb2_grpc.InferenceSchedulerServicer):
    def __init__(self, script: Path) -> None:
        self._script = script

    def GetDemand(
        self, request: inference_scheduler_pb2.GetDemandRequest, context: grpc.ServicerContext
    ) -> inference_scheduler_pb2.GetDemandResponse:
        answer = json.loads(self._script.read_text(encoding="utf-8"))
        if answer is None:
            context.abort(grpc.StatusCode.UNAVAILABLE, "it says nothing")
        return inference_scheduler_pb2.GetDemandResponse(**answer)


def main(script: Path) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    inference_scheduler_pb2_grpc.add_InferenceSchedulerServicer_to_server(_Servicer(script), server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
