"""A tier as a Ray actor (the host makes it one): Ray starts it again when its process dies.

The tier has an event loop of its own in a thread of the actor, so that Ray's calls and the tier's never wait for each
other. All state is in the database, so a new incarnation simply begins.
"""

from __future__ import annotations

import asyncio
import os
import threading

import structlog

from services.log_output import configure_logging
from services.oom_score import SERVICE_SCORE, lower_own_score
from services.runtime.tier_process import TierRequest, run_until
from services.tiers.loop_watchdog import WatchedEventLoop

NAMESPACE = "topmast"

_log = structlog.get_logger(__name__)


class TierActor:
    """Runs one tier from its creation on."""

    def __init__(self, request: TierRequest, group: str = "") -> None:
        file = request.home / "logs" / "tiers" / f"{group}{request.name.replace('/', '-')}.log"
        configure_logging(file, request.configuration.logs)
        lower_own_score(SERVICE_SCORE)
        self._address: str | None = None
        self._listening = threading.Event()
        self._loop = WatchedEventLoop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(request,), name=request.name, daemon=True)
        self._thread.start()

    def _run(self, request: TierRequest) -> None:
        try:
            self._loop.run_until_complete(run_until(request, self._take_address, self._stop))
        except BaseException:
            # Whatever broke the tier breaks its process: then Ray starts it again.
            if not self._stop.is_set():
                _log.exception("the tier broke; its process ends, and Ray starts it again", tier=request.name)
                os._exit(1)
            raise

    def _take_address(self, address: str) -> None:
        self._address = address
        self._listening.set()

    def address(self, patience_s: float = 60.0) -> str:
        """Where it listens; waits until it does. Raises TimeoutError when it does not in that time."""
        if not self._listening.wait(patience_s) or self._address is None:
            raise TimeoutError(f"the tier does not listen after {patience_s} s")
        return self._address

    def process_id(self) -> int:
        return os.getpid()

    def stop(self) -> None:
        """Ends the tier in order; the actor itself is then to be killed."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=5.0)


def actor_name(request: TierRequest, group: str = "") -> str:
    """Under which the tier's actor is known in Ray; `group`: of those that stand by."""
    return f"{group}tier/{request.name}"
