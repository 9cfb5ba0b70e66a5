"""A machine comes, goes, or is drained: recorded with its event in the caller's transaction."""

from __future__ import annotations

from sqlalchemy import select

from domain.events import Event
from domain.fleet import MachineState
from domain.identifiers import ClusterId, MachineId, RegionId
from domain.machine_life_cycle import MACHINE_EVENTS, MachineHappening, machine_rows
from services.database import event_store
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.core_statements import execute
from services.database.tables.fleet import MACHINES


async def machine_state(connection: AnyConnection, machine: MachineId) -> MachineState | None:
    """As it is recorded; None when there is no such machine."""
    cursor = await execute(connection, select(MACHINES.c.state).where(MACHINES.c.machine == machine))
    row = await cursor.fetchone()
    return None if row is None else MachineState(row[0])


async def record_machine_happening(
    connection: AnyConnection,
    region: RegionId,
    machine: MachineId,
    happening: MachineHappening,
    reason: str,
    now: float,
) -> MachineState | None:
    """The state from now on, by the table of a machine's life; None where the table has no row: nothing is changed."""
    rows = machine_rows(happening)
    cursor = await connection.execute(
        """UPDATE machines SET state = t.after FROM unnest(%s::text[], %s::text[]) AS t (before, after)
            WHERE machine = %s AND state = t.before RETURNING cluster, state""",
        ([before.value for before, _ in rows], [after.value for _, after in rows], machine),
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    if happening in MACHINE_EVENTS:
        details = {"machine": machine, "reason": reason}
        event = Event(now, MACHINE_EVENTS[happening], region=region, cluster=ClusterId(row[0]), details=details)
        await event_store.append(connection, [event])
    wake_after_commit(connection, SCAN_CHANNEL)
    return MachineState(row[1])
