"""Opens sessions with tasks, as many at once as an attempt may have."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from domain.identifiers import JobName
from domain.placement import AttemptKey
from domain.workload import Emulated
from services.execution.executor import (
    EMULATED,
    AttemptOrder,
    SessionImpossible,
    SessionTarget,
    TaskReference,
    TooManySessions,
    UnknownTask,
)
from services.execution.runner_pool import RunnerHandle, RunnerLost
from services.execution.session_frames import SessionDoor, SessionPurpose, SessionRefused
from services.execution.session_link import SessionLink

MOST_SESSIONS = 64
"""Of one attempt at once: each holds descriptors and buffers here and on the machine of its task."""

_SHOWN_TASKS = 8
_ANSWER_S = 30.0


class AttemptSessions:
    """Those of all attempts of a cluster."""

    def __init__(self) -> None:
        self._open: Counter[AttemptKey] = Counter()

    @asynccontextmanager
    async def session(
        self, task: TaskReference, machine: str, runner: RunnerHandle | None, purpose: SessionPurpose
    ) -> AsyncIterator[SessionLink]:
        """One that is open; closed at the end. Raises SessionImpossible or TooManySessions."""
        key = task.key
        if self._open[key] >= MOST_SESSIONS:
            raise TooManySessions(key, f"attempt {key.attempt} of {key.workload} has {MOST_SESSIONS} sessions already")
        self._open[key] += 1
        try:
            link = await SessionLink.open(task, await _door(task, machine, runner, purpose))
            try:
                yield link
            finally:
                link.close()
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]


def chosen_task(order: AttemptOrder, target: SessionTarget) -> tuple[TaskReference, str]:
    """The task that is meant, and its machine. Raises UnknownTask, or SessionImpossible where it has no process."""
    key = order.key
    name = target.job or (order.placements[0].job if order.placements else JobName(""))
    job = next((job for job in order.jobs_here() if job.name == name), None)
    if job is None:
        named = ", ".join(sorted(job.name for job in order.jobs_here())) or "none"
        raise UnknownTask(key, f"job {name}", f"the jobs of attempt {key.attempt} of {key.workload} here: {named}")
    tasks = {one.task: one.machine for one in order.placements if one.job == name}
    if target.task not in tasks:
        numbers = ", ".join(map(str, sorted(tasks)[:_SHOWN_TASKS])) + (", ..." if len(tasks) > _SHOWN_TASKS else "")
        raise UnknownTask(key, f"task {target.task}", f"job {name} has here: {numbers}")
    if isinstance(job.entry_point, Emulated):
        raise SessionImpossible(key, EMULATED)
    return TaskReference(key, name, target.task), tasks[target.task]


async def _door(task: TaskReference, machine: str, runner: RunnerHandle | None, purpose: SessionPurpose) -> SessionDoor:
    gone = f"task {task.task} of job {task.job} is gone from machine {machine}"
    if runner is None:
        raise SessionImpossible(task.key, gone)
    try:
        async with asyncio.timeout(_ANSWER_S):
            door = await runner.open_session(purpose)
    except RunnerLost as lost:
        raise SessionImpossible(task.key, f"{gone}: {lost}") from lost
    except TimeoutError:
        raise SessionImpossible(task.key, f"machine {machine} does not answer") from None
    if isinstance(door, SessionRefused):
        raise SessionImpossible(task.key, f"task {task.task} of job {task.job}: {door.sentence}")
    return door
