"""A process that is halted in the middle of a transaction has the row of its lease: others have the lease soon all the same."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from services.database import lease_store
from services.database.connection import connect
from services.database.engine import Database

pytestmark = pytest.mark.chaos

_PATIENCE_REAL_S = 40.0
"""It takes 15 s; it was a minute."""


def test_a_lease_is_not_kept_by_a_transaction_that_hangs(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            lease = await database.run(lambda it: lease_store.acquire(it, "global", "halted", "a:1", 1, 0.5))
            assert lease is not None
            halted = await connect(database_url)
            await lease_store.assert_held(halted, lease)
            taken = None
            async with asyncio.timeout(_PATIENCE_REAL_S):
                while taken is None:
                    taken = await database.run(lambda it: lease_store.acquire(it, "global", "other", "a:2", 2, 3.0))
            assert taken.token == lease.token + 1
            with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
                await halted.execute("SELECT 1")
            await halted.close()

    asyncio.run(scenario())
