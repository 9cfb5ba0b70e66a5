"""A machine comes, goes, or is drained: recorded with its event in the caller's transaction."""

from __future__ import annotations

from domain.events import Event, EventKind
from domain.fleet import MachineState
from domain.identifiers import ClusterId, MachineId, RegionId
from services.database import event_store
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit

_KINDS = {
    MachineState.UP: EventKind.MACHINE_UP,
    MachineState.DRAINING: EventKind.MACHINE_DRAINING,
    MachineState.DOWN: EventKind.MACHINE_DOWN,
}


async def machine_state(connection: AnyConnection, machine: MachineId) -> MachineState | None:
    """As it is recorded; None when there is no such machine."""
    cursor = await connection.execute("SELECT state FROM machines WHERE machine = %s", (machine,))
    row = await cursor.fetchone()
    return None if row is None else MachineState(row[0])


async def record_machine_state(
    connection: AnyConnection,
    region: RegionId,
    machine: MachineId,
    state: MachineState,
    reason: str,
    now: float,
    *,
    only_from: tuple[MachineState, ...] = tuple(MachineState),
) -> bool:
    """Whether the state is another one now. It is left alone when it is not one of `only_from`."""
    cursor = await connection.execute(
        """UPDATE machines SET state = %s WHERE machine = %s AND state <> %s AND state = ANY(%s) RETURNING cluster""",
        (state.value, machine, state.value, [allowed.value for allowed in only_from]),
    )
    row = await cursor.fetchone()
    if row is None:
        return False
    await event_store.append(
        connection,
        [
            Event(
                now,
                _KINDS[state],
                region=region,
                cluster=ClusterId(row[0]),
                details={"machine": machine, "reason": reason},
            )
        ],
    )
    wake_after_commit(connection, SCAN_CHANNEL)
    return True
