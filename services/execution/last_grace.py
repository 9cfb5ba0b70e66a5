"""The end of a Ray of our own: tasks that run there get their time to save before they are gone with it.

Nobody manages them any more by then. What they save is found on the disk by the next manager, which goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from services.execution.runner_messages import RunnerState, StopCause
from services.execution.runner_pool import RunnerHandle, RunnerLost, every_runner

_ANSWER_REAL_S = 5.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Running:
    """One task that runs."""

    handle: RunnerHandle
    version: int
    """Of the runner's last report."""
    grace_s: float


async def let_tasks_save(longest_s: float, told: Callable[[int, float], None]) -> None:
    """Asks every task to save and end, and returns when all have ended, or have been killed after their grace (real seconds).

    `longest_s` bounds the grace of all. `told` gets how many run and for how long they are waited for at most, before they are. Cancelled, it waits no longer.
    """
    handles = await asyncio.to_thread(every_runner)
    described = await asyncio.gather(*(_running(handle, longest_s) for handle in handles))
    running = [one for one in described if one is not None]
    if running:
        told(len(running), max(one.grace_s for one in running))
        await asyncio.gather(*map(_stop, running))


async def _running(handle: RunnerHandle, longest_s: float) -> _Running | None:
    with suppress(RunnerLost, TimeoutError):
        async with asyncio.timeout(_ANSWER_REAL_S):
            description = await handle.describe()
        if description.report.state is RunnerState.RUNNING:
            grace_s = min(description.order.specification.stop_grace_s, longest_s)
            return _Running(handle, description.report.version, grace_s)
    return None


async def _stop(one: _Running) -> None:
    """Returns when it has ended, or ought to have."""
    try:
        async with asyncio.timeout(one.grace_s + _ANSWER_REAL_S):
            await one.handle.stop(one.grace_s, StopCause.ASKED)
            version, state = one.version, RunnerState.RUNNING
            while state is not RunnerState.ENDED:
                report = await one.handle.report_after(version)
                version, state = report.version, report.state
    except (RunnerLost, TimeoutError) as error:
        _log.warning("a task did not end in order", runner=one.handle.name, error=str(error))
