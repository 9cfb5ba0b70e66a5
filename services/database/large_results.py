"""Results of very many rows, fetched in parts: a loop that holds a lease must not stand still while they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from psycopg import AsyncCursor
from psycopg.rows import TupleRow

from services.database.connection import AnyConnection
from services.database.core_statements import Statement, as_text

ROWS_AT_ONCE = 2_000
"""Converting so many to Python takes a few milliseconds."""


async def rows_in_parts(connection: AnyConnection, query: Statement) -> AsyncGenerator[list[TupleRow], None]:
    """The rows of a query, ROWS_AT_ONCE at a time. One such result at a time can be read on a connection."""
    cursor = connection.cursor(name="rows_in_parts")
    try:
        await cursor.execute(*as_text(query))
        while rows := await cursor.fetchmany(ROWS_AT_ONCE):
            yield rows
    finally:
        try:
            await cursor.close()
        finally:
            # The server could not be told: the cursor is closed on our side all the same.
            await AsyncCursor.close(cursor)


async def all_rows(connection: AnyConnection, query: Statement) -> list[TupleRow]:
    """All rows of a query, fetched in parts."""
    found: list[TupleRow] = []
    async with aclosing(rows_in_parts(connection, query)) as parts:
        async for rows in parts:
            found += rows
    return found
