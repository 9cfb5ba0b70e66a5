"""Ends tasks that use more memory than they have asked for, before the machine and what schedules them suffer.

The runners of a machine share the work: one of them looks at all tasks, so that the processes of the machine are read once for
all of them, and not once for each. What it ends, it tells the runner of that task, which reports it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from domain.placement import TaskPlacement
from domain.resources import TaskResources
from services.execution import memory_rules
from services.execution.control_group import ControlGroup
from services.execution.memory_rules import TaskMemory
from services.execution.process_memory import (
    MEMORY_OF_MACHINE,
    PROCESSES,
    ProcessTree,
    available_bytes,
    exact_bytes,
    kernel_kills,
    most_bytes,
    started_ticks,
)
from services.execution.watched_tasks import WatchedTask, WatchedTasks

LOOK_EVERY_S = 1.0
RESERVE_BYTES = 2**29

_LOOKS_ABOVE = 2
"""So many looks in a row find a task above its limit before it is ended: memory that is freed at once hurts nobody."""

_ENDING_S = 10.0
"""So long what is being ended for the machine's sake is waited for before another task is."""

_KILLED = -signal.SIGKILL
_KILLED_AS_SHELLS_HAVE_IT = 128 + signal.SIGKILL

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """`enforced`: tasks are kept to what they have asked for; `reserve_bytes`: what the machine keeps, 0 for nothing. Real seconds."""

    enforced: bool = True
    look_every_s: float = LOOK_EVERY_S
    reserve_bytes: int = RESERVE_BYTES
    machine: Path = MEMORY_OF_MACHINE
    """Where the kernel says what the machine has left."""

    @property
    def watches(self) -> bool:
        return (self.enforced or self.reserve_bytes > 0) and PROCESSES.is_dir()


@dataclass(frozen=True, slots=True)
class MemoryEnd:
    """What memory had to do with the end of a task."""

    out_of_memory: str = ""
    """Known: it ended for that."""
    maybe: str = ""


