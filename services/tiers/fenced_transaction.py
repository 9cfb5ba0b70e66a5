"""Transactions in the name of a lease: what a latecomer would write is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.database import lease_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import Lease


@asynccontextmanager
async def fenced_transaction(
    database: Database, lease: Lease, *, pipelined: bool = False
) -> AsyncIterator[AnyConnection]:
    """One transaction during which the lease stays ours. Raises LeaseLost before anything else when it is not.

    `pipelined` as for `Database.transaction`.
    """
    async with database.transaction(pipelined=pipelined) as connection:
        await lease_store.assert_held(connection, lease)
        yield connection
