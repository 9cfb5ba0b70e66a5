"""The far end of a session, on the machine of the task: a command that was started there, or a connection to a port."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import signal
import socket
import struct
import termios
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.execution import task_reaper
from services.execution.reaper_process import answer_of_reaper, start_reaper, tell_reaper
from services.execution.session_frames import CHUNK_BYTES, FrameKind, SessionCommand, TerminalSize
from services.security.secret_files import umask_of_tasks

_CONNECT_TIMEOUT_S = 10.0
_END_OF_TRANSMISSION = b"\x04"
"""What a terminal takes for the end of the input (Ctrl-D)."""


class NotOpened(Exception):
    """Why there is no such end: the sentence for whoever asked."""


class SessionEndpoint(Protocol):
    """What input goes to, and output comes from."""

    @property
    def outputs(self) -> Sequence[tuple[FrameKind, asyncio.StreamReader]]:
        """What it says, until it has ended."""
        ...

    async def write(self, chunk: bytes) -> None:
        """Returns when it may be given more. Raises OSError when it takes nothing any more."""
        ...

    def end_input(self) -> None: ...

    def resize(self, size: TerminalSize) -> None: ...

    async def exit_code(self) -> int:
        """Waits until everything of it has ended."""
        ...

    async def end(self, grace_s: float) -> None:
        """Ends it, with everything that it has started; returns when that is done."""
        ...


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """Where commands beside a task are run, and in what."""

    directory: Path
    environment: dict[str, str]
    container: tuple[str, ...] = ()
    """The program of which the arguments, with the command behind them, run it in the container of the task."""
    limit: Callable[[int], None] = lambda process_id: None
    """Puts a process, and what it will start, under the limits of the task."""
    user: task_reaper.LaunchUser | None = None
    """As whom; None: as this process runs."""

    def launch(self, command: SessionCommand, standard: Sequence[int]) -> task_reaper.Launch:
        environment, arguments = dict(self.environment), list(command.arguments)
        if command.terminal is not None:
            environment["TERM"] = command.terminal_name
        if self.container:
            engine, verb, *options = self.container
            terminal = ["--tty", "--env", "TERM"] if command.terminal is not None else []
            arguments = [engine, verb, *terminal, *options, *arguments]
        launch: task_reaper.Launch = {
            "arguments": arguments,
            "environment": environment,
            "directory": str(self.directory),
            "log": os.devnull,
            "standard": list(standard),
            "terminal": command.terminal is not None,
        }
        mask = umask_of_tasks(os.environ)
        if mask is not None:
            launch["umask"] = mask
        if self.user is not None:
            launch["user"] = self.user
        return launch


class StartedCommand:
    """A command under a reaper of its own, which ends all of it when this process dies, however it dies."""

    def __init__(
        self,
        reaper: Process,
        leader_id: int,
        entrance: asyncio.StreamWriter,
        outputs: Sequence[tuple[FrameKind, asyncio.StreamReader]],
    ) -> None:
        self.outputs = tuple(outputs)
        self.process_id = reaper.pid
        self._reaper = reaper
        self._leader_id = leader_id
        self._entrance = entrance
        self._has_terminal = len(outputs) == 1
        # From the start: what a killed reaper has left holds the outputs open until it is ended.
        self._exit_code = asyncio.create_task(self._wait())

    @staticmethod
    async def start(command: SessionCommand, place: CommandPlace) -> StartedCommand:
        """Raises NotOpened when there is no such program, and OSError when nothing can be started."""
        own, given = _terminal(command.terminal) if command.terminal is not None else _pipes()
        reaper = None
        try:
            try:
                reaper = await start_reaper(sorted(set(given)))
            finally:
                for descriptor in set(given):
                    os.close(descriptor)
            place.limit(reaper.pid)
            await tell_reaper(reaper, json.dumps(place.launch(command, given)).encode() + b"\n")
            answer = await answer_of_reaper(reaper)
            _require_started(answer)
        except BaseException:
            for descriptor in own:
                os.close(descriptor)
            if reaper is not None and reaper.stdin is not None:
                reaper.stdin.close()
            raise
        entrance = await _writer(own[0])
        kinds = (FrameKind.OUTPUT, FrameKind.ERROR_OUTPUT)
        outputs = [(kind, await _reader(descriptor)) for kind, descriptor in zip(kinds, own[1:], strict=False)]
        return StartedCommand(reaper, int(answer["process_id"]), entrance, outputs)

    async def write(self, chunk: bytes) -> None:
        if not self._entrance.is_closing():
            self._entrance.write(chunk)
            await self._entrance.drain()

    def end_input(self) -> None:
        if self._has_terminal:
            self._entrance.write(_END_OF_TRANSMISSION)
        else:
            self._entrance.close()

    def resize(self, size: TerminalSize) -> None:
        if self._has_terminal:
            with suppress(OSError, ValueError):
                # It has ended meanwhile.
                _set_size(self._entrance.get_extra_info("pipe").fileno(), size)

    async def exit_code(self) -> int:
        return await asyncio.shield(self._exit_code)

    async def end(self, grace_s: float) -> None:
        if grace_s > 0:
            await tell_reaper(self._reaper, b"terminate\n")
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self.exit_code()
        if self._reaper.stdin is not None:
            # That kills everything.
            self._reaper.stdin.close()
        await self.exit_code()
        self._entrance.close()

    async def _wait(self) -> int:
        answer = await answer_of_reaper(self._reaper)
        await self._reaper.wait()
        if "exit_code" not in answer:
            # The reaper was killed; the kernel has killed the command, this ends what it had started.
            with suppress(ProcessLookupError):
                os.killpg(self._leader_id, signal.SIGKILL)
        code = int(answer.get("exit_code", -9))
        return code if code >= 0 else 128 - code


class ConnectedPort:
    """A connection to a port of this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.outputs = ((FrameKind.OUTPUT, reader),)
        self._writer = writer

    @staticmethod
    async def open(port: int) -> ConnectedPort:
        """Raises NotOpened when nothing answers there."""
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=CHUNK_BYTES)
        except TimeoutError:
            raise NotOpened(f"port {port} of the task's machine does not answer") from None
        except OSError as error:
            raise NotOpened(
                f"nothing listens at port {port} of the task's machine ({os.strerror(error.errno or 0)})"
            ) from error
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return ConnectedPort(reader, writer)

    async def write(self, chunk: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(chunk)
            await self._writer.drain()

    def end_input(self) -> None:
        with suppress(OSError):
            # The other side may have closed it already.
            self._writer.write_eof()

    def resize(self, size: TerminalSize) -> None:
        """It has no terminal."""

    async def exit_code(self) -> int:
        return 0

    async def end(self, grace_s: float) -> None:
        self._writer.close()


def _pipes() -> tuple[list[int], list[int]]:
    """Our ends of standard input, output and error; and those of the command."""
    reading, entrance = os.pipe()
    output, writing = os.pipe()
    errors, complaining = os.pipe()
    return [entrance, output, errors], [reading, writing, complaining]


def _terminal(size: TerminalSize) -> tuple[list[int], list[int]]:
    """Our ends of a terminal, for what goes in and what comes out; and that of the command, three times."""
    ours, theirs = pty.openpty()
    _set_size(ours, size)
    return [ours, os.dup(ours)], [theirs] * 3


def _set_size(terminal: int, size: TerminalSize) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))


class _UntilItsEnd(asyncio.StreamReaderProtocol):
    """A terminal says with an error that nobody writes any more: what was read before must not be lost by that."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(None)


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=CHUNK_BYTES)
    pipe = os.fdopen(descriptor, "rb", 0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: _UntilItsEnd(reader), pipe)
    return reader


async def _writer(descriptor: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(descriptor, "wb", 0)
    transport, protocol = await loop.connect_write_pipe(lambda: _UntilItsEnd(asyncio.StreamReader()), pipe)
    return asyncio.StreamWriter(transport, protocol, None, loop)


def _require_started(answer: dict[str, str | int]) -> None:
    if "process_id" not in answer:
        raise NotOpened(f"could not start: {answer.get('failure', 'its reaper was killed')}")
