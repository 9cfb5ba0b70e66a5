"""What is cancelled: at once where it waits, by its region where it is live. Inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domain.identifiers import TenantId, WorkloadId
from domain.life_cycle import ENDED, LIVE, QUEUED, State
from services.database import dependency_store
from services.database.channels import REGION_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.errors import RepeatTransaction


async def cancel(connection: AnyConnection, workload: WorkloadId, reason: str, now: float) -> State | None:
    """Cancels a queued workload at once, has a live one stopped, leaves an ended one as it is.

    Returns its state from now on (that of a live one does not change yet); None when there is no such workload.
    Raises RepeatTransaction when it moves between queue and machines at this moment; Database.run does it again.
    """
    # The queue entry first, as a dispatch does: the two never block each other for good.
    cursor = await connection.execute("DELETE FROM queue_entries WHERE workload = %s RETURNING tenant", (workload,))
    queued = await cursor.fetchone()
    if queued is None:
        # What is held, or awaits its turn in an array, waits without an entry.
        cursor = await connection.execute(
            """SELECT tenant FROM workloads WHERE workload = %s AND (held_by IS NOT NULL OR awaits_turn) AND state = ANY(%s)
                  FOR NO KEY UPDATE""",
            (workload, sorted(QUEUED)),
        )
        queued = await cursor.fetchone()
    if queued is not None:
        await cancel_queued(connection, {workload: TenantId(queued[0])}, reason, now)
        return State.CANCELLED
    cursor = await connection.execute(
        """UPDATE workloads SET cancel_requested = true, reason = CASE WHEN cancel_requested THEN reason ELSE %s END
            WHERE workload = %s AND state = ANY(%s) RETURNING state""",
        (reason, workload, sorted(LIVE)),
    )
    live = await cursor.fetchone()
    if live is not None:
        wake_after_commit(connection, REGION_CHANNEL)
        return State(live[0])
    cursor = await connection.execute("SELECT state FROM workloads WHERE workload = %s", (workload,))
    row = await cursor.fetchone()
    if row is None:
        return None
    if State(row[0]) not in ENDED:
        raise RepeatTransaction(f"workload {workload} has just returned to the queue")
    return State(row[0])


async def cancel_queued(
    connection: AnyConnection, queued: Mapping[WorkloadId, TenantId], reason: str, now: float
) -> None:
    """Those of these tenants, locked before, are cancelled at once, in the queue or outside."""
    names = list(queued)
    if not names:
        return
    await connection.execute("DELETE FROM queue_entries WHERE workload = ANY(%s)", (names,))
    await dependency_store.end_cancelled(
        connection, [(workload, tenant, reason) for workload, tenant in queued.items()], now
    )


async def ask_to_cancel(connection: AnyConnection, live: Sequence[WorkloadId], reason: str) -> None:
    """The regions in which they are live stop them; who asked first is right about the reason."""
    if live:
        await connection.execute(
            """UPDATE workloads SET cancel_requested = true, reason = CASE WHEN cancel_requested THEN reason ELSE %s END
                WHERE workload = ANY(%s) AND state = ANY(%s)""",
            (reason, list(live), sorted(LIVE)),
        )
        wake_after_commit(connection, REGION_CHANNEL)
