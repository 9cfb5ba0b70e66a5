"""A whole service on an event loop of its own, in a thread: for callers that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from domain.fleet import Fleet
from services.configuration import Configuration
from services.runtime.in_process import InProcessService, run_in_process
from tests.live.running import CLOCK_SPEED, CONFIGURATION
from tests.live.world import FLEET, TABLES, TENANTS


@dataclass
class BackgroundService:
    """A running service; `raise_if_broken` from any thread."""

    service: InProcessService
    loop: asyncio.AbstractEventLoop

    @property
    def address(self) -> str:
        return self.service.address

    def raise_if_broken(self) -> None:
        """Raises what ended a tier."""

        async def look() -> None:
            self.service.raise_if_broken()

        asyncio.run_coroutine_threadsafe(look(), self.loop).result()


@contextmanager
def service_in_background(
    database_url: str, home: Path, fleet: Fleet = FLEET, configuration: Configuration = CONFIGURATION
) -> Iterator[BackgroundService]:
    """The world's tenants, with its tables where its fleet is taken; emulated execution, a compressed clock."""
    ready = threading.Event()
    running: list[BackgroundService] = []
    stops: list[Callable[[], object]] = []

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with run_in_process(
            database_url,
            fleet,
            TENANTS,
            home,
            configuration=configuration,
            clock_speed=CLOCK_SPEED,
            tables=TABLES if fleet is FLEET else (),
        ) as service:
            running.append(BackgroundService(service, loop))
            stops.append(lambda: loop.call_soon_threadsafe(stop.set))
            ready.set()
            await stop.wait()

    def work() -> None:
        try:
            asyncio.run(serve())
        finally:
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        ready.wait()
        (service,) = running
        yield service
    finally:
        for stop in stops:
            stop()
        thread.join()
