"""How a command ended reaches the other side of its connection, whatever that side is still sending."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from services.execution.session_endpoint import CommandPlace
from services.execution.session_frames import (
    CHUNK_BYTES,
    Frame,
    FrameKind,
    SessionCommand,
    SessionDoor,
    number_of,
    packed,
    read_frame,
)
from services.execution.task_sessions import TaskSessions

_INPUT = packed(Frame(FrameKind.INPUT, bytes(CHUNK_BYTES)))


def test_the_exit_code_is_not_lost_where_input_is_still_on_its_way(tmp_path: Path) -> None:
    async def scenario() -> None:
        place = CommandPlace(tmp_path, {"PATH": os.environ["PATH"]})
        sessions = TaskSessions("127.0.0.1", place, lambda commands: None)
        for _ in range(3):
            door = await sessions.open(SessionCommand(("sh", "-c", "exit 4")))
            assert isinstance(door, SessionDoor)
            assert await asyncio.to_thread(_send_then_read, door) == 4
        await sessions.end_all("it has ended")

    asyncio.run(scenario())


def _send_then_read(door: SessionDoor) -> int | None:
    """Goes on sending for a while after the command has ended, and reads only then. None: nothing was said of the end."""

    async def talk() -> int | None:
        reader, writer = await asyncio.open_connection(door.host, door.port)
        writer.write(packed(Frame(FrameKind.TOKEN, door.token)))
        for _ in range(50):
            writer.write(_INPUT)
            # Its loop is busy with something else, as that of a scheduler may be.
            time.sleep(0.01)  # noqa: ASYNC251 -- to block the loop is the point
        while (frame := await read_frame(reader)) is not None:
            if frame.kind is FrameKind.EXIT_CODE:
                writer.close()
                return number_of(frame)
        return None

    return asyncio.run(talk())
