"""Moves real files: each task in a process of its own, which ends when this one does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

from services.clock import ServiceClock
from services.data_placement.movers.file_process import SILENCE_REAL_S
from services.data_placement.movers.mover import Course
from services.data_placement.movers.orders import MoverOrder, MoverOutcome
from services.tiers.child_process import end_process
from topmast_server.processes import module_command

_BEAT_REAL_S = SILENCE_REAL_S / 5
LONGEST_SILENCE_REAL_S = 60.0
"""A mover that says nothing for so long is ended: it has been stopped, or its machine gives it no time."""
LONGEST_CALL_REAL_S = 900.0
"""One that has been waiting for one call of its storage for so long is ended: the storage hangs."""
_SHORTEST_BEAT_REAL_S = 0.05
_MODULE = "services.data_placement.movers.file_process"
_LONGEST_LINE = 64 * 1024


class FileMover:
    """A `Mover` for regions whose storage has a URL. Rates are of the service's clock, files are copied in real time."""

    def __init__(
        self,
        clock: ServiceClock,
        longest_silence_real_s: float = LONGEST_SILENCE_REAL_S,
        longest_call_real_s: float = LONGEST_CALL_REAL_S,
    ) -> None:
        self._clock = clock
        self._longest_silence_real_s = longest_silence_real_s
        self._longest_call_real_s = longest_call_real_s

    async def carry_out(self, order: MoverOrder, course: Course) -> MoverOutcome:
        process = await asyncio.create_subprocess_exec(
            *module_command(_MODULE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
        )
        try:
            return await self._follow(process, order, course)
        finally:
            # Cancelled, or done: in either case nothing of it goes on.
            await end_process(process)

    async def _follow(self, process: asyncio.subprocess.Process, order: MoverOrder, course: Course) -> MoverOutcome:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise RuntimeError("a mover was started without pipes")
        process.stdin.write(order.as_json().encode() + b"\n")
        errors = asyncio.ensure_future(process.stderr.read())
        beats = asyncio.ensure_future(_beat(process.stdin, course, 1.0 / self._clock.real_seconds(1.0)))
        steps, stepped_real_s = 0, time.monotonic()
        try:
            while True:
                async with asyncio.timeout(self._longest_silence_real_s):
                    line = await process.stdout.readline()
                if not line:
                    break
                message = json.loads(line)
                if "alive" in message:
                    if message["alive"] != steps:
                        steps, stepped_real_s = message["alive"], time.monotonic()
                    elif time.monotonic() - stepped_real_s > self._longest_call_real_s:
                        return MoverOutcome(
                            f"the storage did not answer for {self._longest_call_real_s:g} s; the mover was ended"
                        )
                    continue
                if "copied" in message:
                    course.copied_bytes = message["copied"]
                elif "failed" in message:
                    return MoverOutcome(message["failed"])
                else:
                    return MoverOutcome(remark=message["remark"])
            status = await process.wait()
            said = (await errors).decode(errors="replace").strip().splitlines()
            return MoverOutcome(f"the mover ended with status {status}" + (f": {said[-1]}" if said else ""))
        except TimeoutError:
            return MoverOutcome(f"the mover said nothing for {self._longest_silence_real_s:g} s; it was ended")
        finally:
            beats.cancel()
            errors.cancel()
            await asyncio.gather(beats, errors, return_exceptions=True)


async def _beat(stdin: asyncio.StreamWriter, course: Course, speed: float) -> None:
    """Says again and again how fast it may go, and until when it may change anything: as long as that comes, somebody is
    in charge."""
    changed = asyncio.Event()
    course.on_change(changed.set)
    while True:
        changed.clear()
        until_real_s = course.certain_until_real_s()
        beat = {"rates": [rate * speed for rate in course.rates], "certain_until": until_real_s}
        stdin.write(json.dumps(beat).encode() + b"\n")
        try:
            await stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            return  # it has ended; what it said last is on its output
        # In time before what was said last is over.
        next_real_s = min(_BEAT_REAL_S, max(_SHORTEST_BEAT_REAL_S, (until_real_s - time.monotonic()) / 3))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(next_real_s):
                await changed.wait()
