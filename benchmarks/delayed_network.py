"""A network with a long way between its ends: connections through it take a stated time for a round trip.

It is a process of its own, so that what is measured is not held up by it.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 1 << 16


class DelayedNetwork:
    """Ports of this machine, each of which leads to an address (`host:port`, or the path of a socket) the long way round."""

    def __init__(self, round_trip_s: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, round_trip_s / 2.0), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.join()

    def way_to(self, addresses: Mapping[str, str]) -> dict[str, int]:
        """A port of 127.0.0.1 for each of these, by name; what is there need not listen yet."""
        self._ours.send(dict(addresses))
        ports: dict[str, int] = self._ours.recv()
        return ports


def _serve(asked: Connection, one_way_s: float) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        while True:
            addresses: dict[str, str] = await loop.run_in_executor(None, asked.recv)
            asked.send({name: await _open_port(address, one_way_s) for name, address in addresses.items()})

    with suppress(EOFError, KeyboardInterrupt):
        asyncio.run(serve())


async def _open_port(address: str, one_way_s: float) -> int:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if "/" in address:
                far_reader, far_writer = await asyncio.open_unix_connection(address)
            else:
                host, _, port = address.rpartition(":")
                far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        await asyncio.gather(_carry(reader, far_writer, one_way_s), _carry(far_reader, writer, one_way_s))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    return port


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, one_way_s: float) -> None:
    """What comes in goes out that much later, however much of it is under way."""
    loop = asyncio.get_running_loop()
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due_s, chunk = await under_way.get()
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            if not chunk:
                writer.close()
                return
            writer.write(chunk)
            await writer.drain()

    delivering = asyncio.create_task(deliver())
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            under_way.put_nowait((loop.time() + one_way_s, chunk))
    under_way.put_nowait((loop.time() + one_way_s, b""))
    with suppress(OSError):
        await delivering
