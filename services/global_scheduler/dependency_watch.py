"""Workloads that wait for others are released, or cancelled, as soon as these end: a follower of the event log.

Nothing is missed, and who records an end does nothing for it:

1. An end is in the log by the transaction that made it true. Each is looked at, and the workloads that wait for it.
2. What is submitted waits by a row of the transaction that says `held` in the log. Each is looked at then, since that for which it
   waits may have ended while it was being stored.
3. Who begins to follow, after a crash too, looks at all that wait first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial

import structlog

from domain.clock import Clock
from domain.events import Event, EventKind
from domain.life_cycle import QUEUED
from domain.workload import WorkloadSpecification
from global_scheduler.dependencies import Settlement, settle
from services.database import dependency_store, event_store, lease_store, user_request_store
from services.database.connection import AnyConnection
from services.database.dependency_store import HELD_BY_DEPENDENCIES
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.event_follower import follow
from services.database.event_store import EventFilter
from services.database.lease_store import Lease, LeaseLost
from services.database.requeue_store import requeued_entry
from services.database.user_request_store import LockedWorkload
from services.wire.workloads import specification_from_proto
from topmast.v1 import workload_pb2

_WANTED = EventFilter(kinds=(EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELLED, EventKind.HELD))
_RETRY_REAL_S = 1.0
_AT_ONCE = 500
"""Workloads that change in one transaction."""

_log = structlog.get_logger(__name__)


class DependencyWatch:
    """Settles what workloads wait for. `run` until cancelled."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def run(self, lease: Lease) -> None:
        """What it writes counts only while the lease is ours."""
        while True:
            try:
                start = await self._database.run(event_store.newest_sequence)
                await self._settle(lease, None)
                async with aclosing(follow(self._database, start, _WANTED)) as pages:
                    async for page in pages:
                        await self._settle(lease, sorted({str(stored.event.workload) for stored in page.events}))
            except (LeaseLost, DatabaseUnavailable) as error:
                _log.warning("dependencies are not settled at the moment", error=str(error))
                await asyncio.sleep(_RETRY_REAL_S)

    async def _settle(self, lease: Lease, names: Sequence[str] | None) -> None:
        """What has been decided by the ends of these, or of what they wait for; None: by whatever end."""
        settlement = await self._database.run(partial(_decide, names=names), snapshot=True)
        met, impossible, released = settlement.met, settlement.impossible, settlement.released
        for start in range(0, len(met), _AT_ONCE):
            await self._write(lease, Settlement(met=met[start : start + _AT_ONCE]))
        # In their order: after a crash in between, the next look goes on behind those that have ended.
        for start in range(0, len(impossible), _AT_ONCE):
            await self._write(lease, Settlement(impossible=impossible[start : start + _AT_ONCE]))
        for start in range(0, len(released), _AT_ONCE):
            await self._write(lease, Settlement(released=released[start : start + _AT_ONCE]))

    async def _write(self, lease: Lease, part: Settlement) -> None:
        await self._database.run(partial(_write, lease=lease, part=part, now=self._clock.now()))


async def _decide(connection: AnyConnection, names: Sequence[str] | None) -> Settlement:
    affected = await dependency_store.affected(connection, names)
    if not affected:
        return Settlement()
    waiting = await dependency_store.load_waiting(connection, affected)
    settlement = settle(waiting.waits, waiting.states)
    if settlement.impossible:
        # These end themselves: all that wait for them, however far, are decided on with them.
        further = await dependency_store.below(connection, [workload for workload, _ in settlement.impossible])
        waiting = await dependency_store.load_waiting(connection, sorted({*affected, *further}))
        settlement = settle(waiting.waits, waiting.states)
    return settlement


async def _write(connection: AnyConnection, lease: Lease, part: Settlement, now: float) -> None:
    await lease_store.assert_held(connection, lease)
    if part.met:
        await dependency_store.mark_met(connection, part.met)
    why = dict(part.impossible)
    found = await user_request_store.lock(connection, [*why, *part.released])
    # Its user may have cancelled it meanwhile.
    waiting = {name: one for name, one in found.items() if one.today.waits and one.today.state in QUEUED}
    cancelled = [(name, waiting[name].tenant, why[name]) for name, _ in part.impossible if name in waiting]
    if cancelled:
        await dependency_store.end_cancelled(connection, cancelled, now)
    released = [waiting[name] for name in part.released if name in waiting]
    if released:
        await _release(connection, released, now)


async def _release(connection: AnyConnection, workloads: Sequence[LockedWorkload], now: float) -> None:
    """They enter the queue, unless somebody holds them besides: then they do when they are released."""
    await dependency_store.stop_waiting(connection, [one.today.workload for one in workloads])
    free = [one for one in workloads if not one.today.held]
    names = [one.today.workload for one in free]
    await user_request_store.release(connection, names)
    asked = {one.today.workload: _specification(one) for one in free}
    entries = {name: requeued_entry(asked[name]) for name in names}
    await user_request_store.enter_queue(connection, entries, now)
    events = [
        Event(
            now,
            EventKind.RELEASED,
            one.today.workload,
            tenant=one.tenant,
            details={"by": HELD_BY_DEPENDENCIES, "reason": ", ".join(map(str, asked[one.today.workload].after))},
        )
        for one in free
    ]
    await event_store.append(connection, events)


def _specification(one: LockedWorkload) -> WorkloadSpecification:
    return specification_from_proto(workload_pb2.WorkloadSpecification.FromString(one.specification))
