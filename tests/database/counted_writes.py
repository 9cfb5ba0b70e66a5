"""Writes of which the database tells how often each has happened."""

import psycopg
from psycopg.rows import TupleRow

from services.database.connection import AnyConnection


async def fetch(connection: AnyConnection, query: str) -> list[TupleRow]:
    cursor = await connection.execute(query)
    return await cursor.fetchall()


async def insert(connection: AnyConnection, slot: str = "x") -> int:
    """Writes a row that tells how often this happened."""
    cursor = await connection.execute(
        """INSERT INTO quota_use (tenant, bucket, amount) VALUES ('counter', %s, 1)
           ON CONFLICT (tenant, bucket) DO UPDATE SET amount = quota_use.amount + 1 RETURNING amount""",
        (slot,),
    )
    row = await cursor.fetchone()
    return -1 if row is None else int(row[0])


async def inserted(connection: AnyConnection) -> int:
    rows = await fetch(connection, "SELECT coalesce(sum(amount), 0)::int FROM quota_use WHERE tenant = 'counter'")
    return int(rows[0][0])


def wait_until_alone(connection: psycopg.Connection[TupleRow]) -> None:
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    while connection.execute(others).fetchone() != (0,):
        connection.commit()
