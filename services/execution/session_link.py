"""The cluster manager's side of a session: a connection to the runner of the task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from services.execution.executor import SessionImpossible, TaskReference
from services.execution.session_frames import (
    CHUNK_BYTES,
    INPUT_WINDOW_BYTES,
    BrokenFrame,
    Frame,
    FrameKind,
    SessionDoor,
    TerminalSize,
    number_of,
    packed,
    read_frame,
    size_frame,
)

_CONNECT_TIMEOUT_S = 10.0
_OPENED_TIMEOUT_S = 60.0
"""A command may have to be read from a slow disk; a container runtime takes seconds, too."""

_GONE = "the runner of the task is gone"


class SessionLink:
    """One session that was opened. Little is stored: neither side is faster than the other takes it."""

    def __init__(self, task: TaskReference, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.task = task
        self._reader = reader
        self._writer = writer
        self._under_way_bytes = 0
        self._taken = asyncio.Event()
        self._over = False

    @staticmethod
    async def open(task: TaskReference, door: SessionDoor) -> SessionLink:
        """Returns when the command was started, or the port has answered. Raises SessionImpossible when that fails."""
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(door.host, door.port, limit=CHUNK_BYTES)
        except OSError as error:
            # The lack of an answer in time is one, too.
            raise SessionImpossible(task.key, f"the machine of the task does not answer: {error}") from error
        link = SessionLink(task, reader, writer)
        try:
            writer.write(packed(Frame(FrameKind.TOKEN, door.token)))
            async with asyncio.timeout(_OPENED_TIMEOUT_S):
                await link._next()
        except TimeoutError as error:
            link.close()
            raise SessionImpossible(task.key, "the runner of the task does not answer") from error
        except BaseException:
            link.close()
            raise
        return link

    async def send_input(self, chunk: bytes) -> None:
        """Returns when more may be sent. What comes after the end is dropped."""
        for start in range(0, len(chunk), CHUNK_BYTES):
            part = chunk[start : start + CHUNK_BYTES]
            while self._under_way_bytes + len(part) > INPUT_WINDOW_BYTES and not self._over:
                self._taken.clear()
                await self._taken.wait()
            if self._over:
                return
            self._under_way_bytes += len(part)
            self._send(Frame(FrameKind.INPUT, part))

    def end_input(self) -> None:
        self._send(Frame(FrameKind.END_OF_INPUT))

    def resize(self, size: TerminalSize) -> None:
        self._send(size_frame(size))

    async def outputs(self) -> AsyncGenerator[Frame, None]:
        """OUTPUT and ERROR_OUTPUT, and at last EXIT_CODE. Raises SessionImpossible when it ends otherwise."""
        while True:
            frame = await self._next()
            if frame.kind is FrameKind.INPUT_TAKEN:
                self._under_way_bytes -= number_of(frame)
                self._taken.set()
                continue
            if frame.kind is FrameKind.EXIT_CODE:
                self._over = True
                self._taken.set()
                yield frame
                return
            yield frame

    def close(self) -> None:
        """Nobody is there any more: that ends the command, too."""
        self._writer.close()

    async def _next(self) -> Frame:
        try:
            frame = await read_frame(self._reader)
        except BrokenFrame as broken:
            raise SessionImpossible(self.task.key, f"the runner of the task does not make sense: {broken}") from broken
        if frame is None:
            raise SessionImpossible(self.task.key, _GONE)
        if frame.kind is FrameKind.FAILURE:
            raise SessionImpossible(self.task.key, frame.content.decode(errors="replace"))
        return frame

    def _send(self, frame: Frame) -> None:
        if not self._writer.is_closing():
            self._writer.write(packed(frame))
