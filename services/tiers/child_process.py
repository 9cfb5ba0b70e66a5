"""A child process that answers one question, and its end, which its parent waits for whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading

from topmast_server.processes import module_command

_PATIENCE_REAL_S = 10.0
"""A process that waits in the kernel for its storage ends when that answers, and does nothing any more: it is not waited for longer."""

_ORPHANED = 3
"""The exit status of a child whose parent is gone."""


async def ask_child(module: str, question: bytes) -> tuple[int | None, bytes]:
    """Runs the module with this line as its input, which stays open until it has ended: it ends with this process, however that ends
    (`end_with_input`). Returns its exit status and its output; cancelled, it ends the child.
    """
    process = await asyncio.create_subprocess_exec(
        *module_command(module), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError(f"{module} was started without pipes")
    try:
        process.stdin.write(question + b"\n")
        answered = await process.stdout.read()
        await process.wait()
    finally:
        # Cancelled, or done: in either case nothing of it goes on.
        await end_process(process)
    return process.returncode, answered


def end_with_input() -> None:
    """Has this process end at once when its input does: whoever asked is gone."""
    threading.Thread(target=_read_to_end, daemon=True).start()


def _read_to_end() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(_ORPHANED)


async def end_process(process: asyncio.subprocess.Process) -> None:
    """Kills it, unless it has ended, and waits until it is gone. Cancelled meanwhile it waits all the same, and is cancelled
    then: a killed process takes no time, and one that nobody has waited for is left behind when the event loop ends.
    """
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    ending = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait({ending}, timeout=_PATIENCE_REAL_S)
    except asyncio.CancelledError:
        await asyncio.wait({ending}, timeout=_PATIENCE_REAL_S)
        raise
    finally:
        ending.cancel()
