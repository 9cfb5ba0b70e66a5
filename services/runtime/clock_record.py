"""The service's clock, as the database remembers it: every process of the service shows the same time.

A service runs on real time unless another speed was set. A compressed clock is set once, before the first event.
"""

from __future__ import annotations

from services.clock import CompressedClock, ServiceClock, SystemClock
from services.database.connection import AnyConnection

_SUBJECT = "clock"


async def load_clock(connection: AnyConnection) -> ServiceClock:
    """The clock that is recorded, or real time."""
    cursor = await connection.execute("SELECT document FROM revisions WHERE subject = %s", (_SUBJECT,))
    row = await cursor.fetchone()
    if row is None or row[0] is None:
        return SystemClock()
    return CompressedClock(row[0]["origin_real_s"], row[0]["origin_s"], row[0]["speed"])


class ClockKept(Exception):
    """The service has run on a clock of another speed, and keeps that."""


async def settle_clock(connection: AnyConnection, speed: float, origin_s: float | None) -> None:
    """Sets the clock as `record_clock` does, unless the service has run already: then it must be the one that it runs on.

    Raises ClockKept.
    """
    cursor = await connection.execute("SELECT EXISTS (SELECT FROM events)")
    row = await cursor.fetchone()
    if row == (False,) and await record_clock(connection, speed, origin_s):
        return
    kept = await load_clock(connection)
    kept_speed = kept.speed if isinstance(kept, CompressedClock) else 1.0
    if kept_speed != speed:
        raise ClockKept(
            f"the clock of this home runs at speed {kept_speed:g} since its first start, and cannot be changed to {speed:g}: "
            "leave --clock-speed out, or take another home (--home)"
        )


async def record_clock(connection: AnyConnection, speed: float, origin_s: float | None) -> bool:
    """Sets the clock to run `speed` times as fast as real time from now on, starting at `origin_s` (None: now).

    False, and nothing changed, when a clock was set before: events of two clocks cannot stand in one log.
    """
    cursor = await connection.execute(
        """INSERT INTO revisions (subject, revision, document)
           SELECT %s, 1, jsonb_build_object('origin_real_s', n.now_s, 'origin_s', coalesce(%s, n.now_s), 'speed', %s::float8)
             FROM (SELECT extract(epoch FROM clock_timestamp())::float8 AS now_s) n
           ON CONFLICT DO NOTHING""",
        (_SUBJECT, origin_s, speed),
    )
    return cursor.rowcount == 1
