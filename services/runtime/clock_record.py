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
