"""Which processes stand by for a lease: to be shown, no decision depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select

from services.database.connection import AnyConnection
from services.database.core_statements import execute
from services.database.tables.coordination import STANDBYS


@dataclass(frozen=True, slots=True)
class Standby:
    """A process that takes over when the lease has ended."""

    name: str
    """Of the lease."""
    address: str
    process_id: int
    since: datetime


async def stand_by(
    connection: AnyConnection, name: str, holder: str, address: str, process_id: int, duration_s: float
) -> None:
    """The process counts as one that stands by for `duration_s` real seconds from now, or until it says so again."""
    await connection.execute(
        """INSERT INTO standbys AS s (name, holder, address, process_id, since, seen_until)
           VALUES (%(name)s, %(holder)s, %(address)s, %(process_id)s, clock_timestamp(),
                   clock_timestamp() + make_interval(secs => %(duration_s)s))
           ON CONFLICT (name, holder) DO UPDATE SET seen_until = excluded.seen_until""",
        {"name": name, "holder": holder, "address": address, "process_id": process_id, "duration_s": duration_s},
    )


async def stop_standing_by(connection: AnyConnection, name: str, holder: str) -> None:
    """The process has the lease; those that were not heard of again are forgotten, too."""
    await connection.execute(
        "DELETE FROM standbys WHERE name = %s AND (holder = %s OR seen_until <= clock_timestamp())", (name, holder)
    )


async def list_standbys(connection: AnyConnection) -> list[Standby]:
    """All that stand by now, by the lease that they wait for, who waits longest first."""
    statement = (
        select(STANDBYS.c.name, STANDBYS.c.address, STANDBYS.c.process_id, STANDBYS.c.since)
        .where(STANDBYS.c.seen_until > func.clock_timestamp())
        .order_by(STANDBYS.c.name, STANDBYS.c.since, STANDBYS.c.holder)
    )
    return [Standby(*row) for row in await (await execute(connection, statement)).fetchall()]
