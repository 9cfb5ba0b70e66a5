"""`topmast serve`: one tier as this very process, for containers and service managers."""

from __future__ import annotations

import asyncio
import signal

from services.log_output import configure_logging
from services.runtime.tier_process import TierRequest, run_until


def serve(request: TierRequest) -> None:
    """Runs the tier until SIGTERM or SIGINT; logs to standard error."""
    configure_logging()
    asyncio.run(_serve(request))


async def _serve(request: TierRequest) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run_until(request, lambda address: None, stop)
