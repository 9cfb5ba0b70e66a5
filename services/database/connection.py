"""A connection to the database as the stores see it, and the pool that keeps some of them open."""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

AnyConnection: TypeAlias = psycopg.AsyncConnection[TupleRow]
"""What stores take: a connection inside its caller's transaction."""

AnyCursor: TypeAlias = psycopg.AsyncCursor[TupleRow]
"""What was executed on such a connection. In a pipeline it is read when its rows are fetched, also when the transaction has ended."""

_CONNECTION_DEFAULTS: Mapping[str, str | int] = {
    "application_name": "topmast",
    "connect_timeout": 5,
    # A server that vanished without a word is noticed in some 20 s, not in hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 20_000,
    # Of several servers the one that takes writes; of one, nobody is content with a replica that was not promoted yet.
    "target_session_attrs": "read-write",
}
"""What libpq is given unless the URL says otherwise."""


_SESSION_SETTINGS = """
    -- A statement is planned for the tables as they are now: they grow from nothing to millions of rows, and a plan
    -- that was kept from the beginning would read all of them.
    SET plan_cache_mode = force_custom_plan;
    -- A session that hangs in a transaction must not hold up the others for long.
    SET idle_in_transaction_session_timeout = '60s'"""


class PooledConnection(psycopg.AsyncConnection[TupleRow]):
    """A connection that remembers which channels to wake once its transaction is committed."""

    channels_to_wake: set[str]


def wake_after_commit(connection: AnyConnection, channel: str) -> None:
    """Has the listeners of a channel woken after this transaction's commit; nothing happens after a rollback.

    Not by a NOTIFY inside the transaction: PostgreSQL commits transactions with a NOTIFY one after the other, each
    with its own flush to disk, which would cost the busiest transactions their group commit. When the process dies
    between commit and wake-up, no listener is woken: each also looks by itself now and then.
    """
    if not isinstance(connection, PooledConnection):
        raise TypeError("this connection does not come from a Database, so no listener would be woken")
    connection.channels_to_wake.add(channel)


def channels_woken(connection: AnyConnection) -> frozenset[str]:
    """Those that `wake_after_commit` was told in this transaction: for who commits in a process that ends at once."""
    return frozenset(connection.channels_to_wake) if isinstance(connection, PooledConnection) else frozenset()


async def connect(url: str, *, autocommit: bool = False) -> PooledConnection:
    """A new connection; raises psycopg.OperationalError when there is none to be had."""
    parameters = {**_CONNECTION_DEFAULTS, **conninfo_to_dict(url)}
    try:
        connection = await PooledConnection.connect(make_conninfo("", **parameters), autocommit=True)
    except asyncio.CancelledError as error:
        # The half of a connection is closed with the frames that know it, which whoever keeps the error, or its task, would keep: until
        # then the server waits for a password, and DROP DATABASE for that.
        raise error.with_traceback(None) from None
    connection.channels_to_wake = set()
    try:
        await connection.execute(_SESSION_SETTINGS)
        await connection.set_autocommit(autocommit)
    except BaseException:
        await connection.close()
        raise
    return connection


class ConnectionPool:
    """At most `size` connections at a time; those that are not in use are kept open.

    A connection that broke while it was idle (the server went away) is never handed out.
    """

    def __init__(self, url: str, size: int) -> None:
        self._url = url
        self._places = asyncio.Semaphore(size)
        self._idle: list[PooledConnection] = []
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[PooledConnection]:
        """A connection outside any transaction; what is still open at the end is rolled back."""
        async with self._places:
            connection = await self._take()
            try:
                yield connection
            finally:
                await self._give_back(connection)

    async def close(self) -> None:
        """Closes all idle connections, and each of the others when it is given back."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()

    async def _take(self) -> PooledConnection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and not _has_unread_input(connection):
                return connection
            await connection.close()
        return await connect(self._url)

    async def _give_back(self, connection: PooledConnection) -> None:
        connection.channels_to_wake.clear()
        if not connection.closed and connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            try:
                await connection.rollback()
            except psycopg.Error:
                await connection.close()  # the server rolls back what has lost its connection
            except BaseException:  # cancelled once more: nothing else would close it
                await connection.close()
                raise
        if connection.closed:
            return
        if self._closed:
            await connection.close()
        else:
            self._idle.append(connection)


def _has_unread_input(connection: PooledConnection) -> bool:
    """True when something waits to be read although nothing was asked: in an idle connection, its end."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
