"""A cluster manager in a process of its own, to be killed: python -m tests.execution.server_process RAY HOME.

Prints its port when it serves; runs until its standard input is closed.
"""

import asyncio
import logging
import os
import sys
from pathlib import Path

import ray
import structlog

from services.clock import SystemClock
from services.cluster_manager.server import ClusterManagerServer
from services.execution.emulated_executor import EmulatedExecutor
from services.execution.routing_executor import RoutingExecutor
from services.execution.runner_pool import NAMESPACE
from tests.execution.conftest import cluster_of
from tests.execution.live import make_executor


async def serve(home: Path) -> None:
    clock = SystemClock()
    executor = RoutingExecutor(EmulatedExecutor(clock), make_executor(home))
    server = ClusterManagerServer(cluster_of(home), executor, clock)
    port = await server.start("127.0.0.1:0")
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(1.0)


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    os.environ["RAY_AUTH_MODE"] = "disabled"
    ray.init(address=sys.argv[1], namespace=NAMESPACE, log_to_driver=False, logging_level=logging.WARNING)
    asyncio.run(serve(Path(sys.argv[2])))
