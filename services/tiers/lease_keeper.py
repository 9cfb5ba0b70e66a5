"""Keeps a lease: acquires it, renews it, and says when it is lost.

Two processes may be started for the same tier: one holds the lease and works, the other stands by (MAST §4.5).
"""

from __future__ import annotations

import asyncio
import os

import structlog

from services.database import lease_store
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.lease_store import Lease

_log = structlog.get_logger(__name__)


class LeaseKeeper:
    """One lease of one process. `wait_until_held` before working; the work must end when `keep` does."""

    def __init__(self, database: Database, name: str, holder: str, address: str, duration_real_s: float) -> None:
        self._database = database
        self._name = name
        self._holder = holder
        self._address = address
        self._duration_s = duration_real_s
        self._certain_until_real_s = 0.0

    @property
    def certain(self) -> bool:
        """True when no other process can have the lease at this moment, whatever happened to this process meanwhile."""
        return asyncio.get_running_loop().time() < self._certain_until_real_s

    def certain_until_real_s(self) -> float:
        """Until when that is so if nothing more is heard of the lease, on the machine's monotonic clock."""
        return self._certain_until_real_s

    async def wait_until_held(self) -> Lease:
        """Tries until the lease is ours: each time with a greater token, also when it was ours before."""
        standing_by = False
        while True:
            asked_real_s = asyncio.get_running_loop().time()
            lease = await self._database.run(
                lambda connection: lease_store.acquire(
                    connection, self._name, self._holder, self._address, os.getpid(), self._duration_s
                ),
                give_up_after_s=float("inf"),
            )
            if lease is not None:
                self._certain_until_real_s = asked_real_s + self._duration_s
                _log.info("lease acquired", name=self._name, address=self._address, token=lease.token)
                return lease
            if not standing_by:
                _log.info("standing by: another process holds the lease", name=self._name)
                standing_by = True
            await asyncio.sleep(self._duration_s / 3)

    async def keep(self, lease: Lease) -> None:
        """Renews; ends when another process has it. While the database is away, holding on is all one can do."""
        while True:
            await asyncio.sleep(self._duration_s / 3)
            asked_real_s = asyncio.get_running_loop().time()
            try:
                held = await self._database.run(
                    lambda connection: lease_store.renew(connection, lease, self._duration_s),
                    give_up_after_s=self._duration_s,
                )
            except DatabaseUnavailable as error:
                _log.warning("the lease could not be renewed", name=self._name, error=str(error))
                continue
            if not held:
                _log.warning("lease lost", name=self._name, token=lease.token)
                return
            self._certain_until_real_s = asked_real_s + self._duration_s

    async def release(self, lease: Lease) -> None:
        """Gives the lease up, so that a standby need not wait for its end."""
        try:
            await self._database.run(
                lambda connection: lease_store.release(connection, lease), give_up_after_s=self._duration_s
            )
        except DatabaseUnavailable as error:
            _log.warning("the lease could not be released", name=self._name, error=str(error))
