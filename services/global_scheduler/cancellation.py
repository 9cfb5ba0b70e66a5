"""The user wants a workload no more: cancelled at once while it is queued, stopped by its region while it is live."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sqlalchemy import select

from domain.clock import utc_time
from domain.identifiers import WorkloadId
from domain.life_cycle import ENDED, LIVE, QUEUED, Happening, State, next_state
from services.database import array_store, cancellation_store, event_store, user_request_store
from services.database.connection import AnyConnection
from services.database.core_statements import execute
from services.database.event_store import EventFilter
from services.database.tables.workloads import WORKLOADS
from services.grpc_errors import NotFound, PreconditionFailed

_EVENTS_IN_HISTORY = 20
_AT_ONCE = 1_000


async def cancel_workload(connection: AnyConnection, workload: WorkloadId, reason: str, now: float) -> State:
    """Its state from now on: CANCELLED, or what it is in while it is being stopped.

    Raises NotFound, and TransitionRefused with its history when it has ended already.
    """
    cursor = await execute(connection, select(WORKLOADS.c.state).where(WORKLOADS.c.workload == workload))
    row = await cursor.fetchone()
    if row is None:
        raise NotFound("workload", workload)
    before = State(row[0])
    after = before if before in ENDED else await cancellation_store.cancel(connection, workload, reason, now)
    if after is None:
        raise NotFound("workload", workload)
    if before in ENDED or after in {State.COMPLETED, State.FAILED}:
        next_state(workload, after, Happening.CANCELLED, await _history(connection, workload))
    return after


async def cancel_workload_or_array(connection: AnyConnection, workload: WorkloadId, reason: str, now: float) -> State:
    """The same; of an array all elements that have not ended, and its state is theirs."""
    elements = (await array_store.unended_elements(connection, [workload])).get(workload)
    if elements is None:
        return await cancel_workload(connection, workload, reason, now)
    return await cancel_elements(connection, workload, elements, reason, now)


async def cancel_elements(
    connection: AnyConnection, array: WorkloadId, elements: Sequence[WorkloadId], reason: str, now: float
) -> State:
    """Those of an array that have not ended: CANCELLED, or what those are in that are being stopped.

    Raises PreconditionFailed when all of the array has ended already.
    """
    if not elements:
        counts = await array_store.counts_of(connection, [array])
        raise PreconditionFailed(
            "WORKLOAD_STATE", array, f"array {array} has ended, {counts[array].state}: there is nothing to cancel"
        )
    found = await user_request_store.lock(connection, elements)
    queued = [one for one in found.values() if one.today.state in QUEUED]
    live = [one for one in found.values() if one.today.state in LIVE]
    for first in range(0, len(queued), _AT_ONCE):
        some = {one.today.workload: one.tenant for one in queued[first : first + _AT_ONCE]}
        await cancellation_store.cancel_queued(connection, some, reason, now)
        # Large arrays take a while: everything else in this process goes on meanwhile.
        await asyncio.sleep(0)
    await cancellation_store.ask_to_cancel(connection, [one.today.workload for one in live], reason)
    return live[0].today.state if live else State.CANCELLED


async def _history(connection: AnyConnection, workload: WorkloadId) -> tuple[str, ...]:
    """What happened to it, oldest first; only the first events when there are many."""
    page = await event_store.read(connection, 0, _EVENTS_IN_HISTORY, EventFilter(workload))
    history = tuple(f"{stored.event.event} at {utc_time(stored.event.t)}" for stored in page.events)
    return history if page.complete else (*history, "and more")
