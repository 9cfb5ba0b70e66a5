"""Runs a command beside a task for the command line: what is typed goes there, what it prints comes here."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, BinaryIO

import typer

from services.command_line.local_terminal import LocalInput, is_terminal_input, terminal_size

if TYPE_CHECKING:
    from topmast import Client
    from topmast.sessions import SessionPlace

SHELL = (
    "sh",
    "-c",
    'if [ -x "$SHELL" ]; then exec "$SHELL" -i; elif command -v bash >/dev/null; then exec bash -i; else exec sh -i; fi',
)
"""What runs where nothing is said and there is a terminal."""


def require_terminal(option: str) -> None:
    """Refuses to give a command a terminal where there is none."""
    if not is_terminal_input():
        raise typer.BadParameter(
            "needs a terminal at standard input, and there is none; leave -t out to pass on a pipe or a file",
            param_hint=option,
        )


def run_remotely(client: Client, place: SessionPlace, arguments: Sequence[str], *, reads: bool, terminal: bool) -> int:
    """The exit code of the command. Leaving this ends the command."""
    from topmast.sessions import CommandOutput, session_command

    size = terminal_size() if terminal else None
    command = session_command(arguments, size, os.environ.get("TERM", ""))
    local = LocalInput(reads=reads, terminal=terminal)
    output = CommandOutput(_Flushed(sys.stdout.buffer), _Flushed(sys.stderr.buffer))
    with local.attached(), closing(client.sessions.open(place, place.opening(command), local.parts())) as responses:
        for response in responses:
            output.take(response)
    return output.result().exit_code


class _Flushed:
    """A stream on which everything is seen at once."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, content: bytes) -> None:
        self._stream.write(content)
        self._stream.flush()
