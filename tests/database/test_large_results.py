"""Results that are read in parts, where the server goes away in between."""

import asyncio
import gc
import warnings

import psycopg
import pytest
from sqlalchemy import func, select

from services.database.large_results import ROWS_AT_ONCE, rows_in_parts


def test_no_cursor_stays_open_when_the_server_goes_away_in_mid_result(database_url: str) -> None:
    numbers = select(func.generate_series(1, 3 * ROWS_AT_ONCE))

    async def scenario() -> None:
        async with (
            await psycopg.AsyncConnection.connect(database_url) as reader,
            await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other,
        ):
            parts = rows_in_parts(reader, numbers)
            assert len(await anext(parts)) == ROWS_AT_ONCE
            await other.execute("SELECT pg_terminate_backend(%s)", (reader.info.backend_pid,))
            with pytest.raises(psycopg.OperationalError):
                await parts.aclose()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(scenario())
        gc.collect()
    assert [str(one.message) for one in caught] == []
