"""Makes room for waiting gangs, now and then: small attempts go on on other machines of the region (`regional_scheduler.compaction`).

It looks at what the last auctions refused. While anything of the region migrates it does not look again. Where nothing is to be
done within the region it looks at others, if the rule allows, as the database has them: what goes on here is this region's to plan.
"""

from __future__ import annotations

import asyncio

import structlog

from cluster_manager.attempt_run.emulated_work import EmulatedJob, emulated_work
from domain.clock import Clock
from domain.compaction import CompactionRule
from domain.events import EvictionCause
from domain.eviction import HOUR_S
from domain.life_cycle import State
from domain.workload import Emulated
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.compaction import (
    Compaction,
    RunningAttempt,
    WaitingGang,
    first_of_each_kind,
    plan_compactions,
    plan_intake,
    sources_of_intakes,
)
from regional_scheduler.requested_plans import AttemptToChange
from services.database import idle_store, queue_store, reservation_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.move_facts_store import MoveFacts, load_move_facts
from services.regional_scheduler.action_requests import ActionRefused
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.remaining_times import progress_at
from services.regional_scheduler.requested_actions import RequestedActions

_LOOK_REAL_S = 5.0
_LOOK_ELSEWHERE_REAL_S = 15.0
_MOST_SOURCES = 2
"""So many other regions are loaded at a look."""
_MOST_WAITING = 64
"""So many of the head of the queue are looked at, and of those that ask for the same the first."""
_NO_FACTS = MoveFacts(None, ())
_log = structlog.get_logger(__name__)


