"""Proxies before PostgreSQL's socket: one counts round trips, one breaks the connection around a commit."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import Enum, auto
from pathlib import Path
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict


class _Fate(Enum):
    """What becomes of something that a client sends."""

    PASSED_ON = auto()
    UNANSWERED = auto()
    """The server gets it, and the connection breaks before its answer."""
    LOST = auto()
    """The connection breaks before the server gets it."""


class _Proxy:
    """Passes everything on, in both directions; what is sent and answered can be watched, and broken."""

    def __init__(self, folder: Path, server_url: str) -> None:
        parameters = conninfo_to_dict(server_url)
        folder_and_file = f"host={quote(str(folder), safe='')}&passfile={quote(str(parameters['passfile']), safe='')}"
        self.url = f"postgresql://postgres@/{parameters['dbname']}?{folder_and_file}&port=5432"
        self._server_socket = str(Path(str(parameters["host"])) / f".s.PGSQL.{parameters['port']}")
        self._own_socket = str(folder / ".s.PGSQL.5432")
        self._connections = 0

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._connected, self._own_socket)

    def _asked(self, connection: int, data: bytes) -> _Fate:
        """A client has sent this, over the connection of this number."""
        del connection, data
        return _Fate.PASSED_ON

    async def _answered(self, connection: int) -> None:
        """The server has sent something, which is passed on after this."""

    def _broke(self) -> None:
        """A connection was broken."""

    async def _connected(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        number = self._connections
        self._connections += 1
        server_in, server_out = await asyncio.open_unix_connection(self._server_socket)
        answering = asyncio.create_task(self._answer(number, server_in, client_out))
        try:
            while data := await client_in.read(65536):
                fate = self._asked(number, data)
                if fate is not _Fate.PASSED_ON:
                    answering.cancel()
                if fate is not _Fate.LOST:
                    server_out.write(data)
                    await server_out.drain()
                if fate is not _Fate.PASSED_ON:
                    self._broke()
                    return
        except (ConnectionError, asyncio.CancelledError):
            return  # the loop ends, and with it the proxy
        finally:
            answering.cancel()
            for writer in (client_out, server_out):
                writer.close()
            await asyncio.gather(answering, return_exceptions=True)

    async def _answer(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                await self._answered(number)
                writer.write(data)
                await writer.drain()
        writer.close()


_QUIET_TURNS = 50
"""A client on this event loop that has sent nothing for so many turns of it waits for an answer."""


class CountingProxy(_Proxy):
    """Counts how often somebody waits for an answer before asking on.

    However much is sent without an answer in between is one round trip. Answers are held until the client, which must be on the
    same event loop, has sent all that it can send without them: so the count is that of a server infinitely far away, however
    quickly this one answers.
    """

    def __init__(self, folder: Path, server_url: str) -> None:
        super().__init__(folder, server_url)
        self._round_trips: dict[int, int] = {}
        self._waiting: set[int] = set()
        self._waking: set[int] = set()
        self._times_asked = 0

    def so_far(self) -> Mapping[int, int]:
        """By connection."""
        return dict(self._round_trips)

    def since(self, before: Mapping[int, int]) -> int:
        """Of the connections that there were, but for those that wake others after commits: nobody waits for them."""
        return sum(self._round_trips[number] - count for number, count in before.items() if number not in self._waking)

    def _asked(self, connection: int, data: bytes) -> _Fate:
        self._times_asked += 1
        if b"pg_notify" in data:
            self._waking.add(connection)
        if connection not in self._waiting:
            self._round_trips[connection] = self._round_trips.get(connection, 0) + 1
        self._waiting.add(connection)
        return _Fate.PASSED_ON

    async def _answered(self, connection: int) -> None:
        asked, quiet_turns = self._times_asked, 0
        while quiet_turns < _QUIET_TURNS:
            await asyncio.sleep(0)
            quiet_turns = quiet_turns + 1 if self._times_asked == asked else 0
            asked = self._times_asked
        self._waiting.discard(connection)


class FailingProxy(_Proxy):
    """Breaks the connection at the worst moment: once it is armed, the next COMMIT breaks its connection, once."""

    def __init__(self, folder: Path, server_url: str) -> None:
        super().__init__(folder, server_url)
        self.broken = asyncio.Event()
        self._next_commit = _Fate.PASSED_ON

    def break_next_commit(self, *, delivers: bool) -> None:
        """`delivers`: the server still gets the COMMIT, but its answer is lost; else not even that."""
        self._next_commit = _Fate.UNANSWERED if delivers else _Fate.LOST
        self.broken.clear()

    def _asked(self, connection: int, data: bytes) -> _Fate:
        del connection
        if b"COMMIT" not in data:
            return _Fate.PASSED_ON
        fate, self._next_commit = self._next_commit, _Fate.PASSED_ON
        return fate

    def _broke(self) -> None:
        self.broken.set()


@asynccontextmanager
async def counting_proxy(server_url: str) -> AsyncIterator[CountingProxy]:
    with tempfile.TemporaryDirectory(prefix="topmast-proxy-") as folder:
        proxy = CountingProxy(Path(folder), server_url)
        async with _serving(proxy):
            yield proxy


@asynccontextmanager
async def failing_proxy(server_url: str) -> AsyncIterator[FailingProxy]:
    with tempfile.TemporaryDirectory(prefix="topmast-proxy-") as folder:
        proxy = FailingProxy(Path(folder), server_url)
        async with _serving(proxy):
            yield proxy


@asynccontextmanager
async def _serving(proxy: _Proxy) -> AsyncIterator[None]:
    server = await proxy.serve()
    try:
        yield
    finally:
        server.close()
