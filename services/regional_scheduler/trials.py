"""Trials that are over: attempts that were placed when nothing was known of their models, and whose models are known by now.

What is written is the plan that follows (`regional_scheduler.trial`), if any. A new session looks at its attempts anew, as soon
as their tasks report again: one that has been moved was placed by what was known, and is on no trial.
"""

from __future__ import annotations

import asyncio
import heapq

import structlog

from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.plan import Plan
from services.database.engine import Database
from services.database.profile_store import NamedWorkload, unknown_at
from services.regional_scheduler.action_requests import TrialOverRequest
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.requested_actions import RequestedActions

_log = structlog.get_logger(__name__)


class Trials:
    """Looks at each attempt once: when it has run for so long, or has reported, whichever is later."""

    def __init__(
        self, database: Database, memory: RegionMemory, actions: RequestedActions, trial_s: float | None
    ) -> None:
        self._database = database
        self._memory = memory
        self._actions = actions
        self._trial_s = trial_s
        self._due: list[tuple[float, AttemptKey]] = []
        """A heap."""
        self._noted: set[AttemptKey] = set()
        """Those on the heap: an attempt of several jobs may report them one after the other."""

    async def look(self, now: float) -> None:
        """Moves those whose trial is over, if that is to be. Raises SessionOver and DatabaseUnavailable."""
        reported, self._memory.newly_reported = self._memory.newly_reported, []
        if self._trial_s is None:
            return
        for key in reported:
            attempt = self._memory.live.get(key)
            if attempt is not None and key not in self._noted:
                self._noted.add(key)
                started_s = now if attempt.started_s is None else attempt.started_s
                heapq.heappush(self._due, (started_s + self._trial_s, key))
        over = []
        while self._due and self._due[0][0] <= now:
            over.append(heapq.heappop(self._due)[1])
        self._noted.difference_update(over)
        for key in await self._on_trial(over):
            await self._end(key)

    async def _on_trial(self, keys: list[AttemptKey]) -> list[AttemptKey]:
        """Those of them that run, and were dispatched before anything was known."""
        running = [
            attempt
            for key in keys
            if (attempt := self._memory.live.get(key)) is not None and attempt.state is State.RUNNING
        ]
        if not running:
            return []
        wanted = [
            (NamedWorkload(one.key.workload, one.tenant, one.specification.name), one.dispatched_s) for one in running
        ]
        async with self._database.transaction() as connection:
            unknown = await unknown_at(connection, wanted)
        return sorted(one.key for one in running if one.key.workload in unknown)

    async def _end(self, key: AttemptKey) -> None:
        plan: asyncio.Future[Plan] = asyncio.get_running_loop().create_future()
        await self._actions.answer([TrialOverRequest(workload=key.workload, plan=plan)])
        stays = plan.exception()
        if stays is None:
            _log.info("trial over: goes on on fewer machines", workload=key.workload, attempt=key.attempt)
        else:
            _log.debug("trial over: stays where it is", workload=key.workload, attempt=key.attempt, reason=str(stays))
