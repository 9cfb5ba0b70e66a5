"""Event loops of several processes on one virtual clock: whose turn it is, and what time it is, is decided by a seed.

Each process has a loop of its own (and one for each of its threads), so that it can be halted while the others go on. The loops are
asyncio's own, with another clock and nothing to wait for outside: coroutines run on them as they are.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

NEVER_S = float("inf")


class Moment(StrEnum):
    """When it matters most that a process is interrupted: halted, or killed."""

    BEFORE_TRANSACTION = "before a transaction"
    AFTER_TRANSACTION = "after a transaction"
    CALL = "with a call on its way"


class SimulatedLoop(asyncio.BaseEventLoop):
    """One thread of one process."""

    def __init__(self, world: SimulatedWorld, process: object) -> None:
        super().__init__()
        self.world = world
        self.process = process
        self.halted_until_s = 0.0
        self._selector = _NothingOutside()
        self.set_exception_handler(world.take_exception)

    def time(self) -> float:
        return self.world.now_s

    def run_in_executor(self, _executor: object, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # with fewer types
        """What another thread would do is done in a later turn of this loop."""
        done = self.create_future()
        self.call_soon(_do, done, function, arguments)
        return done

    def next_s(self) -> float:
        """When it has something to do."""
        if self._ready:  # type: ignore[attr-defined]  # asyncio's own
            due_s = 0.0
        else:
            scheduled = self._scheduled  # type: ignore[attr-defined]  # asyncio's own
            while scheduled and scheduled[0]._cancelled:
                scheduled[0]._scheduled = False
                heapq.heappop(scheduled)
                self._timer_cancelled_count -= 1  # type: ignore[attr-defined]  # asyncio's own
            due_s = scheduled[0]._when if scheduled else NEVER_S
        return max(due_s, self.halted_until_s)

    def turn(self) -> None:
        """One turn: whatever is ready runs until it waits."""
        events._set_running_loop(self)
        try:
            self._run_once()  # type: ignore[attr-defined]  # asyncio's own
        finally:
            events._set_running_loop(None)

    def _process_events(self, event_list: object) -> None:
        """Nothing comes from outside."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""


def _do(done: asyncio.Future[Any], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        result = function(*arguments)
    except Exception as error:  # noqa: BLE001 -- whoever waits for it gets it
        if not done.done():
            done.set_exception(error)
    else:
        if not done.done():
            done.set_result(result)


class _NothingOutside:
    def select(self, _timeout: float | None) -> list[object]:
        return []


@dataclass(eq=False)
class SimulatedProcess:
    """One run of a process: its loops are halted and killed together."""

    world: SimulatedWorld
    name: str
    loops: list[SimulatedLoop] = field(default_factory=list)

    def __str__(self) -> str:
        return self.name

    def start_loop(self, work: Coroutine[Any, Any, Any]) -> tuple[SimulatedLoop, asyncio.Task[Any]]:
        """A thread of the process, which does this."""
        loop, task = self.world.start(self, work)
        self.loops.append(loop)
        return loop, task

    def end_loop(self, loop: SimulatedLoop) -> None:
        """One of its threads is over."""
        self.loops.remove(loop)
        self.world.kill([loop])

    def halt(self, until_s: float) -> None:
        """No thread of it makes a turn until then."""
        for loop in self.loops:
            loop.halted_until_s = max(loop.halted_until_s, until_s)


@dataclass
class SimulatedWorld:
    """The clock and all loops. The same seed gives the same turns."""

    rng: np.random.Generator
    now_s: float = 1_000.0
    loops: list[SimulatedLoop] = field(default_factory=list)
    dead: list[SimulatedLoop] = field(default_factory=list)
    broke: list[BaseException | str] = field(default_factory=list)
    turns: int = 0

    def start(self, process: object, work: Coroutine[Any, Any, Any]) -> tuple[SimulatedLoop, asyncio.Task[Any]]:
        """A loop for the process, which does this."""
        loop = SimulatedLoop(self, process)
        self.loops.append(loop)
        return loop, loop.create_task(work)

    def kill(self, loops: list[SimulatedLoop]) -> None:
        """They make no turn any more: nothing of what they were about to tidy up is tidied up."""
        self.loops = [loop for loop in self.loops if loop not in loops]
        self.dead += loops

    def tidy(self) -> None:
        """After the last look: ends all coroutines, those of the dead too, so that none complains later."""
        for loop in [*self.dead, *self.loops]:
            while tasks := asyncio.all_tasks(loop):
                for task in tasks:
                    task.cancel()
                while loop._ready:  # type: ignore[attr-defined]  # asyncio's own
                    loop.turn()
                loop._scheduled.clear()  # type: ignore[attr-defined]  # asyncio's own
            loop.close()

    def take_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if loop in self.dead:
            return  # of what was killed nothing is tidied up
        self.broke.append(context.get("exception") or f"{context.get('message')} {context.get('task', '')}")

    def run(self, until_s: float, after_turn: Callable[[], None]) -> None:
        """Makes turns until that moment; `after_turn` looks at what is true in between."""
        while True:
            times = [loop.next_s() for loop in self.loops]
            first_s = min(times, default=NEVER_S)
            if first_s > until_s:
                self.now_s = max(self.now_s, until_s)
                return
            self.now_s = max(self.now_s, first_s)
            due = [loop for loop, time_s in zip(self.loops, times, strict=True) if time_s <= self.now_s]
            due[int(self.rng.integers(len(due)))].turn()
            self.turns += 1
            after_turn()
