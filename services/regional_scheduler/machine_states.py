"""Machines come, go, or are drained: recorded with their events in the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select

from domain.events import Event, JsonValue
from domain.fleet import MachineState
from domain.identifiers import ClusterId, MachineId, RegionId
from domain.machine_life_cycle import MACHINE_EVENTS, MachineHappening, machine_rows
from services.database import event_store
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.core_statements import execute
from services.database.tables.fleet import MACHINES

_EVENTS_AT_ONCE = 256
"""To make a statement of more events would hold the event loop up."""


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
    return (await record_machine_happenings(connection, region, {machine: reason}, happening, now)).get(machine)


async def record_machine_happenings(
    connection: AnyConnection,
    region: RegionId,
    reasons: Mapping[MachineId, str],
    happening: MachineHappening,
    now: float,
    deadline_s: float | None = None,
) -> dict[MachineId, MachineState]:
    """The same for several machines, by one statement: those that are in another state now, in the order of `reasons`.

    Their events are in that order too, and say the deadline, if there is one.
    """
    rows = machine_rows(happening)
    cursor = await connection.execute(
        """UPDATE machines m SET state = t.after
             FROM unnest(%s::text[], %s::text[]) AS t (before, after), unnest(%s::text[]) AS u (machine)
            WHERE m.machine = u.machine AND m.state = t.before RETURNING m.machine, m.cluster, m.state""",
        ([before.value for before, _ in rows], [after.value for _, after in rows], list(reasons)),
    )
    changed = {row[0]: (ClusterId(row[1]), MachineState(row[2])) for row in await cursor.fetchall()}
    if not changed:
        return {}
    if happening in MACHINE_EVENTS:
        events = [
            Event(
                now,
                MACHINE_EVENTS[happening],
                region=region,
                cluster=changed[machine][0],
                details=_details(machine, reason, changed[machine][1], happening, deadline_s),
            )
            for machine, reason in reasons.items()
            if machine in changed
        ]
        for first in range(0, len(events), _EVENTS_AT_ONCE):
            await event_store.append(connection, events[first : first + _EVENTS_AT_ONCE])
    wake_after_commit(connection, SCAN_CHANNEL)
    return {machine: changed[machine][1] for machine in reasons if machine in changed}


def _details(
    machine: MachineId, reason: str, state: MachineState, happening: MachineHappening, deadline_s: float | None
) -> dict[str, JsonValue]:
    details: dict[str, JsonValue] = {"machine": machine, "reason": reason}
    if deadline_s is not None:
        details["deadline_s"] = deadline_s
    if happening is MachineHappening.UNDRAINED and state.is_down:
        details["still_down"] = True
    return details
