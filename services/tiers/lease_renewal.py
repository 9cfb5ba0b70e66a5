"""Renews a lease in a thread with a connection of its own, for as long as the event loop that works under it makes turns.

A loop that is busy for longer than its lease lasts keeps it: nothing else may begin what it is still about to write. One
that is dead loses it: after a stated time without a turn the thread gives the lease up, and what the loop should still
write in its name is refused.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Final

import psycopg
import structlog

from services.database import lease_store
from services.database.connection import PooledConnection, connect
from services.database.errors import is_passing
from services.database.lease_store import Lease
from services.tiers.lease_times import LeaseTimes

_PATIENCE_REAL_S: Final = 60.0
"""A statement that takes longer is given up, and tried again. A transaction in the name of the lease holds it up for as long as
it lasts, and while it waits for that it is the next to have the row."""

_log = structlog.get_logger(__name__)


class RenewalEnd(StrEnum):
    """Why a lease is not renewed any more."""

    LOST = "another process has it"
    SILENT = "its event loop had made no turn for too long"
    STOPPED = "nobody keeps it any more"
    FAILED = "the database refused to renew it"


class LeaseRenewal:
    """The renewals of one lease. Only `turn`, `stop` and what is passed to `run` belong to the loop that holds it."""

    def __init__(
        self,
        url: str,
        lease: Lease,
        times: LeaseTimes,
        renewed: Callable[[float], None],
        given_up: Callable[[], None],
    ) -> None:
        """`renewed` is told, in the thread, when a renewal that succeeded was asked for, on the machine's monotonic clock;
        `given_up`, before the lease of a silent loop is given up, that nothing is certain any more."""
        self._url = url
        self._lease = lease
        self._times = times
        self._renewed = renewed
        self._given_up = given_up
        self._last_turn_real_s = time.monotonic()
        self._stopping = threading.Event()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[RenewalEnd]] | None = None
        self._starting = threading.Lock()

    def turn(self) -> None:
        """The loop that works under the lease is alive."""
        self._last_turn_real_s = time.monotonic()

    def run(self, ended: Callable[[RenewalEnd], None]) -> None:
        """In a thread of its own: renews until `stop`, or until the lease is lost; then says why it has ended."""
        end = RenewalEnd.FAILED
        try:
            end = asyncio.run(self._run())
        except asyncio.CancelledError:
            end = RenewalEnd.STOPPED
        finally:
            ended(end)

    def stop(self) -> None:
        """Ends the renewals soon; may be called from any thread."""
        self._stopping.set()
        with self._starting:
            if self._running is not None:
                loop, task = self._running
                # The thread may have ended a moment ago, and its loop with it.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(task.cancel)

    async def _run(self) -> RenewalEnd:
        task = asyncio.ensure_future(self._renew_on())
        with self._starting:
            self._running = (asyncio.get_running_loop(), task)
            if self._stopping.is_set():
                task.cancel()
        return await task

    async def _renew_on(self) -> RenewalEnd:
        connection: PooledConnection | None = None
        try:
            while True:
                await asyncio.sleep(min(self._times.duration_s, self._times.silence_s) / 3)
                silent = time.monotonic() - self._last_turn_real_s > self._times.silence_s
                if silent:
                    self._given_up()
                try:
                    async with asyncio.timeout(_PATIENCE_REAL_S):
                        connection = connection or await connect(self._url)
                        held = await (self._give_up(connection) if silent else self._renew(connection))
                    if not held:
                        return RenewalEnd.SILENT if silent else RenewalEnd.LOST
                except (psycopg.Error, TimeoutError) as error:
                    _log.warning("the lease could not be renewed", name=self._lease.name, error=str(error))
                    if silent:
                        return RenewalEnd.SILENT  # It ends by itself a little later.
                    if isinstance(error, psycopg.Error) and not is_passing(error):
                        return RenewalEnd.FAILED
                    if connection is not None:
                        await connection.close()
                        connection = None
        finally:
            if connection is not None:
                await connection.close()

    async def _renew(self, connection: PooledConnection) -> bool:
        """Whether it is still held, from now on for its whole duration."""
        asked_real_s = time.monotonic()
        held = await lease_store.renew(connection, self._lease, self._times.duration_s)
        await connection.commit()
        if held:
            self._renewed(asked_real_s)
        return held

    async def _give_up(self, connection: PooledConnection) -> bool:
        await lease_store.release(connection, self._lease)
        await connection.commit()
        return False
