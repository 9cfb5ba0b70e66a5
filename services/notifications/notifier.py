"""Tells users' URLs what happens to their workloads: finds it in the event log, sends it, again and again if need be.

Only the global scheduler that holds the lease does so. What is found is stored with the place up to which the log was read; what
was answered is noted, and then forgotten. So whoever ends at any moment, everything is told at least once, and of one workload in
the order in which it happened: the next one is sent when the one before was delivered or given up.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from domain.identifiers import WorkloadId
from services.database import notification_store
from services.database.channels import EVENT_CHANNEL
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.lease_store import Lease, LeaseLost
from services.database.notification_store import DueDelivery, FoundEvents
from services.notifications.body import delivery_of
from services.notifications.retrying import next_try_real_s
from services.notifications.send_failed import SendFailed
from services.notifications.settings import NotificationSettings
from services.notifications.signing import SecretUnusable, read_secret, secret_at, signature
from services.notifications.target_rules import target_rules
from services.tiers.fenced_transaction import fenced_transaction

if TYPE_CHECKING:
    from services.notifications.sender import HttpSender

MADE_SECRET = "notification-secret"  # noqa: S105 (the name of a file)
"""In TOPMAST_HOME, where no other is configured."""

_LOOK_REAL_S = 5.0
"""At the latest so often the event log is looked at, and what is due: the one that wakes may have ended before it could."""
_DEBOUNCE_REAL_S = 0.1
_RETRY_REAL_S = 1.0
_PER_HOST = 4
_AT_ONCE = 64
"""So many are sent at a time to one host, and in all: one that is slow holds up nobody but itself."""
_READ_PER_HOST = 256
_READ_AT_ONCE = 1_024
"""So many that are due are read at a time: to find them takes the longer the more wait, which must not be for each one that is sent."""

_log = structlog.get_logger(__name__)


class Notifier:
    """`run` until cancelled."""

    def __init__(
        self,
        database: Database,
        settings: NotificationSettings,
        home: Path,
        *,
        real_time: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Receivers live in real time, whatever the clock of the service: `real_time` is in seconds since the epoch."""
        self._database = database
        self._settings = settings
        self._home = home
        self._real_time = real_time
        self._chance = chance
        self._through: int | None = None
        """In the event log; None: as it is stored."""
        self._under_way: dict[WorkloadId, str] = {}
        """What is being sent, and to which host."""
        self._ready: dict[str, deque[DueDelivery]] = {}
        """What was read and is not being sent yet, by host: of each workload the oldest, and nothing that is under way."""
        self._reads_anew = True
        """There may be more for hosts of which nothing is ready."""
        self._news = asyncio.Event()
        """There is something to be sent, or room to send it."""

    async def run(self, lease: Lease, address: str) -> None:
        """What it finds counts only while the lease is ours. `address` is the service's own."""
        self._through = None
        self._under_way.clear()
        self._ready.clear()
        self._reads_anew = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._find_for_ever(lease))
            group.create_task(self._send_for_ever(address))

    # ------------------------------------------------------------ finding

    async def _find_for_ever(self, lease: Lease) -> None:
        async with self._database.listen(EVENT_CHANNEL) as subscription:
            while True:
                try:
                    complete = await self.find(lease)
                except (LeaseLost, DatabaseUnavailable) as error:
                    _log.warning("notifications wait", error=str(error))
                    await asyncio.sleep(_RETRY_REAL_S)
                    continue
                if complete and await subscription.wait(_LOOK_REAL_S):
                    await asyncio.sleep(_DEBOUNCE_REAL_S)  # what comes meanwhile is taken along

    async def find(self, lease: Lease) -> bool:
        """Stores what is to be told of the next events; True: there are no more now."""
        found: FoundEvents = await self._database.run(partial(notification_store.find, after=self._through))
        if found.worth_storing:
            new = [one for one in map(delivery_of, found.events) if one is not None]
            async with fenced_transaction(self._database, lease) as connection:
                await notification_store.store(connection, new, found.through, self._real_time())
            for one in new:
                self._look_for_more(one.host)
        self._through = found.through
        return found.complete

    # ------------------------------------------------------------ sending

    def sender(self, address: str) -> HttpSender:
        """What sends from a service with that address; to be opened."""
        # Most services never need it.
        from services.notifications.sender import HttpSender

        return HttpSender(target_rules(self._settings, address), self._settings.timeout_real_s)

    async def _send_for_ever(self, address: str) -> None:
        senders: list[HttpSender] = []
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            while True:
                self._news.clear()
                try:
                    next_due_real_s = await self._database.run(
                        partial(notification_store.next_due_real_s, after_real_s=self._real_time())
                    )
                    due = await self._due()
                except DatabaseUnavailable as error:
                    _log.warning("notifications wait", error=str(error))
                    await asyncio.sleep(_RETRY_REAL_S)
                    continue
                if due and not senders:
                    senders.append(await stack.enter_async_context(self.sender(address)))
                for delivery in due:
                    self._under_way[delivery.workload] = delivery.host
                    group.create_task(self._send_one(senders[0], delivery))
                if not await self._has_news(next_due_real_s):
                    self._reads_anew = True

    async def _has_news(self, next_due_real_s: float | None) -> bool:
        """Waits until something may be sent; False: because of the time."""
        timeout_s = _LOOK_REAL_S
        if next_due_real_s is not None:
            timeout_s = min(timeout_s, max(0.0, next_due_real_s - self._real_time()))
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _look_for_more(self, host: str) -> None:
        """There may be something to be sent to that host, and room for it."""
        self._reads_anew = self._reads_anew or host not in self._ready
        self._news.set()

    async def _due(self) -> list[DueDelivery]:
        """What is to be sent now, as far as there is room for it."""
        if len(self._under_way) >= _AT_ONCE:
            return []
        if self._reads_anew or not self._ready:
            await self._read_due()
        chosen: list[DueDelivery] = []
        room = _AT_ONCE - len(self._under_way)
        of_host = Counter(self._under_way.values())
        # In turn, so that no host has all the room.
        while hosts := [host for host in self._hosts_with_room() if of_host[host] < _PER_HOST]:
            for host in hosts:
                if len(chosen) == room:
                    return chosen
                of_host[host] += 1
                chosen.append(self._take(host))
        return chosen

    def _hosts_with_room(self) -> list[str]:
        """To which something that is ready may be sent."""
        of_host = Counter(self._under_way.values())
        return [host for host in self._ready if of_host[host] < _PER_HOST]

    def _take(self, host: str) -> DueDelivery:
        delivery = self._ready[host].popleft()
        if not self._ready[host]:
            del self._ready[host]
        return delivery

    async def _read_due(self) -> None:
        """What is ready, anew; of hosts that are as busy as may be it stays as it was."""
        of_host = Counter(self._under_way.values())
        busy = {host for host, sending in of_host.items() if sending >= _PER_HOST}
        read = partial(
            notification_store.due,
            now_real_s=self._real_time(),
            per_host=_READ_PER_HOST,
            at_most=_READ_AT_ONCE,
            under_way=tuple(self._under_way),
            without_hosts=busy,
        )
        self._reads_anew = False
        try:
            found = await self._database.run(read)
        except DatabaseUnavailable:
            self._reads_anew = True
            raise
        self._ready = {host: ready for host, ready in self._ready.items() if host in busy}
        for delivery in found:
            self._ready.setdefault(delivery.host, deque()).append(delivery)

    async def send_due(self, sender: HttpSender) -> int:
        """Sends what is due now, side by side, and notes the answers; returns how many that were."""
        due = await self._due()
        for delivery in due:
            self._under_way[delivery.workload] = delivery.host
        await asyncio.gather(*(self._send_one(sender, delivery) for delivery in due))
        return len(due)

    async def _send_one(self, sender: HttpSender, delivery: DueDelivery) -> None:
        try:
            failed = await self._try(sender, delivery)
            await self._note(delivery, failed)
        except DatabaseUnavailable as error:
            # It is sent once more: its receiver knows it by its name.
            _log.warning("the answer to a notification could not be noted", error=str(error))
            await asyncio.sleep(_RETRY_REAL_S)
        finally:
            self._under_way.pop(delivery.workload, None)
            self._look_for_more(delivery.host)

    async def _try(self, sender: HttpSender, delivery: DueDelivery) -> SendFailed | None:
        """Why it failed; None: it was delivered."""
        body = delivery.body.encode()
        try:
            signed = signature(await asyncio.to_thread(self._secret), body, self._real_time())
            await sender.send(delivery.url, body, delivery.name, signed)
        except SecretUnusable as unusable:
            _log.error("notifications cannot be signed", error=str(unusable))
            return SendFailed("it cannot be signed: the scheduler's secret cannot be read")
        except SendFailed as failed:
            return failed
        return None

    async def _note(self, delivery: DueDelivery, failed: SendFailed | None) -> None:
        if failed is None:
            await self._database.run(partial(notification_store.delivered, delivery=delivery))
            return
        error, now_real_s = str(failed), self._real_time()
        again_real_s = next_try_real_s(
            delivery.tries + 1,
            delivery.made_real_s,
            now_real_s,
            self._chance(),
            self._settings.give_up_after_real_s,
        )
        told = {"workload": delivery.workload, "host": delivery.host, "tries": delivery.tries + 1, "error": error}
        if failed.for_good or again_real_s is None:
            _log.warning("a notification is given up", **told)
            await self._database.run(partial(notification_store.given_up, delivery=delivery, error=error))
            return
        _log.info("a notification is sent again later", **told)
        await self._database.run(
            partial(
                notification_store.failed,
                delivery=delivery,
                error=error,
                now_real_s=now_real_s,
                due_real_s=again_real_s,
            )
        )

    def _secret(self) -> bytes:
        """Read each time: who changes it need not restart anything. Raises SecretUnusable."""
        configured = self._settings.secret_file
        return secret_at(self._home / MADE_SECRET) if configured is None else read_secret(Path(configured))
