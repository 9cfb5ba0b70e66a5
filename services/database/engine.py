"""Access to the database for one process (one event loop): transactions, retries, wake-ups, health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import psycopg
import structlog
from psycopg.errors import DiskFull, ReadOnlySqlTransaction

from services.database.backoff import Backoff
from services.database.commit_marks import CommitMarks, Slot
from services.database.connection import AnyConnection, ConnectionPool, PooledConnection
from services.database.errors import DatabaseFull, DatabaseUnavailable, is_final, is_passing
from services.database.pipeline import pipelined_transaction
from services.database.watcher import HealthListener, NotificationListener, Subscription
from services.metrics.service_metrics import ServiceMetrics
from services.task_end import end_task

_log = structlog.get_logger(__name__)

_Result = TypeVar("_Result")

_WAKE_INTERVAL_S = 0.005
"""Wake-ups are sent at most this often, however many transactions ask for one."""


_WRITE_A_LITTLE = "CREATE TEMPORARY TABLE room ON COMMIT DROP AS SELECT generate_series(1, 30000) AS number"
"""A megabyte: where the files of the database have no room for it, neither has a transaction of many workloads."""


@dataclass(frozen=True, slots=True)
class _Done(Generic[_Result]):
    """What a transaction came to, if its commit has happened."""

    result: _Result
    channels_to_wake: frozenset[str]


class _CommitRefused(Exception):
    """The server did not commit, and said so (or there was nothing to commit)."""

    def __init__(self, cause: psycopg.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _is_mistaken(error: Exception, *, snapshot: bool) -> bool:
    """A snapshot is read-only; elsewhere the same error means that the server is a standby, for the moment."""
    return snapshot and isinstance(error, ReadOnlySqlTransaction)


class Database:
    """One PostgreSQL database.

    Use it as `async with Database(url) as database`. All methods belong to the event loop that opened it.
    """

    def __init__(
        self, url: str, *, connections: int = 8, give_up_after_s: float = 30.0, metrics: ServiceMetrics | None = None
    ) -> None:
        """`connections`: the most that are in use at a time; one more listens, one more sends wake-ups.

        `give_up_after_s`: for how long `run` tries to reach a lost database, unless the call says otherwise.
        """
        self.url = url
        self._give_up_after_s = give_up_after_s
        self._pool = ConnectionPool(url, connections)
        self._watcher = NotificationListener(url)
        self._marks = CommitMarks()
        self._channels_to_wake: set[str] = set()
        self._wake_requested = asyncio.Event()
        self._waker_pool = ConnectionPool(url, 1)
        self._waker: asyncio.Task[None] | None = None
        self.full = False
        """Whether it said of its disk, when something was written last that could tell, that this is full."""
        metrics = metrics or ServiceMetrics()
        seconds = metrics.database_transaction_seconds
        self._once_seconds, self._repeatable_seconds, self._snapshot_seconds = map(
            seconds.labels, ("once", "repeatable", "snapshot")
        )
        self._retries = metrics.database_retries
        self._watcher.tell_health(metrics.database_up.set)

    async def __aenter__(self) -> Self:
        self._watcher.open()
        self._waker = asyncio.create_task(self._send_wake_ups(), name="database-waker")
        return self

    async def __aexit__(self, *_exception: object) -> None:
        try:
            await self._watcher.close()
            if self._waker is not None:
                await end_task(self._waker)
        finally:
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

    def listen(self, *channels: str) -> AbstractAsyncContextManager[Subscription]:
        """A subscription to notification channels; see Subscription.wait."""
        return self._watcher.listen(*channels)

    # ------------------------------------------------------------ transactions

    @asynccontextmanager
    async def transaction(self, *, pipelined: bool = False) -> AsyncIterator[AnyConnection]:
        """One transaction, tried once: committed at the end of the block, rolled back when the block raises.

        `pipelined`: statements do not wait for the answers to earlier ones; see `services.database.pipeline` for what may be
        executed then. Raises DatabaseUnavailable when the database cannot be reached or is lost on the way, or when others
        were in the way (a deadlock, a serialization failure): the same may well succeed a little later.
        """
        done = False
        try:
            with self._once_seconds.time():
                async with self._pool.connection() as connection:
                    if pipelined:
                        async with pipelined_transaction(connection):
                            yield connection
                            done = True
                    else:
                        yield connection
                        done = True
                        await connection.commit()
                    self._request_wake_ups(connection.channels_to_wake)
        except psycopg.Error as error:
            if is_passing(error):
                in_doubt = done and not is_final(error)
                raise self._unavailable(
                    f"the transaction did not succeed: {error}", error, in_doubt=in_doubt
                ) from error
            raise

    async def run(
        self,
        operation: Callable[[AnyConnection], Awaitable[_Result]],
        *,
        snapshot: bool = False,
        give_up_after_s: float | None = None,
        waits_for_room: bool = True,
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
            waits_for_room: whether also while the disk of the database is full.

        Raises:
            DatabaseUnavailable: it could not be done in that time; DatabaseFull when the disk of the database is full.
        """
        patience_s = self._give_up_after_s if give_up_after_s is None else give_up_after_s
        with (self._snapshot_seconds if snapshot else self._repeatable_seconds).time():
            return await self._run_again_until_done(
                operation, patience_s, snapshot=snapshot, waits_for_room=waits_for_room
            )

    async def _run_again_until_done(
        self,
        operation: Callable[[AnyConnection], Awaitable[_Result]],
        patience_s: float,
        *,
        snapshot: bool,
        waits_for_room: bool,
    ) -> _Result:
        slot = self._marks.take()
        backoff = Backoff()
        give_up_at: float | None = None
        in_doubt: _Done[_Result] | None = None
        while True:
            try:
                async with self._pool.connection() as connection:
                    if in_doubt is None or not await self._marks.was_committed(connection, slot):
                        in_doubt = None
                        done = await self._perform(connection, operation, slot, snapshot=snapshot)
                        self._marks.begin_commit(slot)
                        in_doubt = done  # until the server says that it has committed
                        await self._commit(connection, slot, snapshot=snapshot)
                self._marks.give_back(slot)
                self._request_wake_ups(in_doubt.channels_to_wake)
                return in_doubt.result
            except Exception as error:
                cause = error
                if isinstance(error, _CommitRefused):
                    cause, in_doubt = error.cause, None
                if in_doubt is None and (not is_passing(cause) or _is_mistaken(cause, snapshot=snapshot)):
                    self._marks.give_back(slot)
                    if cause is not error:
                        raise cause from None
                    raise
                now = time.monotonic()
                give_up_at = now + patience_s if give_up_at is None else give_up_at
                wait_s = backoff.next_wait_s()
                failure = self._unavailable(
                    f"the database could not do it in {patience_s} s: {cause}", cause, in_doubt=in_doubt is not None
                )
                if now + wait_s > give_up_at or (isinstance(failure, DatabaseFull) and not waits_for_room):
                    raise failure from cause
                self._retries.inc()
                _log.debug("the transaction will be tried again", error=str(cause), wait_s=wait_s)
            await self._watcher.pause(wait_s)

    def _unavailable(self, sentence: str, cause: Exception, *, in_doubt: bool) -> DatabaseUnavailable:
        if isinstance(cause, DiskFull):
            self.full = True
            return DatabaseFull(sentence, in_doubt=in_doubt)
        return DatabaseUnavailable(sentence, in_doubt=in_doubt)

    async def look_for_room(self) -> None:
        """Finds out whether its disk is full still, once that was said: by writing a little for which there is no use."""
        try:
            async with self._pool.connection() as connection:
                await connection.execute(_WRITE_A_LITTLE)
                await connection.rollback()
        except psycopg.Error as error:
            if not is_passing(error):
                raise
            self.full = isinstance(error, DiskFull) or self.full
        else:
            self.full = False

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
        else:
            await self._marks.make_row(connection, slot)
        result = await operation(connection)
        return _Done(result, frozenset(connection.channels_to_wake))

    async def _commit(self, connection: PooledConnection, slot: Slot, *, snapshot: bool) -> None:
        """Raises _CommitRefused when it certainly has not happened; any other error leaves that open."""
        try:
            if snapshot:
                await connection.commit()
                return
            async with connection.pipeline():
                await self._marks.mark(connection, slot)
                await connection.commit()
        except psycopg.Error as error:
            if snapshot or is_final(error):
                raise _CommitRefused(error) from error
            raise

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
                # Listeners are woken anyway when they have found the database again.
                _log.debug("wake-ups were lost", channels=channels, error=str(error))
            await asyncio.sleep(_WAKE_INTERVAL_S)
