"""A proxy before a gRPC server that passes on so many bytes, and breaks the connections when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class BreakingProxy:
    """Passes on what the server sends, and of what clients send so much; the rest waits until the connections break."""

    def __init__(self, server: str, passed_bytes: int) -> None:
        self._server = server
        self._left_bytes: float = passed_bytes
        self._writers: set[asyncio.StreamWriter] = set()
        self.address = ""

    def break_off(self) -> None:
        """Ends all connections at once; whatever comes over new ones is passed on."""
        self._left_bytes = float("inf")
        for writer in self._writers:
            writer.transport.abort()

    async def connected(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        host, port = self._server.rsplit(":", 1)
        server_in, server_out = await asyncio.open_connection(host, int(port))
        own = {client_out, server_out}
        self._writers |= own
        answering = asyncio.create_task(self._pass_on(server_in, client_out))
        try:
            while self._left_bytes and (data := await client_in.read(int(min(self._left_bytes, 65_536)))):
                self._left_bytes -= len(data)
                server_out.write(data)
            await answering
        except ConnectionError:
            return
        finally:
            answering.cancel()
            for writer in own:
                writer.close()
            self._writers -= own

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)


@asynccontextmanager
async def breaking_proxy(server: str, passed_bytes: int) -> AsyncIterator[BreakingProxy]:
    """One before the server at `host:port`."""
    proxy = BreakingProxy(server, passed_bytes)
    listening = await asyncio.start_server(proxy.connected, "127.0.0.1", 0)
    proxy.address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listening.close()
        proxy.break_off()
