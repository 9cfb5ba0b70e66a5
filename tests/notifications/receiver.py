"""A real HTTP server that keeps what it is told, and answers as it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(frozen=True)
class Told:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes
    status: int
    """What it was answered."""

    @property
    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass
class Receiver:
    """Answers with the next of `statuses`, and with 204 when there are none."""

    port: int = 0
    told: list[Told] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    hold: asyncio.Event | None = None
    """Nothing is answered before this is set."""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def until_told(self, count: int) -> list[Told]:
        """When that many requests have come."""
        while len(self.told) < count:
            self.news.clear()
            await self.news.wait()
        return self.told

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        status = self.statuses.pop(0) if self.statuses else 204
        self.told.append(Told(request.path_qs, dict(request.headers), body, status))
        self.news.set()
        if self.hold is not None:
            await self.hold.wait()
        return web.Response(status=status, headers={"Location": self.url("/elsewhere")} if status == 302 else {})


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver on a port of this machine, as long as the context lasts."""
    receiver = Receiver()
    application = web.Application()
    application.router.add_post("/{path:.*}", receiver.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        receiver.port = runner.addresses[0][1]
        yield receiver
    finally:
        if receiver.hold is not None:
            receiver.hold.set()
        await runner.cleanup()
