"""Live attempts change their levels at the instant of the crossing: a timer beside the scan passes."""

from __future__ import annotations

import asyncio
import math
from functools import partial

import structlog

from global_scheduler.knowledge import OracleNeeded
from global_scheduler.level_changes import level_changes
from global_scheduler.policy_failed import PolicyFailed
from services.clock import ServiceClock
from services.configuration import Configuration
from services.database.channels import START_CHANNEL
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.lease_store import Lease, LeaseLost
from services.global_scheduler.scan_decision import load_running
from services.global_scheduler.scan_record import parts_of, record_level_changes

_RETRY_REAL_S = 1.0

_REST = 3.0
"""After a look of t seconds the next one waits for three times that at least: where thousands cross one after the
other, some of them cross that much late, and all others have the time in between."""

_log = structlog.get_logger(__name__)


class LevelTimer:
    """Reclassifies attempts when they cross into another level. `run` until cancelled."""

    def __init__(self, database: Database, clock: ServiceClock, configuration: Configuration) -> None:
        self._database = database
        self._clock = clock
        self._look_real_s = configuration.scan.period_real_s
        self._settings = configuration.scan_settings()
        self._estimates = configuration.estimates

    @property
    def needed(self) -> bool:
        """Whether any priority has levels."""
        return any(rule.levels is not None for rule in self._settings.rules)

    async def run(self, lease: Lease) -> None:
        """What it records counts only while the lease is ours."""
        if not self.needed:
            await asyncio.Event().wait()
        async with self._database.listen(START_CHANNEL) as subscription:
            while True:
                started_real_s = asyncio.get_running_loop().time()
                try:
                    next_change_s = await self.change_levels(lease)
                except (PolicyFailed, OracleNeeded) as failed:
                    # Levels stay as they are, and everything else goes on.
                    _log.error("level changes given up: a policy of scheduler.yaml failed", error=str(failed))
                    next_change_s = math.inf
                except (LeaseLost, DatabaseUnavailable) as error:
                    _log.warning("level changes given up", error=str(error))
                    await asyncio.sleep(_RETRY_REAL_S)
                    continue
                await asyncio.sleep(_REST * (asyncio.get_running_loop().time() - started_real_s))
                timeout_s = self._look_real_s
                if not math.isinf(next_change_s):
                    left_s = self._clock.real_seconds(next_change_s - self._clock.now())
                    timeout_s = min(timeout_s, max(0.0, left_s))
                await subscription.wait(timeout_s)

    async def change_levels(self, lease: Lease) -> float:
        """Changes what has crossed; returns when the next attempt crosses. Infinity: never."""
        now = self._clock.now()
        running = await self._database.run(partial(load_running, now=now, estimates=self._estimates), snapshot=True)
        # In a thread: calls are answered meanwhile.
        decided = await asyncio.to_thread(level_changes, running, self._settings.rules, now)
        for changes in parts_of(decided.changes):
            await self._database.run(partial(record_level_changes, lease=lease, changes=changes, clock=self._clock))
        return decided.next_change_s
