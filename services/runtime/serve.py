"""`topmast serve`: one tier as this very process, for containers and service managers."""

from __future__ import annotations

import asyncio
import signal

from services.log_output import configure_logging
from services.runtime.kernels import compile_kernels
from services.runtime.tier_process import TierKind, TierRequest, run_until
from services.tiers.loop_watchdog import WatchedEventLoop


def serve(request: TierRequest) -> None:
    """Runs the tier until SIGTERM or SIGINT; logs to standard error."""
    configure_logging()
    if request.kind is not TierKind.CLUSTER:
        compile_kernels()  # before there is a lease that could be lost over it
    with asyncio.Runner(loop_factory=WatchedEventLoop) as runner:
        runner.run(_serve(request))


async def _serve(request: TierRequest) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run_until(request, lambda address: None, stop)
