"""Access to the database for one process (one event loop): transactions, retries, wake-ups, health."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import psycopg
import structlog
from psycopg.errors import ReadOnlySqlTransaction

from services.database.backoff import Backoff
from services.database.commit_marks import CommitMarks, Slot
from services.database.connection import AnyConnection, ConnectionPool, PooledConnection
from services.database.errors import DatabaseUnavailable, is_final, is_passing
from services.database.watcher import HealthListener, Subscription, Watcher

_log = structlog.get_logger(__name__)

_Result = TypeVar("_Result")

_WAKE_INTERVAL_S = 0.005
"""Wake-ups are sent at most this often, however many transactions ask for one."""


@dataclass(frozen=True, slots=True)
class _Done(Generic[_Result]):
    """What a transaction came to, should its commit turn out to have happened."""

    result: _Result
    channels_to_wake: frozenset[str]
    wrote: bool


class Database:
    """One PostgreSQL database.

    Use it as `async with Database(url) as database`. All methods belong to the event loop that opened it.
    """

    def __init__(self, url: str, *, connections: int = 8, give_up_after_s: float = 30.0) -> None:
        """`connections`: the most that are in use at a time; one more listens, one more sends wake-ups.

        `give_up_after_s`: for how long `run` tries to reach a lost database, unless told otherwise.
        """
        self.url = url
        self._give_up_after_s = give_up_after_s
        self._pool = ConnectionPool(url, connections)
        self._watcher = Watcher(url)
        self._marks = CommitMarks()
        self._channels_to_wake: set[str] = set()
        self._wake_requested = asyncio.Event()
        self._waker_pool = ConnectionPool(url, 1)
        self._waker: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._watcher.open()
        self._waker = asyncio.create_task(self._send_wake_ups(), name="database-waker")
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._watcher.close()
        if self._waker is not None:
            self._waker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._waker
        await self._waker_pool.close()
        await self._pool.close()

    # ------------------------------------------------------------ health and wake-ups

    @property
    def healthy(self) -> bool:
        """True while the database answers."""
        return self._watcher.healthy

    def tell_health(self, listener: HealthListener) -> None:
        """Calls the listener now and at each change: True, the database answers; False, it is lost."""
        self._watcher.tell_health(listener)

    def listen(self, channel: str) -> AbstractAsyncContextManager[Subscription]:
        """A subscription to a notification channel; see Subscription.wait."""
        return self._watcher.listen(channel)

    # ------------------------------------------------------------ transactions

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AnyConnection]:
        """One transaction, tried once: committed at the end of the block, rolled back when the block raises.

        Raises DatabaseUnavailable when the database cannot be reached or is lost on the way, or when others were in
        the way (a deadlock, a serialization failure): the same may well succeed a little later.
        """
        done = False
        try:
            async with self._pool.connection() as connection:
                yield connection
                done = True
                await connection.commit()
                self._request_wake_ups(connection.channels_to_wake)
        except psycopg.Error as error:
            if is_passing(error):
                in_doubt = done and not is_final(error)
                raise DatabaseUnavailable(f"the transaction did not succeed: {error}", in_doubt=in_doubt) from error
            raise

    async def run(
        self,
        operation: Callable[[AnyConnection], Awaitable[_Result]],
        *,
        snapshot: bool = False,
        give_up_after_s: float | None = None,
    ) -> _Result:
        """Runs the operation in a transaction of its own and returns its result once that is committed.

        After a lost connection, a serialization failure or a deadlock it is run again from its beginning, with
        growing pauses. So it must have no effect besides what it writes through its connection: then it has happened
        exactly once when this returns, and not at all when this raises anything but DatabaseUnavailable with
        `in_doubt`. (A connection lost during the commit is not guessed about: see commit_marks.py.)

        Args:
            operation: called with a connection inside a transaction; may be called several times.
            snapshot: read-only, and every statement sees the same state of the database.
            give_up_after_s: how long to go on after the first failure.

        Raises:
            DatabaseUnavailable: it could not be done in that time.
        """
        patience_s = self._give_up_after_s if give_up_after_s is None else give_up_after_s
        slot = self._marks.take()
        backoff = Backoff()
        give_up_at: float | None = None
        done: _Done[_Result] | None = None
        while True:
            try:
                async with self._pool.connection() as connection:
                    if done is None or not await self._marks.was_committed(connection, slot):
                        done = None
                        done = await self._perform(connection, operation, slot, snapshot=snapshot)
                        await connection.commit()
                self._request_wake_ups(done.channels_to_wake)
                self._marks.give_back(slot)
                return done.result
            except Exception as error:
                if done is not None and (not done.wrote or is_final(error)):
                    done = None  # it wrote nothing, or the server itself refused the commit
                wrote_in_snapshot = snapshot and isinstance(error, ReadOnlySqlTransaction)
                if wrote_in_snapshot or not is_passing(error):
                    self._marks.give_back(slot)
                    raise
                now = time.monotonic()
                give_up_at = now + patience_s if give_up_at is None else give_up_at
                wait_s = backoff.next_wait_s()
                if now + wait_s > give_up_at:
                    raise DatabaseUnavailable(
                        f"the database could not do it in {patience_s} s: {error}", in_doubt=done is not None
                    ) from error
                _log.debug("the transaction will be tried again", error=str(error), wait_s=wait_s)
                await self._watcher.pause(wait_s)

    async def _perform(
        self,
        connection: PooledConnection,
        operation: Callable[[AnyConnection], Awaitable[_Result]],
        slot: Slot,
        *,
        snapshot: bool,
    ) -> _Done[_Result]:
        """Everything up to the commit."""
        if snapshot:
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            return _Done(await operation(connection), frozenset(), wrote=False)
        await self._marks.make_row(connection, slot)
        result = await operation(connection)
        wrote = await self._marks.mark(connection, slot)
        return _Done(result, frozenset(connection.channels_to_wake), wrote)

    def _request_wake_ups(self, channels: Collection[str]) -> None:
        if channels:
            self._channels_to_wake.update(channels)
            self._wake_requested.set()

    async def _send_wake_ups(self) -> None:
        """The task that notifies the channels of committed transactions, many at once."""
        while True:
            await self._wake_requested.wait()
            self._wake_requested.clear()
            channels, self._channels_to_wake = sorted(self._channels_to_wake), set()
            try:
                async with self._waker_pool.connection() as connection:
                    await connection.execute(
                        "SELECT pg_notify(channel, '') FROM unnest(%s::text[]) channel", [channels]
                    )
                    await connection.commit()
            except psycopg.Error as error:
                # Whoever listens is woken anyway when it has found the database again.
                _log.debug("wake-ups were lost", channels=channels, error=str(error))
            await asyncio.sleep(_WAKE_INTERVAL_S)
