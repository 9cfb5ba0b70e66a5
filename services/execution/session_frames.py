"""What a cluster manager and a task's runner say to each other in a session: frames on a TCP connection of its own.

A frame is its kind (one byte), the length of its content (four bytes, big-endian) and the content. The first frame is the
token with which the connection proves that it is the one that was asked for. Input is acknowledged when it is passed on, so
that a runner always reads what comes, and sees at once when nobody is there any more, without storing more than
INPUT_WINDOW_BYTES.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

CHUNK_BYTES = 65_536
"""So much is read at once of what a command prints."""

INPUT_WINDOW_BYTES = 4 * CHUNK_BYTES
"""So much input may be under way that is not acknowledged."""

_HEADER = struct.Struct("!BI")
_NUMBER = struct.Struct("!i")
_SIZE = struct.Struct("!HH")
_LONGEST_FRAME_BYTES = 2**20


class FrameKind(IntEnum):
    TOKEN = 1
    INPUT = 2
    END_OF_INPUT = 3
    RESIZED = 4
    OPENED = 5
    """The command was started, or the port has answered."""
    INPUT_TAKEN = 6
    """So many bytes of input were passed on."""
    OUTPUT = 7
    ERROR_OUTPUT = 8
    EXIT_CODE = 9
    """The last frame; of a connection to a port it is 0."""
    FAILURE = 10
    """The last frame: a sentence that says why it ends."""


class Frame(NamedTuple):
    kind: FrameKind
    content: bytes = b""


class BrokenFrame(Exception):
    """What arrived is no frame."""


class TerminalSize(NamedTuple):
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class SessionCommand:
    """Run beside the task. With a terminal its standard error is part of its output."""

    arguments: tuple[str, ...]
    terminal: TerminalSize | None = None
    terminal_name: str = "dumb"


@dataclass(frozen=True, slots=True)
class SessionPort:
    """A port of 127.0.0.1 on the machine of the task."""

    port: int


SessionPurpose = SessionCommand | SessionPort


@dataclass(frozen=True, slots=True)
class SessionDoor:
    """Where a runner waits for the connection of one session, for a few seconds, and what proves that it is the one."""

    host: str
    port: int
    token: bytes


@dataclass(frozen=True, slots=True)
class SessionRefused:
    """Why there is no session."""

    sentence: str


def packed(frame: Frame) -> bytes:
    return _HEADER.pack(frame.kind, len(frame.content)) + frame.content


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """The next frame; None when the other side is gone. Raises BrokenFrame."""
    try:
        kind, length = _HEADER.unpack(await reader.readexactly(_HEADER.size))
        if length > _LONGEST_FRAME_BYTES:
            raise BrokenFrame(f"a frame of {length} bytes")
        return Frame(FrameKind(kind), await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except ValueError as error:
        raise BrokenFrame(str(error)) from error


def number_frame(kind: FrameKind, number: int) -> Frame:
    return Frame(kind, _NUMBER.pack(number))


def number_of(frame: Frame) -> int:
    """The exit code, or how much was taken."""
    return int(_NUMBER.unpack(frame.content)[0])


def size_frame(size: TerminalSize) -> Frame:
    return Frame(FrameKind.RESIZED, _SIZE.pack(*size))


def size_of(frame: Frame) -> TerminalSize:
    return TerminalSize(*_SIZE.unpack(frame.content))
