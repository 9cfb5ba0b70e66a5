"""A proxy before PostgreSQL's socket that breaks the connection at the worst moment: around a commit."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict


class FailingProxy:
    """Passes everything on until it is armed; then the next COMMIT breaks its connection, once."""

    def __init__(self, folder: Path, server_url: str) -> None:
        parameters = conninfo_to_dict(server_url)
        socket_name = f".s.PGSQL.{parameters['port']}"
        self.url = f"postgresql://postgres@/{parameters['dbname']}?host={quote(str(folder), safe='')}&port=5432"
        self.broken = asyncio.Event()
        self._server_socket = str(Path(str(parameters["host"])) / socket_name)
        self._own_socket = str(folder / ".s.PGSQL.5432")
        self._armed = False
        self._delivers = False

    def break_next_commit(self, *, delivers: bool) -> None:
        """`delivers`: the server still gets the COMMIT, but its answer is lost; else not even that."""
        self._armed = True
        self._delivers = delivers
        self.broken.clear()

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._connected, self._own_socket)

    async def _connected(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_unix_connection(self._server_socket)
        answering = asyncio.create_task(_pass_on(server_in, client_out))
        try:
            while data := await client_in.read(65536):
                if self._armed and b"COMMIT" in data:
                    self._armed = False
                    answering.cancel()
                    if self._delivers:
                        server_out.write(data)
                        await server_out.drain()
                    self.broken.set()
                    return
                server_out.write(data)
                await server_out.drain()
        except ConnectionError:
            return
        finally:
            answering.cancel()
            for writer in (client_out, server_out):
                writer.close()
            await asyncio.gather(answering, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def failing_proxy(server_url: str) -> AsyncIterator[FailingProxy]:
    with tempfile.TemporaryDirectory(prefix="topmast-proxy-") as folder:
        proxy = FailingProxy(Path(folder), server_url)
        server = await proxy.serve()
        try:
            yield proxy
        finally:
            server.close()
