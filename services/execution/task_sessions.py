"""The sessions of one task, in its runner: commands beside it, and connections to ports of its machine.

Each has a TCP connection of its own from the cluster manager, so that Ray carries no bytes of them. A session ends when that
connection does, and with the task at the latest; nothing of a command is left then.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable
from contextlib import suppress

import structlog

from services.execution.background_tasks import BackgroundTasks
from services.execution.session_endpoint import CommandPlace, ConnectedPort, NotOpened, SessionEndpoint, StartedCommand
from services.execution.session_frames import (
    CHUNK_BYTES,
    BrokenFrame,
    Frame,
    FrameKind,
    SessionCommand,
    SessionDoor,
    SessionPurpose,
    SessionRefused,
    number_frame,
    packed,
    read_frame,
    size_of,
)

_DOOR_OPEN_S = 10.0
"""So long the connection of a session is waited for."""

_LEAVING_GRACE_S = 2.0
"""A command is asked to end (SIGTERM) when nobody is there any more, and killed after that."""

_LAST_WORDS_S = 2.0
"""So long what was printed is still sent when the task has ended."""

_TOKEN_BYTES = 32

_log = structlog.get_logger(__name__)


class TaskSessions:
    """Those of one task, from its start to its end."""

    def __init__(self, host: str, place: CommandPlace, commands_changed: Callable[[int], None]) -> None:
        """`host`: where other machines of the cluster reach this one. `commands_changed` hears how many commands run."""
        self._host = host
        self._place = place
        self._commands_changed = commands_changed
        self._commands = 0
        self._doors: set[asyncio.Server] = set()
        self._sessions: set[_Session] = set()
        self._running = BackgroundTasks()
        self._ended = False

    @property
    def process_ids(self) -> list[int]:
        """Of what watches over each command."""
        ends = (session.endpoint for session in self._sessions)
        return sorted(end.process_id for end in ends if isinstance(end, StartedCommand))

    async def open(self, purpose: SessionPurpose) -> SessionDoor | SessionRefused:
        """Waits, at a port of its own, for the one connection that has the token."""
        token = secrets.token_hex(_TOKEN_BYTES).encode()

        async def let_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if await _has_token(reader, token) and server in self._doors:
                self._close(server)
                self._running.spawn(self._serve(reader, writer, purpose))
            else:
                writer.close()

        server = await asyncio.start_server(let_in, self._host, 0, limit=CHUNK_BYTES)
        if self._ended:
            server.close()
            return SessionRefused("it has ended")
        self._doors.add(server)
        asyncio.get_running_loop().call_later(_DOOR_OPEN_S, self._close, server)
        return SessionDoor(self._host, int(server.sockets[0].getsockname()[1]), token)

    async def end_all(self, why: str) -> None:
        """Returns when nothing of them runs any more."""
        self._ended = True
        for door in list(self._doors):
            self._close(door)
        await asyncio.gather(*(session.end(why) for session in list(self._sessions)))
        await self._running.drain()

    def _close(self, door: asyncio.Server) -> None:
        self._doors.discard(door)
        door.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, purpose: SessionPurpose) -> None:
        is_command = isinstance(purpose, SessionCommand)
        self._count(is_command)
        try:
            session = _Session(reader, writer, await self._endpoint(purpose))
            self._sessions.add(session)
            try:
                await session.run(self._ended)
            finally:
                self._sessions.discard(session)
        except (NotOpened, OSError) as error:
            writer.write(packed(Frame(FrameKind.FAILURE, str(error).encode())))
        finally:
            self._count(-is_command)
            writer.close()

    async def _endpoint(self, purpose: SessionPurpose) -> SessionEndpoint:
        if isinstance(purpose, SessionCommand):
            return await StartedCommand.start(purpose, self._place)
        return await ConnectedPort.open(purpose.port)

    def _count(self, more: int) -> None:
        self._commands += more
        if more and not self._ended:
            self._commands_changed(self._commands)


class _Session:
    """One connection, and what is at its other end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, endpoint: SessionEndpoint) -> None:
        self.endpoint = endpoint
        self._reader = reader
        self._writer = writer
        self._input: asyncio.Queue[Frame] = asyncio.Queue()
        self._failure = ""
        self._telling = asyncio.create_task(self._tell())

    async def run(self, ended: bool) -> None:
        """Until one side has ended. `ended`: the task has, meanwhile."""
        receiving, feeding = asyncio.create_task(self._receive()), asyncio.create_task(self._feed())
        try:
            if not ended:
                await asyncio.wait({self._telling, receiving}, return_when=asyncio.FIRST_COMPLETED)
                if not receiving.done():
                    await self._hear_out(receiving)
        finally:
            left = receiving.done() and not self._telling.done()
            for work in (self._telling, receiving, feeding):
                work.cancel()
            await self.endpoint.end(_LEAVING_GRACE_S if left else 0.0)

    async def _hear_out(self, receiving: asyncio.Task[None]) -> None:
        """Waits until the other side has read all, and leaves. To close a connection with input that nobody has read resets it: then the
        exit code may be lost on its way."""
        if self._writer.can_write_eof():
            with suppress(OSError):
                self._writer.write_eof()
        await asyncio.wait({receiving}, timeout=_LAST_WORDS_S)

    async def end(self, why: str) -> None:
        """Ends it at once, and tells the other side why."""
        self._failure = why
        await self.endpoint.end(0.0)
        await asyncio.wait({self._telling}, timeout=_LAST_WORDS_S)
        self._telling.cancel()

    async def _receive(self) -> None:
        """Reads all the time, to see when the other side is gone: how much it may send is limited by what is acknowledged."""
        try:
            while (frame := await read_frame(self._reader)) is not None:
                if frame.kind is FrameKind.RESIZED:
                    self.endpoint.resize(size_of(frame))
                else:
                    self._input.put_nowait(frame)
        except BrokenFrame as broken:
            _log.warning("a session sends what is no frame", error=str(broken))

    async def _feed(self) -> None:
        while True:
            kind, content = await self._input.get()
            if kind is FrameKind.INPUT:
                with suppress(OSError):
                    # It may take nothing any more: then the rest is not for anybody.
                    await self.endpoint.write(content)
                self._send(number_frame(FrameKind.INPUT_TAKEN, len(content)))
            elif kind is FrameKind.END_OF_INPUT:
                self.endpoint.end_input()

    async def _tell(self) -> None:
        self._send(Frame(FrameKind.OPENED))
        await asyncio.gather(*(self._pass_on(kind, output) for kind, output in self.endpoint.outputs))
        code = await self.endpoint.exit_code()
        self._send(
            Frame(FrameKind.FAILURE, self._failure.encode())
            if self._failure
            else number_frame(FrameKind.EXIT_CODE, code)
        )
        with suppress(ConnectionError):
            await self._writer.drain()

    async def _pass_on(self, kind: FrameKind, output: asyncio.StreamReader) -> None:
        # Who broke it off, the port or the other side, is seen elsewhere.
        with suppress(ConnectionError):
            while chunk := await output.read(CHUNK_BYTES):
                self._send(Frame(kind, chunk))
                await self._writer.drain()

    def _send(self, frame: Frame) -> None:
        if not self._writer.is_closing():
            self._writer.write(packed(frame))


async def _has_token(reader: asyncio.StreamReader, token: bytes) -> bool:
    try:
        async with asyncio.timeout(_DOOR_OPEN_S):
            frame = await read_frame(reader)
    except (TimeoutError, BrokenFrame):
        return False
    return frame is not None and frame.kind is FrameKind.TOKEN and hmac.compare_digest(frame.content, token)
