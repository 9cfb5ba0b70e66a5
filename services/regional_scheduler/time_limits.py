"""Stops attempts of the region that have run for as long as their workloads allow (`domain.time_limit`).

Which reaches its limit next is kept in memory, and follows from the database after every restart: from when an attempt
started, and from what its workload says now. So the limit holds whatever stood still meanwhile, if only afterwards.
"""

from __future__ import annotations

import heapq

from cluster_manager.attempt_run.events import Eviction
from domain.clock import Clock
from domain.events import EvictionCause
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.time_limit import limit_reached_s
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.live_attempts import LiveAttempt, RegionAttempts
from services.tiers.fenced_transaction import fenced_transaction


class RunningLimits:
    """When the next of the attempts that run reaches its limit; those without one cost nothing."""

    def __init__(self) -> None:
        self._reached: list[tuple[float, AttemptKey]] = []
        """A heap. What has ended since, or has another limit by now, is left out when its turn comes."""

    def watch(self, attempt: LiveAttempt | None) -> None:
        """It runs, or has another limit from now on; None: it is gone already."""
        if attempt is not None and attempt.specification.max_time_s is not None and attempt.started_s is not None:
            heapq.heappush(self._reached, (_reached_s(attempt), attempt.key))

    def take_reached(self, live: RegionAttempts, now: float) -> list[LiveAttempt]:
        """Those that run and have reached their limits, sorted; each once.

        Those of which no cluster has said anything in this session may have ended long before their limits, with the machine or
        the service: their turn comes when that is known.
        """
        reached: dict[AttemptKey, LiveAttempt] = {}
        unheard: list[tuple[float, AttemptKey]] = []
        while self._reached and self._reached[0][0] <= now:
            reached_s, key = heapq.heappop(self._reached)
            attempt = live.get(key)
            if attempt is None or attempt.state is not State.RUNNING or _reached_s(attempt) > now:
                continue
            if attempt.reports:
                reached[key] = attempt
            else:
                unheard.append((reached_s, key))
        for entry in unheard:
            heapq.heappush(self._reached, entry)
        return [reached[key] for key in sorted(reached)]


class TimeLimits:
    """Asks attempts that have reached their limits to leave, each in the name of its own limit."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        live: RegionAttempts,
        running: RunningLimits,
        writer: EvictionWriter,
        clock: Clock,
    ) -> None:
        self._database = database
        self._lease = lease
        self._live = live
        self._running = running
        self._writer = writer
        self._clock = clock

    async def look(self) -> None:
        """Raises LeaseLost and DatabaseUnavailable."""
        reached = self._running.take_reached(self._live, self._clock.now())
        if not reached:
            return
        evictions = [
            (attempt.key, Eviction(EvictionCause.TIME_LIMIT, limit_s=attempt.specification.max_time_s))
            for attempt in reached
        ]
        async with fenced_transaction(self._database, self._lease) as connection:
            written = await self._writer.write_each(connection, evictions)
        for key, eviction in written.items():
            self._writer.begin([key], eviction)


def _reached_s(attempt: LiveAttempt) -> float:
    return limit_reached_s(attempt.started_s, attempt.specification.max_time_s)
