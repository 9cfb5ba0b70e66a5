"""The round over what runs in a region, every `round_s` (design §3.5): decided as in simulations, carried out as any plan is."""

from __future__ import annotations

import asyncio
import math

import structlog

from cluster_manager.capacity.errors import InventoryError
from domain.clock import Clock
from domain.life_cycle import State
from domain.placement_changes import ImpossibleAction
from domain.plan import Action
from regional_scheduler.adjustment import AdjustableAttempt, adjust
from regional_scheduler.one_change_each import one_change_each
from regional_scheduler.plan_application import apply_actions
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.attempt_tuning import AttemptTuning
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.plan_writing import PlanWriting, write_changes
from services.regional_scheduler.region_memory import RegionMemory
from services.tiers.fenced_transaction import fenced_transaction

_log = structlog.get_logger(__name__)


class AdjustmentRounds:
    """Holds the rounds of one session. There are none where nothing is tuned."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        memory: RegionMemory,
        eviction_writer: EvictionWriter,
        clock: Clock,
        round_s: float,
    ) -> None:
        self._database = database
        self._lease = lease
        self._memory = memory
        self._eviction_writer = eviction_writer
        self._clock = clock
        self._round_s = round_s
        self._due_s = self._next(clock.now())

    async def hold_due(self) -> None:
        """Holds the round that is due, if there is one. Raises SessionOver when the database knows an attempt otherwise."""
        tuning, now = self._memory.tuning, self._clock.now()
        if tuning is None or now < self._due_s:
            return
        self._due_s = self._next(now)
        attempts = adjustable_attempts(self._memory)
        if attempts:
            await self._hold(tuning, attempts, now)

    async def _hold(self, tuning: AttemptTuning, attempts: list[AdjustableAttempt], now: float) -> None:
        memory = self._memory
        tuning.keep_only({attempt.key for attempt in memory.live})
        try:
            # In a thread: leases are kept, and calls answered, however long the mechanism takes.
            async with memory.steady:
                actions = await asyncio.to_thread(decided, memory, tuning, attempts, now)
        except (ImpossibleAction, InventoryError) as error:
            # Nothing was changed; what runs goes on with what it holds.
            _log.error("a round of tuning failed", region=memory.region.region, error=str(error))
            return
        if not actions:
            return
        async with fenced_transaction(self._database, self._lease) as connection:
            writing = PlanWriting(memory.region.region, memory.live, now)
            writing.add_actions(actions)
            await write_changes(connection, memory.region.region, writing.writes, now)
        apply_actions(memory.inventory, actions, now)
        self._eviction_writer.carry_out(writing.writes)

    def _next(self, now: float) -> float:
        """The next multiple of the period: the same whichever session holds it."""
        return (math.floor(now / self._round_s) + 1) * self._round_s


def adjustable_attempts(memory: RegionMemory) -> list[AdjustableAttempt]:
    """Those that run, and carry out no earlier change any more."""
    return [
        AdjustableAttempt(
            attempt.key,
            attempt.specification,
            attempt.placements,
            attempt.within_quota,
            attempt.standing,
            attempt.started_s or attempt.dispatched_s,
            math.inf,
            attempt.tuned.profiles,
        )
        for attempt in memory.live
        if attempt.state is State.RUNNING and attempt.change is None
    ]


def decided(
    memory: RegionMemory, tuning: AttemptTuning, attempts: list[AdjustableAttempt], now: float
) -> tuple[Action, ...]:
    """What is to be retuned now. Raises ImpossibleAction or InventoryError."""
    actions = adjust(memory.inventory, attempts, None, tuning.in_place, now, anything_waits=False)
    return one_change_each(memory.inventory, actions, now)
