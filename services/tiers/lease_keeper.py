"""Keeps a lease: acquires it, has it renewed in a thread of its own, and says when it is lost.

Several processes may be started for the same tier: one holds the lease and leads, the others stand by (MAST §4.5).
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import suppress
from typing import Final

import structlog

from services.database import lease_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.lease_store import Lease, SeenLease
from services.metrics.service_metrics import ServiceMetrics
from services.tiers.lease_renewal import LeaseRenewal, RenewalEnd
from services.tiers.lease_times import SILENCE_REAL_S, LeaseTimes
from services.tiers.standing_by import StandingBy

_LONGEST_BETWEEN_TURNS_REAL_S: Final = 1.0
_SHORTEST_BETWEEN_LOOKS_REAL_S: Final = 0.02

_log = structlog.get_logger(__name__)


class LeaseKeeper:
    """One lease of one process. `wait_until_held` before working; the work must end when `keep` does."""

    def __init__(
        self,
        database: Database,
        name: str,
        holder: str,
        address: str,
        duration_real_s: float,
        *,
        silence_real_s: float = SILENCE_REAL_S,
        tasks_stop_after_real_s: float | None = None,
        metrics: ServiceMetrics | None = None,
    ) -> None:
        """`silence_real_s`: after so long without a turn of the event loop the lease is not renewed any more.

        `tasks_stop_after_real_s`: for how long tasks that this process watches over may outlive the lease.
        """
        self._database = database
        self._name = name
        self._holder = holder
        self._address = address
        self._duration_s = duration_real_s
        self._silence_s = silence_real_s
        self._tasks_stop_after_s = tasks_stop_after_real_s
        self._certain_until_real_s = 0.0
        self._leader_address: str | None = None
        self._metrics = metrics or ServiceMetrics()
        self._held = self._metrics.lease_held.labels(name)
        self._renewal_seconds = self._metrics.lease_renewal_seconds.labels(name)
        for end in (RenewalEnd.LOST, RenewalEnd.SILENT, RenewalEnd.FAILED):
            # Present from the beginning, so that the first one is seen to be one more.
            self._metrics.leases_lost.labels(name, end.name.lower())

    @property
    def leader_address(self) -> str | None:
        """Where the process answers that held the lease when this one looked last; None: none did, or this one does."""
        return self._leader_address

    @property
    def certain(self) -> bool:
        """True when no other process can have the lease at this moment, whatever happened to this process meanwhile."""
        return asyncio.get_running_loop().time() < self._certain_until_real_s

    def certain_until_real_s(self) -> float:
        """Until when that is so if nothing more is heard of the lease, on the machine's monotonic clock."""
        return self._certain_until_real_s

    async def wait_until_held(self) -> Lease:
        """Tries until the lease is ours: each time with a greater token, also when it was ours before."""
        standing_by = StandingBy(self._database, self._name, self._holder, self._address, self._duration_s)
        try:
            return await self._wait(standing_by)
        finally:
            standing_by.end()

    async def _wait(self, standing_by: StandingBy) -> Lease:
        while True:
            asked_real_s = asyncio.get_running_loop().time()
            found = await self._database.run(self._acquire, give_up_after_s=float("inf"))
            if isinstance(found, Lease):
                self._certain_until_real_s = asked_real_s + self._duration_s
                self._leader_address = None
                self._held.set(1)
                _log.info("lease acquired", name=self._name, address=self._address, token=found.token)
                return found
            self._leader_address = found.address
            if standing_by.begin():
                _log.info("standing by: another process holds the lease", name=self._name, leader=found.address)
            # When it is not renewed any more, it is ours the moment it ends.
            await asyncio.sleep(min(self._duration_s / 3, max(found.left_s, _SHORTEST_BETWEEN_LOOKS_REAL_S)))

    async def _acquire(self, connection: AnyConnection) -> Lease | SeenLease:
        """The lease, or how it stands where another process holds it: who only looks never holds up who writes."""
        seen = await lease_store.look(connection, self._name)
        if seen is not None and seen.left_s > 0.0 and seen.holder != self._holder:
            return seen
        lease = await lease_store.acquire(
            connection,
            self._name,
            self._holder,
            self._address,
            os.getpid(),
            self._duration_s,
            self._tasks_stop_after_s,
        )
        # Another process was a moment earlier: the next look finds it.
        return lease or seen or SeenLease("", "", 0.0)

    async def keep(self, lease: Lease) -> None:
        """Has it renewed however busy the event loop is; ends when another process has it, or may have it.

        While the database is away, holding on is all one can do. A loop that makes no turn for too long finds its lease
        given up when it goes on.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[RenewalEnd] = loop.create_future()
        times = LeaseTimes(self._duration_s, self._silence_s)
        renewal = LeaseRenewal(self._database.url, lease, times, self._renewed, self._given_up)

        def tell(why: RenewalEnd) -> None:
            # A loop that is closed keeps nothing any more: its process ends.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set_result, why)

        threading.Thread(target=renewal.run, args=(tell,), name=f"lease {self._name}", daemon=True).start()
        try:
            while not ended.done():
                renewal.turn()
                await asyncio.wait({ended}, timeout=min(_LONGEST_BETWEEN_TURNS_REAL_S, self._silence_s / 10))
        finally:
            # Nothing is renewed any more when the lease is given back, or acquired anew.
            renewal.stop()
            await asyncio.wait({ended})
            self._held.set(0)
        self._metrics.leases_lost.labels(self._name, ended.result().name.lower()).inc()
        _log.warning("lease lost", name=self._name, token=lease.token, why=ended.result().value)

    def found_lost(self) -> None:
        """Who works under the lease was told so, before its renewal was."""
        self._metrics.leases_lost.labels(self._name, RenewalEnd.LOST.name.lower()).inc()

    def _renewed(self, asked_real_s: float) -> None:
        """In the thread that renews it."""
        self._certain_until_real_s = asked_real_s + self._duration_s
        self._renewal_seconds.observe(time.monotonic() - asked_real_s)

    def _given_up(self) -> None:
        self._certain_until_real_s = 0.0

    async def release(self, lease: Lease) -> None:
        """Gives the lease up, so that a standby need not wait for its end."""
        # Before another process can have it.
        self._given_up()
        try:
            await self._database.run(
                lambda connection: lease_store.release(connection, lease), give_up_after_s=self._duration_s
            )
        except DatabaseUnavailable as error:
            _log.warning("the lease could not be released", name=self._name, error=str(error))
