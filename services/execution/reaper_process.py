"""Starts the process that stands between this one and what it has users' programs do (`services.execution.task_reaper`)."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from services.execution import task_reaper


async def start_reaper(inherited: Sequence[int] = ()) -> Process:
    """One that waits for its launch; it inherits these descriptors. Raises OSError."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(Path(task_reaper.__file__))),
        stdin=PIPE,
        stdout=PIPE,
        pass_fds=tuple(inherited),
        start_new_session=True,
    )


async def tell_reaper(reaper: Process, line: bytes) -> None:
    """Returns when it may be told more; one that is gone is told nothing."""
    if reaper.stdin is not None and not reaper.stdin.is_closing():
        with suppress(ConnectionError):
            reaper.stdin.write(line)
            await reaper.stdin.drain()


async def answer_of_reaper(reaper: Process) -> dict[str, str | int]:
    """Its next line; empty when it is gone."""
    line = await reaper.stdout.readline() if reaper.stdout is not None else b""
    answer: dict[str, str | int] = json.loads(line) if line else {}
    return answer
