"""The terminal in which a command was typed, while another one beyond the network has it."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topmast.sessions import TerminalSize

_CHUNK_BYTES = 65_536
_RESIZED, _LEFT = b"r", b"l"


class LocalInput:
    """Standard input as it comes, and with `terminal` each new size of it. Leaving it ends `parts`, whatever that waits for."""

    def __init__(self, *, reads: bool, terminal: bool) -> None:
        self._reads = reads
        self._terminal = terminal
        self._woken, self._wake = os.pipe()

    def parts(self) -> Generator[bytes | TerminalSize, None, None]:
        """Until the end of standard input; with a terminal that is not read, until it is left."""
        while self._reads or self._terminal:
            ready, _, _ = select.select([self._woken, *([_standard_input()] if self._reads else [])], [], [])
            if self._woken in ready:
                if _LEFT in os.read(self._woken, _CHUNK_BYTES):
                    return
                yield terminal_size()
            elif chunk := os.read(_standard_input(), _CHUNK_BYTES):
                yield chunk
            else:
                return

    @contextmanager
    def attached(self) -> Iterator[None]:
        """While it lasts, a terminal is raw: what is typed goes to the other side as it is, Ctrl-C too. It is always restored."""
        try:
            if self._terminal:
                with _raw_terminal(), self._told_of_sizes():
                    yield
            else:
                yield
        finally:
            os.write(self._wake, _LEFT)

    @contextmanager
    def _told_of_sizes(self) -> Iterator[None]:
        def resized(number: int, frame: FrameType | None) -> None:
            del number, frame
            os.write(self._wake, _RESIZED)

        before = signal.signal(signal.SIGWINCH, resized)
        try:
            yield
        finally:
            signal.signal(signal.SIGWINCH, before)


def is_terminal_input() -> bool:
    return sys.stdin.isatty()


def terminal_size() -> TerminalSize:
    from topmast.sessions import TerminalSize

    size = os.get_terminal_size(_standard_input())
    return TerminalSize(size.lines, size.columns)


@contextmanager
def _raw_terminal() -> Iterator[None]:
    descriptor = _standard_input()
    before = termios.tcgetattr(descriptor)
    with left_by_signals():
        try:
            tty.setraw(descriptor, termios.TCSADRAIN)
            yield
        finally:
            with suppress(termios.error):
                # Where it was closed there is nothing left to restore.
                termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def left_by_signals() -> Iterator[None]:
    """While it lasts, a signal to end and a closed terminal raise SystemExit: what has to be put right first is."""
    handlers = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)


def _standard_input() -> int:
    return sys.stdin.fileno()