class Compacting:
    """Of one region; does nothing without a rule."""

    def __init__(
        self,
        database: Database,
        memory: RegionMemory,
        actions: RequestedActions,
        clock: Clock,
        rule: CompactionRule | None,
    ) -> None:
        self._database = database
        self._memory = memory
        self._actions = actions
        self._clock = clock
        self._rule = rule
        self._look_at_real_s = 0.0
        self._look_elsewhere_real_s = 0.0

    async def look(self, now_real_s: float) -> None:
        """Moves what the rule allows. Raises SessionOver and DatabaseUnavailable."""
        rule = self._rule
        if rule is None or now_real_s < self._look_at_real_s:
            return
        self._look_at_real_s = now_real_s + _LOOK_REAL_S
        if not self._memory.inventory.idle_gpus or self._memory.reserved or any(map(_migrates, self._memory.live)):
            return
        now = self._clock.now()
        found = await self._within(rule, now)
        if not found and rule.between_regions and now_real_s >= self._look_elsewhere_real_s:
            self._look_elsewhere_real_s = now_real_s + _LOOK_ELSEWHERE_REAL_S
            found = await self._from_elsewhere(rule, now)
        for compaction in found:
            try:
                await self._actions.compact(compaction)
            except ActionRefused as refused:
                _log.info("no room is made", workload=compaction.plan.workload, reason=str(refused))
            else:
                _log.info("room is made", workload=compaction.plan.workload, reason=compaction.sentence)

    async def _within(self, rule: CompactionRule, now: float) -> list[Compaction]:
        """For gangs that find idle GPUs here, but no machines."""
        inventory, region = self._memory.inventory, self._memory.region.region
        async with self._database.transaction() as connection:
            gangs = await self._gangs(connection, inventory.idle_gpus, self._memory.bidder, now)
            if not gangs:
                return []
            facts = await load_move_facts(connection, region, now - HOUR_S)
        running = [
            self._running(attempt, facts.get(attempt.key.workload, _NO_FACTS), now)
            for attempt in sorted(self._memory.live, key=lambda each: each.key)
            if _may_change(attempt)
        ]
        # In a thread: a region of many machines takes a while, and questions wait meanwhile.
        async with self._memory.steady:
            return await asyncio.to_thread(plan_compactions, inventory, gangs, running, rule, now)

    async def _from_elsewhere(self, rule: CompactionRule, now: float) -> list[Compaction]:
        """For a gang that lacks GPUs in another region, and no more than are idle here."""
        own = self._memory.region.region
        async with self._database.transaction() as connection:
            idle = await idle_store.idle_gpus(connection)
            waiting = await self._gangs(connection, sum(idle.values()), None, now)
            sources = sources_of_intakes([gang.gpus for gang in waiting], idle, own)
        for region in sources[:_MOST_SOURCES]:
            async with self._database.transaction() as connection:
                source = await load_memory(connection, region, now=now)
                if source is None or source.reserved or await reservation_store.of_departing(connection, region):
                    continue
                facts = await load_move_facts(connection, region, now - HOUR_S)
            gangs = [gang for gang in waiting if source.bidder.abandons(gang.workload.specification) is None]
            running = [
                self._running(attempt, facts.get(attempt.key.workload, _NO_FACTS), now)
                for attempt in sorted(source.live, key=lambda each: each.key)
                if _may_change(attempt) and self._memory.bidder.abandons(attempt.specification) is None
            ]
            if any(map(_migrates, source.live)):
                continue
            async with self._memory.steady:
                found = await asyncio.to_thread(
                    plan_intake, self._memory.inventory, source.inventory, gangs, running, rule, now
                )
            if found is not None:
                return [found]
        return []

    async def _gangs(
        self, connection: AnyConnection, most_gpus: int, bidder: RegionBidder | None, now: float
    ) -> list[WaitingGang]:
        """The first of each kind that waits; with a bidder, of those for which its region may plan."""
        waiting = await queue_store.load_waiting(connection, most_gpus, now, _MOST_WAITING)
        names = [entry.workload for entry in waiting]
        workloads = await self._memory.specifications.workloads(connection, names)
        return first_of_each_kind(
            WaitingGang(workloads[entry.workload], entry.within_quota, now - entry.queued_since_s)
            for entry in waiting
            if bidder is None or bidder.abandons(workloads[entry.workload].specification) is None
        )

    def _running(self, attempt: LiveAttempt, facts: MoveFacts, now: float) -> RunningAttempt:
        asked = self._memory.asked_again(attempt.specification, attempt.tuned.profiles, attempt.placements)
        changed = AttemptToChange(attempt.key, asked, attempt.placements, attempt.within_quota)
        if attempt.specification.emulated:
            age_s = _age_of_emulated(attempt, now)
        else:
            age_s = None if facts.saved_s is None else now - facts.saved_s
        return RunningAttempt(changed, age_s, facts.moved_s)


def _age_of_emulated(attempt: LiveAttempt, now: float) -> float | None:
    """How old the last checkpoint of emulated work is, which reports none; None: it has none."""
    jobs = tuple(
        [
            EmulatedJob(job.entry_point.duration_s, job.entry_point.checkpoint_interval_s)
            for job in attempt.specification.jobs
            if isinstance(job.entry_point, Emulated)
        ]
    )
    rate = attempt.tuned.rate(attempt.specification, attempt.placements)
    reached = progress_at(attempt, now)
    work = emulated_work(jobs, attempt.run.facts.progress_at_start, now, rate)._replace(progress=reached)
    saved = work.checkpoint_at(now)
    return (reached - saved) / rate if saved > 0 and rate > 0 else None


def _may_change(attempt: LiveAttempt) -> bool:
    """It runs as it was asked for, and no change of it is under way."""
    return attempt.state is State.RUNNING and attempt.change is None and _has_base_tasks_alone(attempt)


def _migrates(attempt: LiveAttempt) -> bool:
    eviction = attempt.run.eviction
    return eviction is not None and eviction.cause is EvictionCause.MIGRATED


def _has_base_tasks_alone(attempt: LiveAttempt) -> bool:
    return len(attempt.placements) == sum(job.tasks for job in attempt.specification.jobs)
