"""Which processes stand by for a lease: to be shown, no decision depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select

from services.database.connection import AnyConnection
from services.database.core_statements import execute
from services.database.tables.coordination import LEASES, STANDBYS

_FORGOTTEN_AFTER_S = 3_600.0


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
    """The process counts as one that stands by for `duration_s` real seconds from now, or until it says so again. One that was
    not heard of for longer has led meanwhile, or was cut off: it stands by since now. Those of which nothing was heard for long are
    forgotten.
    """
    await connection.execute(
        """INSERT INTO standbys AS s (name, holder, address, process_id, since, seen_until)
           VALUES (%(name)s, %(holder)s, %(address)s, %(process_id)s, clock_timestamp(),
                   clock_timestamp() + make_interval(secs => %(duration_s)s))
           ON CONFLICT (name, holder) DO UPDATE
              SET since = CASE WHEN s.seen_until < clock_timestamp() THEN excluded.since ELSE s.since END,
                  seen_until = excluded.seen_until""",
        {"name": name, "holder": holder, "address": address, "process_id": process_id, "duration_s": duration_s},
    )
    await connection.execute(
        """DELETE FROM standbys WHERE (name, holder) IN (
               SELECT name, holder FROM standbys WHERE seen_until < clock_timestamp() - make_interval(secs => %s)
                  FOR UPDATE SKIP LOCKED)""",
        (_FORGOTTEN_AFTER_S,),
    )


async def list_standbys(connection: AnyConnection) -> list[Standby]:
    """All that stand by now, by the lease that they wait for, who waits longest first. Who has the lease by now is none."""
    leads = select(LEASES.c.name).where(LEASES.c.name == STANDBYS.c.name, LEASES.c.holder == STANDBYS.c.holder)
    statement = (
        select(STANDBYS.c.name, STANDBYS.c.address, STANDBYS.c.process_id, STANDBYS.c.since)
        .where(STANDBYS.c.seen_until > func.clock_timestamp(), ~leads.exists())
        .order_by(STANDBYS.c.name, STANDBYS.c.since, STANDBYS.c.holder)
    )
    return [Standby(*row) for row in await (await execute(connection, statement)).fetchall()]
