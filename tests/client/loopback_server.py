"""gRPC servers in a thread of their own, which can be stopped in mid-stream and started again on the same port."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from services.tiers.free_port import free_port, kept_ports
from tests.client.in_memory_packages import InMemoryPackages
from tests.client.in_memory_topmast import InMemoryClusterManager, InMemoryTopmast
from topmast.v1 import global_scheduler_pb2_grpc, package_pb2_grpc

Result = TypeVar("Result")

_LOOK_INTERVAL_S = 0.01


class LoopbackServer:
    """Serves an InMemoryTopmast, which outlives every stop. Use it in a `with` statement."""

    def __init__(self) -> None:
        self.topmast: InMemoryTopmast
        self.packages = InMemoryPackages()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loopback server")
        self._servers: dict[str, grpc.aio.Server] = {}
        self._ports: dict[str, int] = {}
        self._kept_ports = ExitStack()

    def __enter__(self) -> Self:
        self._thread.start()
        self.topmast = self.do(InMemoryTopmast)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for name in list(self._servers):
            self.stop(name)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._kept_ports.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._ports['']}"

    def do(self, change: Callable[[], Result]) -> Result:
        """Runs a function on the server's event loop; returns what it returns."""

        async def run() -> Result:
            return change()

        return self._run(run())

    def until_called(self, method: str) -> None:
        """Waits until a method of the global scheduler was called."""
        while not self.do(lambda: self.topmast.calls[method]):
            time.sleep(_LOOK_INTERVAL_S)

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout=30)

    def start(self, cluster: str = "") -> None:
        """Starts the global scheduler, or the manager of a cluster; on its old port when it had one."""
        self._run(self._start(cluster))
        if cluster:
            self.topmast.cluster_addresses[cluster] = f"127.0.0.1:{self._ports[cluster]}"

    async def _start(self, cluster: str) -> None:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        if cluster:
            InMemoryClusterManager(self.topmast, cluster).add_to_server(server)
        else:
            global_scheduler_pb2_grpc.add_GlobalSchedulerServicer_to_server(self.topmast, server)
            package_pb2_grpc.add_PackagesServicer_to_server(self.packages, server)
        if cluster not in self._ports:
            self._ports[cluster] = free_port("127.0.0.1")
            self._kept_ports.enter_context(kept_ports("127.0.0.1", [self._ports[cluster]]))
        server.add_insecure_port(f"127.0.0.1:{self._ports[cluster]}")
        await server.start()
        self._servers[cluster] = server

    def stop(self, cluster: str = "") -> None:
        """Stops it at once: calls under way are cut off."""
        self._run(self._servers.pop(cluster).stop(grace=None))

    def forget_port(self, cluster: str) -> None:
        """The next start is on another port."""
        del self._ports[cluster]
