"""One connection that only listens: it wakes what waits for a channel, and knows whether the database is there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import psycopg
import structlog
from psycopg import sql

from services.database.backoff import Backoff
from services.database.connection import PooledConnection, connect
from services.database.errors import is_passing
from services.task_end import end_task

_log = structlog.get_logger(__name__)

HealthListener = Callable[[bool], None]

_PROBE_INTERVAL_S = 5.0
_PROBE_PATIENCE_S = 5.0


class Subscription:
    """A task that wants to know when to look again. Wake-ups that come while it is busy melt into one."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    @property
    def is_woken(self) -> bool:
        """Whether there has been a wake-up since the last wait."""
        return self._woken.is_set()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the next wake-up; False when none came in time.

        The first one comes as soon as listening has begun, and one after each interruption: look each time, and
        nothing is missed.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True


class NotificationListener:
    """Listens as long as it is open; connects again, with growing pauses, whenever the connection is lost."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._channels_changed = asyncio.Event()
        self._newcomers: list[Subscription] = []
        """Those that do not know yet that they are listening (again)."""
        self._health_listeners: list[HealthListener] = []
        self._answers = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def healthy(self) -> bool:
        """True while the database answers."""
        return self._answers.is_set()

    async def pause(self, duration_s: float) -> None:
        """Waits that long, but not longer than a lost database is lost."""
        if self.healthy:
            await asyncio.sleep(duration_s)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(duration_s):
                await self._answers.wait()

    def tell_health(self, listener: HealthListener) -> None:
        """Calls the listener now, with how it stands, and at each change."""
        self._health_listeners.append(listener)
        listener(self.healthy)

    def open(self) -> None:
        self._task = asyncio.create_task(self._watch(), name="database-watcher")

    async def close(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            await end_task(task)

    @asynccontextmanager
    async def listen(self, *channels: str) -> AsyncIterator[Subscription]:
        """A subscription to these channels, as long as the context lasts."""
        subscription = Subscription()
        for channel in channels:
            self._subscriptions.setdefault(channel, []).append(subscription)
        self._newcomers.append(subscription)
        self._channels_changed.set()
        try:
            yield subscription
        finally:
            for channel in channels:
                self._subscriptions[channel].remove(subscription)

    # ------------------------------------------------------------ the task

    async def _watch(self) -> None:
        backoff = Backoff()
        while True:
            try:
                connection = await connect(self._url, autocommit=True)
                try:
                    backoff = Backoff()
                    await self._listen_on(connection)
                finally:
                    await connection.close()
            except (psycopg.Error, TimeoutError) as error:
                if isinstance(error, psycopg.Error) and not is_passing(error):
                    _log.error("listening to the database failed", error=str(error))
                self._set_healthy(False)
            await asyncio.sleep(backoff.next_wait_s())

    async def _listen_on(self, connection: PooledConnection) -> None:
        """Returns never; raises psycopg.Error or TimeoutError when the connection is lost."""
        self._newcomers = [subscription for everyone in self._subscriptions.values() for subscription in everyone]
        listened: set[str] = set()
        while True:
            self._channels_changed.clear()
            for channel in sorted(self._subscriptions.keys() - listened):
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                listened.add(channel)
            self._set_healthy(True)
            newcomers, self._newcomers = self._newcomers, []
            for subscription in newcomers:
                subscription.wake()
            await self._relay_until_changed(connection)

    async def _relay_until_changed(self, connection: PooledConnection) -> None:
        """Passes notifications on until another channel is wanted."""
        relay = asyncio.create_task(self._relay(connection))
        changed = asyncio.create_task(self._channels_changed.wait())
        try:
            await asyncio.wait({relay, changed}, return_when=asyncio.FIRST_COMPLETED)
            if relay.done():
                relay.result()  # raises what ended it
        finally:
            for task in (relay, changed):
                task.cancel()
            await asyncio.gather(relay, changed, return_exceptions=True)

    async def _relay(self, connection: PooledConnection) -> None:
        while True:
            async for notification in connection.notifies(timeout=_PROBE_INTERVAL_S):
                self._wake(notification.channel)
            # Silence may also mean that the server hangs, or that the network lost it.
            async with asyncio.timeout(_PROBE_PATIENCE_S):
                await connection.execute("SELECT 1")

    def _wake(self, channel: str) -> None:
        for subscription in self._subscriptions.get(channel, ()):
            subscription.wake()

    def _set_healthy(self, healthy: bool) -> None:
        if healthy == self.healthy:
            return
        if healthy:
            self._answers.set()
        else:
            self._answers.clear()
        _log.info("the database answers" if healthy else "the database is lost")
        for listener in self._health_listeners:
            listener(healthy)
