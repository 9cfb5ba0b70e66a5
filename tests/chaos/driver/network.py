"""What is done to the network between tiers: connections are cut, packets are lost, answers take longer.

Only in a network of the run's own (`private_world`): the rules are the kernel's.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_MARK = 7
"""Of what the proxy sends itself: it is not sent back to the proxy."""
_SO_MARK = 36
_CHUNK_BYTES = 65_536


def cut(ports: Sequence[int]) -> None:
    """All connections to these ports end at once, for both sides."""
    for port in ports:
        for side in ("dport", "sport"):
            subprocess.run(["ss", "--kill", "--tcp", side, "=", f":{port}"], capture_output=True, check=True)


@contextmanager
def unreachable(ports: Sequence[int]) -> Iterator[None]:
    """Whatever is sent to these ports, or from them, is lost, and nobody is told."""
    rules = [[chain, "-p", "tcp", side, str(port), "-j", "DROP"] for port in ports for chain, side in _BOTH_WAYS]
    for rule in rules:
        subprocess.run(["iptables", "-I", *rule], check=True)
    try:
        yield
    finally:
        for rule in rules:
            subprocess.run(["iptables", "-D", *rule], check=True)


_BOTH_WAYS = (("INPUT", "--dport"), ("INPUT", "--sport"))


@contextmanager
def slow(ports: Sequence[int], delay_s: float) -> Iterator[None]:
    """Whatever is sent to these ports arrives later by so much, and so do the answers."""
    proxies = [_DelayingProxy(port, delay_s) for port in ports]
    rules = []
    for proxy in proxies:
        proxy.start()
        rule = ["OUTPUT", "-p", "tcp", "-d", "127.0.0.1", "--dport", str(proxy.port), "-m", "mark", "!", "--mark"]
        rules.append([*rule, str(_MARK), "-j", "REDIRECT", "--to-ports", str(proxy.listens_at)])
    for rule in rules:
        subprocess.run(["iptables", "-t", "nat", "-I", *rule], check=True)
    # What is connected already would go on as before.
    cut(ports)
    try:
        yield
    finally:
        for rule in rules:
            subprocess.run(["iptables", "-t", "nat", "-D", *rule], check=True)
        for proxy in proxies:
            proxy.stop()


class _DelayingProxy:
    """Passes on what comes, later; in a thread of its own."""

    def __init__(self, port: int, delay_s: float) -> None:
        self.port = port
        self.listens_at = 0
        self._delay_s = delay_s
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._listening.wait()

    def stop(self) -> None:
        """Cuts what it connects."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._connect, "127.0.0.1", 0))
        self.listens_at = server.sockets[0].getsockname()[1]
        self._listening.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            self._loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        self._loop.close()

    async def _connect(self, near_reader: asyncio.StreamReader, near_writer: asyncio.StreamWriter) -> None:
        far = socket.socket()
        far.setsockopt(socket.SOL_SOCKET, _SO_MARK, _MARK)
        far.setblocking(False)
        try:
            await self._loop.sock_connect(far, ("127.0.0.1", self.port))
            far_reader, far_writer = await asyncio.open_connection(sock=far)
            try:
                await asyncio.gather(self._pass_on(near_reader, far_writer), self._pass_on(far_reader, near_writer))
            finally:
                far_writer.close()
        except (OSError, asyncio.CancelledError):
            far.close()
        finally:
            near_writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            self._loop.call_later(self._delay_s, writer.write, chunk)
        self._loop.call_later(self._delay_s, writer.close)
