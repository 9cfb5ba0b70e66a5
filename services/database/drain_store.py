"""Machines that operators have drained: why, and until when what is on them may stay. Inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.identifiers import MachineId, RegionId
from services.database.connection import AnyConnection


@dataclass(frozen=True, slots=True)
class StoredDrain:
    """Of one machine."""

    machine: MachineId
    reason: str
    drained_s: float
    deadline_s: float | None
    """From then on what is on it has to leave; None: it may end by itself."""


async def store(
    connection: AnyConnection, machines: Sequence[MachineId], reason: str, now: float, deadline_s: float | None
) -> None:
    """These are drained; of those that were before, reason and deadline are others from now on."""
    await connection.execute(
        """INSERT INTO machine_drains AS d (machine, reason, drained_s, deadline_s)
           SELECT machine, %s, %s, %s FROM unnest(%s::text[]) AS u (machine) JOIN machines USING (machine)
            ORDER BY machine
           ON CONFLICT (machine) DO UPDATE SET reason = excluded.reason, deadline_s = excluded.deadline_s""",
        (reason, now, deadline_s, list(machines)),
    )


async def remove(connection: AnyConnection, machines: Sequence[MachineId]) -> None:
    """These are drained no more."""
    await connection.execute("DELETE FROM machine_drains WHERE machine = ANY(%s)", (list(machines),))


async def with_deadline(connection: AnyConnection, region: RegionId) -> list[StoredDrain]:
    """Those of the region's drained machines that have a deadline, by machine."""
    cursor = await connection.execute(
        """SELECT d.machine, d.reason, d.drained_s, d.deadline_s
             FROM machine_drains d JOIN machines USING (machine) JOIN clusters USING (cluster)
            WHERE region = %s AND d.deadline_s IS NOT NULL ORDER BY d.machine""",
        (region,),
    )
    return [StoredDrain(MachineId(row[0]), *row[1:]) for row in await cursor.fetchall()]
