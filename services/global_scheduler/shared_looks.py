"""Looks at workloads, shared: whoever needs one at about the same time has it from one snapshot, with one set of queries for all.

One batch is taken after the other; whoever comes meanwhile is in the next. A batch is bounded, and a part of each belongs to those who
wait for their first message or for news, another to those who look again because it is time: neither waits behind all of the others.
What is seen depends on the workload alone. Who may see it is decided before anybody asks here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import Context

import structlog

from domain.identifiers import WorkloadId
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.global_scheduler.workload_look import Seen, WorkloadLook, tasks_seen
from services.grpc_errors import Unavailable

_log = structlog.get_logger(__name__)

WORKLOADS_AT_ONCE = 250
"""In a batch, at most."""

_TASKS_AT_ONCE = 20_000
"""Of the workloads of a batch, as far as is known before it is taken; but of a workload all."""

_PART_OF_LATER = 4
"""One in so many of a batch are theirs whom it is time to look again for, however many others wait."""

_ANSWERED_AT_ONCE = 25
"""Whoever is answered makes a message: others have their turn in between."""


class _Asked:
    """A workload that somebody wants to look at."""

    __slots__ = ("before", "since_real_s", "waiting")

    def __init__(self, since_real_s: float) -> None:
        self.since_real_s = since_real_s
        self.before: Seen | None = None
        self.waiting: list[asyncio.Future[Seen | None]] = []

    @property
    def wanted(self) -> bool:
        """False: all who asked have gone."""
        return not all(one.done() for one in self.waiting)

    def answer(self, seen: Seen | None) -> None:
        for one in self.waiting:
            if not one.done():
                one.set_result(seen)

    def fail(self, error: Exception) -> None:
        for one in self.waiting:
            if not one.done():
                one.set_exception(error)


_Batch = dict[WorkloadId, _Asked]


class SharedLooks:
    """Takes looks for all who ask."""

    def __init__(self, database: Database, look: WorkloadLook, patience_real_s: float) -> None:
        """`patience_real_s`: for how long who asks waits for a database that has just been lost."""
        self._database = database
        self._look = look
        self._patience_real_s = patience_real_s
        self._soon: _Batch = {}
        self._later: _Batch = {}
        self._taking: asyncio.Task[None] | None = None

    async def take(self, workload: WorkloadId, before: Seen | None, *, soon: bool) -> Seen | None:
        """What there is to see of a workload, or array, in a snapshot that begins after this is called; None: there is none of that name.

        `before`: what the caller saw last. `soon`: something happened, or nothing was seen yet. Raises DatabaseUnavailable.
        """
        loop = asyncio.get_running_loop()
        asked = self._asked(workload, loop.time(), soon=soon)
        asked.before = before or asked.before
        answer: asyncio.Future[Seen | None] = loop.create_future()
        asked.waiting.append(answer)
        if self._taking is None:
            # In a context of its own: it works for all, and in nobody's name.
            self._taking = loop.create_task(self._take_all(), name="shared-looks", context=Context())
        return await answer

    def _asked(self, workload: WorkloadId, now_real_s: float, *, soon: bool) -> _Asked:
        """Where others wait for the same, with them; in the better of the two queues."""
        waiting = self._soon.get(workload)
        if waiting is not None:
            return waiting
        waiting = self._later.pop(workload, None) if soon else self._later.get(workload)
        return (self._soon if soon else self._later).setdefault(
            workload, _Asked(now_real_s) if waiting is None else waiting
        )

    async def _take_all(self) -> None:
        """Until nobody waits."""
        try:
            while self._soon or self._later:
                await asyncio.sleep(0)  # whoever asks in the same turn of the loop comes along
                await self._take(self._next_batch())
        finally:
            self._taking = None
            for queue in (self._soon, self._later):  # some are left when this process ends
                _fail(queue, _stops())
                queue.clear()

    def _next_batch(self) -> _Batch:
        batch: _Batch = {}
        room = _Room(WORKLOADS_AT_ONCE // _PART_OF_LATER, _TASKS_AT_ONCE // _PART_OF_LATER)
        room.fill(batch, self._later)
        room = _Room(WORKLOADS_AT_ONCE - len(batch), _TASKS_AT_ONCE - room.used_tasks)
        room.fill(batch, self._soon)
        room.fill(batch, self._later)
        return batch

    async def _take(self, batch: _Batch) -> None:
        """Answers all of the batch. What is wrong with one of them alone is told to that one alone."""
        if not batch:
            return
        try:
            seen = await self._load(batch)
        except DatabaseUnavailable as error:
            _fail(batch, error)
        except Exception as error:  # noqa: BLE001 -- whatever it is, each of them is told what it asked for
            if len(batch) == 1:
                _fail(batch, error)
                return
            _log.warning("workloads are looked at one by one", workloads=len(batch), error=str(error))
            for workload, asked in batch.items():
                await self._take({workload: asked})
        else:
            for place, (workload, asked) in enumerate(batch.items(), 1):
                asked.answer(seen.get(workload))
                if place % _ANSWERED_AT_ONCE == 0:
                    await asyncio.sleep(0)
        finally:
            _fail(batch, _stops())  # only those not answered yet

    async def _load(self, batch: _Batch) -> Mapping[WorkloadId, Seen]:
        before = {workload: asked.before for workload, asked in batch.items() if asked.before is not None}

        async def load(connection: AnyConnection) -> Mapping[WorkloadId, Seen]:
            return await self._look.load(connection, batch.keys(), before)

        # Who has waited through a batch that found no database does not wait for it as long again.
        waited_real_s = asyncio.get_running_loop().time() - min(asked.since_real_s for asked in batch.values())
        patience_real_s = max(0.0, self._patience_real_s - waited_real_s)
        return await self._database.run(load, snapshot=True, give_up_after_s=patience_real_s)


class _Room:
    """What a batch has room for."""

    def __init__(self, workloads: int, tasks: int) -> None:
        self._workloads = workloads
        self._tasks = tasks
        self.used_tasks = 0

    def fill(self, batch: _Batch, queue: _Batch) -> None:
        """With those that have waited longest; what alone is too much is alone."""
        while queue and self._workloads > 0:
            workload, asked = next(iter(queue.items()))
            tasks = tasks_seen(asked.before)
            if batch and self.used_tasks + tasks > self._tasks:
                return
            del queue[workload]
            if asked.wanted:
                batch[workload] = asked
                self._workloads -= 1
                self.used_tasks += tasks


def _fail(batch: _Batch, error: Exception) -> None:
    for asked in batch.values():
        asked.fail(error)


def _stops() -> Unavailable:
    return Unavailable("this global scheduler stops; try again")
