"""Requests at the times at which they are due, whether or not earlier ones are answered; latency counts from when they were due."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.load.histograms import histogram_of
from topmast.errors import TopmastError


@dataclass(slots=True)
class LoopResult:
    """What one client saw. `due_s` are times of the wall clock at which answered requests were due, by what was answered."""

    encoded: bytes = b""
    refused: Counter[str] = field(default_factory=Counter)
    due_s: dict[str, float] = field(default_factory=dict)
    last_answer_s: float = 0.0


async def run_open_loop(due_s: Sequence[float], begin_s: float, request: Callable[[int], Awaitable[str]]) -> LoopResult:
    """Sends a request at each of `due_s` (seconds after `begin_s` of the wall clock), and waits for all answers at the end.

    A request that is sent late, for this process was busy, has waited since it was due. A refused one counts in `refused`
    by its class and in no latency.
    """
    # One reading of each clock: between the two a correction of the wall clock would count as latency.
    origin = time.monotonic() + (begin_s - time.time())
    result, latencies_s = LoopResult(), []

    async def one(number: int, due: float) -> None:
        try:
            answer = await request(number)
        except TopmastError as refusal:
            result.refused[type(refusal).__name__] += 1
            return
        latencies_s.append(time.monotonic() - origin - due)
        result.due_s[answer] = begin_s + due
        result.last_answer_s = max(result.last_answer_s, time.monotonic() - origin)

    async with asyncio.TaskGroup() as group:
        for number, due in enumerate(due_s):
            await asyncio.sleep(max(0.0, origin + due - time.monotonic()))
            group.create_task(one(number, due))
    result.encoded = histogram_of(latencies_s).encode()
    return result
