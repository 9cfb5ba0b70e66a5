"""The host's side of the connection to its watcher: signs of life, and another watcher when that one is lost."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import suppress

import structlog

from services.runtime.handed_options import handed_over
from services.runtime.home import HomeLayout
from services.runtime.host_report import HostReport
from services.runtime.host_watcher import ALIVE, ENDS, READY, SIGN_EVERY_REAL_S
from topmast_server.processes import module_command

_PART = "watcher"
_FIRST_PAUSE_REAL_S = 0.2
_LONGEST_PAUSE_REAL_S = 30.0

_log = structlog.get_logger(__name__)


class WatcherLink:
    """Keeps a watcher watching this process. To be used on one event loop; without a connection to begin with it does nothing."""

    def __init__(self, layout: HomeLayout, options: str, connection: int | None, report: HostReport) -> None:
        """`options`: with which another host is to be started. `connection`: the descriptor of the one to who started us."""
        self._layout = layout
        self._options = options
        self._report = report
        self._socket: socket.socket | None = None
        self._process_id = 0
        self._started_here = False
        self._task: asyncio.Task[None] | None = None
        if connection is not None:
            self._socket = socket.socket(fileno=connection)
            self._socket.set_inheritable(False)
            self._socket.setblocking(False)
            self._process_id = report.watcher_id = os.getppid()

    def open(self) -> None:
        """Begins to give signs of life."""
        if self._socket is not None:
            self._know_watcher()
            self._task = asyncio.create_task(self._keep(), name=_PART)

    def ready(self) -> None:
        """From now on another host is to be started when this one dies."""
        self._say(READY)

    async def end(self) -> None:
        """No other host is to be started any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._say(ENDS)

    async def _keep(self) -> None:
        pause_s = _FIRST_PAUSE_REAL_S
        while True:
            began = asyncio.get_running_loop().time()
            await self._until_lost()
            _log.warning("the watcher of the host has ended; another one is started", process=self._process_id)
            self._report.parts.says_down(_PART, f"process {self._process_id} has ended")
            if asyncio.get_running_loop().time() - began > _LONGEST_PAUSE_REAL_S:
                pause_s = _FIRST_PAUSE_REAL_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_REAL_S)
            self._start_another()
            self._know_watcher()

    def _know_watcher(self) -> None:
        self._report.watcher_id = self._process_id
        self._report.parts.says_up(_PART, self._process_id)

    async def _until_lost(self) -> None:
        """Gives signs of life until nobody takes them."""
        lost = asyncio.Event()
        loop, connection = asyncio.get_running_loop(), self._socket
        if connection is None:
            return
        loop.add_reader(connection, lost.set)
        try:
            while not lost.is_set():
                self._say(ALIVE)
                with suppress(TimeoutError):
                    async with asyncio.timeout(SIGN_EVERY_REAL_S):
                        await lost.wait()
        finally:
            loop.remove_reader(connection)

    def _say(self, sign: bytes) -> None:
        if self._socket is not None:
            # Full: it is halted. Broken: it is lost, which the reader tells.
            with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
                self._socket.send(sign)

    def _start_another(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._started_here:
            with suppress(ChildProcessError):
                os.waitpid(self._process_id, os.WNOHANG)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            theirs.set_inheritable(True)
            with handed_over(self._options) as descriptor:
                arguments = [
                    str(descriptor),
                    str(self._layout.watcher_lock),
                    str(self._layout.watcher_record),
                    str(theirs.fileno()),
                    str(os.getpid()),
                ]
                command = module_command("services.runtime.host_watcher", *arguments)
                self._process_id = os.posix_spawn(sys.executable, command, os.environ, setsid=True)
        self._socket, self._started_here = ours, True
