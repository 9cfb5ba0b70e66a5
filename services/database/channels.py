"""The notification channels: they only say that something is worth a look; what it is stands in the tables.

A lost notification costs a moment, never correctness: everybody also looks from time to time.
"""

from __future__ import annotations

from psycopg import AsyncConnection

from services.database.engine import AnyRow

AUCTION_CHANNEL = "topmast_auction"
"""A scan pass ended, or a round was opened, answered or closed."""

SCAN_CHANNEL = "topmast_scan"
"""Something happened that the next scan pass should see: a submission, an end, a change of tenants."""

REGION_CHANNEL = "topmast_region"
"""A region (the payload) should look at its attempts: a cancellation, a re-classification."""


async def notify(connection: AsyncConnection[AnyRow], channel: str, payload: str = "") -> None:
    """Tells the channel when, and only if, the transaction commits."""
    await connection.execute("SELECT pg_notify(%s, %s)", (channel, payload))
