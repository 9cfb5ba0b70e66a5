"""The user wants a workload no more: cancelled at once while it is queued, stopped by its region while it is live."""

from __future__ import annotations

from sqlalchemy import select

from domain.identifiers import WorkloadId
from domain.life_cycle import ENDED, Happening, State, next_state
from services.database import event_store, workload_store
from services.database.connection import AnyConnection
from services.database.core_statements import execute
from services.database.event_store import EventFilter
from services.database.tables.workloads import WORKLOADS
from services.grpc_errors import NotFound

_EVENTS_IN_HISTORY = 20


async def cancel_workload(connection: AnyConnection, workload: WorkloadId, reason: str, now: float) -> State:
    """Its state from now on: CANCELLED, or what it is in while it is being stopped.

    Raises NotFound, and TransitionRefused with its history when it has ended already.
    """
    cursor = await execute(connection, select(WORKLOADS.c.state).where(WORKLOADS.c.workload == workload))
    row = await cursor.fetchone()
    if row is None:
        raise NotFound("workload", workload)
    before = State(row[0])
    after = before if before in ENDED else await workload_store.cancel(connection, workload, reason, now)
    if after is None:
        raise NotFound("workload", workload)
    if before in ENDED or after in {State.COMPLETED, State.FAILED}:
        next_state(workload, after, Happening.CANCELLED, await _history(connection, workload))
    return after


async def _history(connection: AnyConnection, workload: WorkloadId) -> tuple[str, ...]:
    """What happened to it, oldest first; only the first events when there are many."""
    page = await event_store.read(connection, 0, _EVENTS_IN_HISTORY, EventFilter(workload))
    history = tuple(f"{stored.event.event} at {stored.event.t:.3f}" for stored in page.events)
    return history if page.complete else (*history, "and more")