class MemoryWatch:
    """One task's part in the watch of its machine, from its start to its end. Without a watch it is only looked for what the kernel
    has killed."""

    def __init__(self, home: Path, settings: MemorySettings, name: str, resources: TaskResources, log: Path) -> None:
        self._settings = settings
        self._name = name
        self._resources = resources
        self._log = log
        self._tasks = WatchedTasks(home)
        self._task: WatchedTask | None = None
        """As it is entered; None before it is started."""
        self._limit_bytes: int | None = None
        self._beside: dict[int, int] = {}
        """The reapers of commands beside it, and when each began."""
        self._kills_before = kernel_kills()
        self._above: dict[int, int] = {}
        """How many looks in a row have found the task of that reaper above its limit."""
        self._watching: asyncio.Task[None] | None = None

    def limit_bytes(self, placement: TaskPlacement) -> int | None:
        """What the task may use with that placement; None: as much as there is. Never less than with those before: memory that it was
        given and has filled cannot be taken back from it."""
        limit = memory_rules.asked_limit_bytes(self._resources, placement) if self._settings.enforced else None
        if limit is not None:
            self._limit_bytes = max(limit, self._limit_bytes or 0)
        return self._limit_bytes

    def begin(self, reaper_id: int, process_id: int, placement: TaskPlacement, group: ControlGroup | None) -> None:
        """It has been started, with this reaper and this main process."""
        ticks = started_ticks(reaper_id) or 0
        self._task = WatchedTask(self._name, reaper_id, ticks, process_id, time.time(), None, 0)
        self.limit(placement, group)

    def count_beside(self, reaper_id: int) -> None:
        """What that reaper starts uses the task's memory, too, from the next `limit` on."""
        self._beside = {one: ticks for one, ticks in self._beside.items() if started_ticks(one) == ticks}
        ticks = started_ticks(reaper_id)
        if ticks is not None:
            self._beside[reaper_id] = ticks

    def limit(self, placement: TaskPlacement, group: ControlGroup | None) -> None:
        """It goes by that placement from now on."""
        if self._task is None or not self._settings.watches:
            return
        self._task = replace(
            self._task,
            limit_bytes=self.limit_bytes(placement),
            promised_bytes=memory_rules.promised_bytes(self._resources, placement),
            group=str(group.folder) if group is not None and group.limited else "",
            beside=sorted(self._beside.items()),
        )
        try:
            self._tasks.enter(self._task)
        except OSError as error:
            _log.warning("the memory of a task is not watched", task=self._name, error=str(error))
            return
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    async def end(self, exit_code: int | None, group: ControlGroup | None) -> MemoryEnd:
        """Ends the watch; says whether the task ended for lack of memory."""
        if self._watching is not None:
            self._watching.cancel()
            # A look that is under way in its thread ends by itself.
            await asyncio.wait({self._watching})
        return await asyncio.to_thread(self._end, exit_code, group)

    def _end(self, exit_code: int | None, group: ControlGroup | None) -> MemoryEnd:
        why = self._leave()
        if not exit_code:
            return MemoryEnd()
        if not why and group is not None and self._limit_bytes is not None and group.kernel_kills() > 0:
            why = memory_rules.ended_by_kernel(self._limit_bytes, had_commands=bool(self._beside))
        if why:
            # Where the task's own output ends.
            with suppress(OSError), self._log.open("a", encoding="utf-8") as log:
                log.write(f"topmast: {why}\n")
            return MemoryEnd(why)
        killed = kernel_kills() - self._kills_before
        if killed > 0 and exit_code in {_KILLED, _KILLED_AS_SHELLS_HAVE_IT}:
            return MemoryEnd(maybe=memory_rules.killed_meanwhile(killed))
        return MemoryEnd()

    def _leave(self) -> str:
        if self._task is None:
            return ""
        try:
            return self._tasks.leave(self._task.reaper_id)
        except OSError as error:
            _log.warning("why a task was ended cannot be read", task=self._name, error=str(error))
            return ""

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._settings.look_every_s)
            try:
                if self._tasks.lead():
                    await asyncio.to_thread(self._look)
            except (OSError, ValueError, TypeError) as error:
                # A file of another version perhaps, or no room on the disk: the next look may succeed.
                _log.warning("the memory of tasks cannot be looked at", error=str(error))

    def _look(self) -> None:
        # 1. Which tasks there are, and their processes.
        tree = ProcessTree.now()
        going: list[WatchedTask] = []
        ending_s: list[float] = []
        for task in self._tasks.entries():
            ending_for_s = self._tasks.ending_for_s(task.reaper_id)
            if tree.started_ticks.get(task.reaper_id) != task.reaper_ticks:
                self._forget_if_gone(task, ending_for_s)
            elif ending_for_s is None:
                going.append(task)
            else:
                ending_s.append(ending_for_s)
        # 2. The machine: one task at a time goes for it.
        left = available_bytes(self._settings.machine) if self._settings.reserve_bytes else None
        if left is not None and left < self._settings.reserve_bytes and min(ending_s, default=_ENDING_S) >= _ENDING_S:
            self._keep_reserve(going, tree, left)
        # 3. Each task's own limit.
        above = {task.reaper_id: self._above.get(task.reaper_id, 0) + 1 for task in going if self._is_above(task, tree)}
        self._above = above

    def _keep_reserve(self, tasks: list[WatchedTask], tree: ProcessTree, left: int) -> None:
        used = {task.name: _memory_of(task, tree) for task in tasks}
        chosen = memory_rules.chosen_to_end(list(used.values()), left, self._settings.reserve_bytes)
        if chosen is None:
            return
        task = next(task for task in tasks if task.name == chosen.name)
        self._end_task(task, tree, memory_rules.ended_for_machine(chosen, left, self._settings.reserve_bytes))

    def _is_above(self, task: WatchedTask, tree: ProcessTree) -> bool:
        """Whether it is above its limit, and ends it when it has been for a moment."""
        limit = task.limit_bytes
        if limit is None:
            return False
        if task.group:
            # The kernel sees to that; of several processes it may have killed only one.
            if ControlGroup(Path(task.group)).kernel_kills() > 0:
                self._end_task(task, tree, memory_rules.ended_by_kernel(limit, had_commands=bool(task.beside)))
            return False
        if most_bytes([*tree.below(task.reaper_id), *_beside(task, tree)]) <= limit:
            return False
        memory = _memory_of(task, tree)
        if memory.used_bytes <= limit:
            return False
        if self._above.get(task.reaper_id, 0) + 1 >= _LOOKS_ABOVE:
            sentence = memory_rules.above_its_limit(memory.used_bytes, limit, memory.beside_bytes)
            self._end_task(task, tree, sentence)
        return True

    def _end_task(self, task: WatchedTask, tree: ProcessTree, sentence: str) -> None:
        """Its main process and what is in its group; its reaper ends the rest. Commands beside it do not outlive it, however long
        its last files take."""
        if self._tasks.why(task.reaper_id) or started_ticks(task.reaper_id) != task.reaper_ticks:
            return
        self._tasks.say_why(task.reaper_id, sentence)
        _log.warning("a task is ended", task=task.name, reason=sentence)
        try:
            os.killpg(task.process_id, signal.SIGKILL)
        except (ProcessLookupError, PermissionError) as error:
            _log.warning("a task cannot be ended", task=task.name, error=str(error))
        for process_id in _beside(task, tree):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process_id, signal.SIGKILL)

    def _forget_if_gone(self, task: WatchedTask, ending_for_s: float | None) -> None:
        """Of one that has been ended its runner reads why; one that nobody asks for any more has lost its runner too."""
        if started_ticks(task.reaper_id) != task.reaper_ticks and (ending_for_s is None or ending_for_s > _ENDING_S):
            self._tasks.remove(task.reaper_id)


def _memory_of(task: WatchedTask, tree: ProcessTree) -> TaskMemory:
    """All that counts as the task's."""
    beside_bytes = exact_bytes(_beside(task, tree))
    used_bytes = exact_bytes(tree.below(task.reaper_id)) + beside_bytes
    return TaskMemory(task.name, used_bytes, task.promised_bytes, task.started_real_s, beside_bytes)


def _beside(task: WatchedTask, tree: ProcessTree) -> list[int]:
    """The processes of commands beside it."""
    going = (reaper_id for reaper_id, ticks in task.beside if tree.started_ticks.get(reaper_id) == ticks)
    return [process_id for reaper_id in going for process_id in tree.below(reaper_id)]
