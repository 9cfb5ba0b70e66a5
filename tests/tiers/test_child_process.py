"""A child process is gone when its parent's task is, also when that is cancelled while it waits."""

from __future__ import annotations

import asyncio
import sys

import pytest

from services.tiers.child_process import end_process


def test_who_is_cancelled_while_a_process_ends_leaves_none_behind() -> None:
    async def scenario() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        ending = asyncio.create_task(end_process(process))
        await asyncio.sleep(0)  # it waits for the process now
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        assert process.returncode is not None

    asyncio.run(scenario())


def test_a_process_that_has_ended_already_is_no_trouble() -> None:
    async def scenario() -> None:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
        await process.wait()
        await end_process(process)
        assert process.returncode == 0

    asyncio.run(scenario())
