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
from services.global_scheduler.workload_look import Seen, WorkloadLook, rows_of
from services.grpc_errors import Unavailable

_log = structlog.get_logger(__name__)

WORKLOADS_AT_ONCE = 250
"""In a batch, at most."""

_ROWS_AT_ONCE = 20_000
"""Of tables, for a batch, as far as is known before it is taken; but of a workload all."""

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
        self._later_first = False
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
        taken = _Taken()
        self._later_first = not self._later_first
        if self._later_first:
            taken.fill(self._later, 1 / _PART_OF_LATER)
            taken.fill(self._soon, 1.0)
            taken.fill(self._later, 1.0)
        else:  # what is too much for any batch comes first in every second one: here it leaves the others their part
            taken.fill(self._soon, 1 - 1 / _PART_OF_LATER)
            taken.fill(self._later, 1.0)
            taken.fill(self._soon, 1.0)
        return taken.batch

    async def _take(self, batch: _Batch) -> None:
        """Answers all of the batch. What is wrong with one of them alone is told to that one alone."""
        if not batch:
            return
        try:
            seen = await self._load(batch)
        except DatabaseUnavailable as error:
            _fail(batch, error)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is told to whom it concerns
            if len(batch) == 1:
                _fail(batch, error)
                return
            _log.warning("workloads cannot be looked at together", workloads=len(batch), error=str(error))
            each, middle = list(batch.items()), len(batch) // 2
            await self._take(dict(each[:middle]))
            await self._take(dict(each[middle:]))
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


class _Taken:
    """What is in a batch so far."""

    def __init__(self) -> None:
        self.batch: _Batch = {}
        self._rows = 0

    def fill(self, queue: _Batch, part: float) -> None:
        """Up to that part of a batch, with those who have waited longest; what is too much for any is in one that is empty."""
        while queue and len(self.batch) < int(WORKLOADS_AT_ONCE * part):
            workload, asked = next(iter(queue.items()))
            rows = rows_of(asked.before)
            if self.batch and self._rows + rows > _ROWS_AT_ONCE * part:
                return
            del queue[workload]
            if asked.wanted:
                self.batch[workload] = asked
                self._rows += rows


def _fail(batch: _Batch, error: Exception) -> None:
    for asked in batch.values():
        asked.fail(error)


def _stops() -> Unavailable:
    return Unavailable("this global scheduler stops; try again")
