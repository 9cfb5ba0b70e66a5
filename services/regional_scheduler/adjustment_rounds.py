"""The round over what runs in a region, every `round_s` (design §3.5): decided as in simulations, carried out as any plan is.

Base tasks come first (Lyra §5.2): while the queue has workloads of which no region knows yet whether they have room, a
round that gives out flexible tasks waits for them, but not for long. Whatever it gives out is there for newcomers still.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import structlog

from cluster_manager.capacity.errors import InventoryError
from domain.clock import Clock
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.placement_changes import ImpossibleAction
from domain.plan import Action, Retune, ScaleIn, ScaleOut
from regional_scheduler.adjustment import AdjustableAttempt, ElasticPolicy, adjust
from regional_scheduler.one_change_each import one_change_each
from regional_scheduler.plan_application import apply_actions
from services.database import queue_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.plan_writing import PlanWriting, write_changes
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.remaining_times import NOT_KNOWN, RemainingTime, remaining_times
from services.tiers.fenced_transaction import fenced_transaction

PATIENCE = 0.1
"""The share of a period that a round waits for workloads that no region has answered yet."""

MOST_AT_ONCE = 128
"""So many changes are written in one turn of the session's loop: a round over thousands of attempts holds up nothing else."""

NO_TIMES: Mapping[AttemptKey, RemainingTime] = {}

_log = structlog.get_logger(__name__)


class AdjustmentRounds:
    """Holds the rounds of one session. There are none where nothing is resized or tuned."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        memory: RegionMemory,
        eviction_writer: EvictionWriter,
        clock: Clock,
        round_s: float,
        elastic: ElasticPolicy | None = None,
        most_at_once: int = MOST_AT_ONCE,
    ) -> None:
        self._database = database
        self._lease = lease
        self._memory = memory
        self._eviction_writer = eviction_writer
        self._clock = clock
        self._round_s = round_s
        self._elastic = elastic
        self._most_at_once = most_at_once
        self._due_s = self._next(clock.now())
        self._times: Mapping[AttemptKey, RemainingTime] = NO_TIMES
        self._left: tuple[Action, ...] = ()
        """What the last round decided and is not written yet. A new session does without: its next round decides anew."""
        self._decided_on: frozenset[AttemptKey] = frozenset()
        """The attempts that there were then."""

    async def hold_due(self) -> bool:
        """Holds the round that is due, if there is one, or goes on with the last; whether more of it is left.

        Raises SessionOver when the database knows an attempt otherwise.
        """
        await self._begin_due()
        if self._left and not self._still_holds():
            _log.info("the rest of a round waits for the next", region=self._memory.region.region, left=len(self._left))
            self._left = ()
        part, self._left = self._left[: self._most_at_once], self._left[self._most_at_once :]
        if part:
            await self._write(part)
        return bool(self._left)

    async def _begin_due(self) -> None:
        """Decides, if a round is due."""
        memory, now = self._memory, self._clock.now()
        if (memory.tuning is None and self._elastic is None) or self._left or now < self._due_s:
            return
        adjustable = adjustable_attempts(memory)
        times, waits = NO_TIMES, False
        if adjustable and self._elastic is not None:
            # Only elastic policies ask who waits, and how much is left to do.
            waiting = await self._database.run(partial(queue_store.who_waits, now=now))
            if waiting.untried and now < self._due_s + PATIENCE * self._round_s:
                return
            waits = waiting.any
            times = await self._database.run(partial(_times_of, attempts=adjustable, now=now))
        self._due_s, self._times = self._next(now), times
        self._decided_on = frozenset([attempt.key for attempt in memory.live])
        if not adjustable:
            return
        if memory.tuning is not None:
            memory.tuning.keep_only({attempt.key for attempt in memory.live})
        attempts = as_told(adjustable, now, times)
        try:
            # In a thread: leases are kept, and calls answered, however long the policies take.
            async with memory.steady:
                self._left = await asyncio.to_thread(
                    decided, memory, attempts, self._elastic, now, anything_waits=waits
                )
        except (ImpossibleAction, InventoryError) as error:
            # Nothing was changed; what runs goes on with what it holds.
            _log.error("a round over what runs failed", region=memory.region.region, error=str(error))

    def _still_holds(self) -> bool:
        """Whether what is left was decided on what there is: nothing has come since, and all that it needs takes part."""
        memory = self._memory
        if any(attempt.key not in self._decided_on for attempt in memory.live):
            return False
        for action in self._left[: self._most_at_once]:
            if not isinstance(action, ScaleIn | ScaleOut | Retune):
                continue
            attempt = memory.live.get(action.attempt)
            if attempt is None or not _is_adjustable(memory, attempt):
                return False
            if isinstance(action, ScaleOut) and not all(
                memory.machine_state(placement.machine).takes_work for placement in action.added
            ):
                return False
        return True

    async def _write(self, actions: Sequence[Action]) -> None:
        """A part of what was decided: in one transaction, then in memory.

        What others were dispatched, ended or changed meanwhile may stand in its way. Then the rest is left to the next round.
        """
        memory, now = self._memory, self._clock.now()
        writing = PlanWriting(memory.region.region, memory.live, now)
        try:
            with memory.inventory.tentatively():
                apply_actions(memory.inventory, actions, now)
            writing.add_actions(actions)
        except (ImpossibleAction, InventoryError) as error:
            self._left = ()
            _log.info("the rest of a round waits for the next", region=memory.region.region, why=str(error))
            return
        async with fenced_transaction(self._database, self._lease) as connection:
            await write_changes(connection, memory.region.region, writing.writes, now)
        apply_actions(memory.inventory, actions, now)
        self._eviction_writer.carry_out(writing.writes)
        for action in actions:
            if isinstance(action, ScaleIn | ScaleOut):
                _log.info("resized in a round", **_described(action, self._times))

    def _next(self, now: float) -> float:
        """The next multiple of the period: the same whichever session holds it."""
        return (math.floor(now / self._round_s) + 1) * self._round_s


async def _times_of(
    connection: AnyConnection, attempts: Iterable[LiveAttempt], now: float
) -> Mapping[AttemptKey, RemainingTime]:
    """Of those that are elastic."""
    return await remaining_times(connection, [one for one in attempts if one.specification.base_tasks], now)


def adjustable_attempts(memory: RegionMemory) -> list[LiveAttempt]:
    """Those that run, that carry out no earlier change any more, and whose clusters can be asked to carry out one."""
    return [attempt for attempt in memory.live if _is_adjustable(memory, attempt)]


def _is_adjustable(memory: RegionMemory, attempt: LiveAttempt) -> bool:
    return (
        attempt.state is State.RUNNING
        and attempt.change is None
        and not any(cluster in memory.closed for cluster in attempt.clusters)
    )


def as_told(
    attempts: Iterable[LiveAttempt], now: float, times: Mapping[AttemptKey, RemainingTime] = NO_TIMES
) -> list[AdjustableAttempt]:
    """What a round at this time is told of these attempts, which have so much left to do."""
    return [
        AdjustableAttempt(
            attempt.key,
            attempt.specification,
            attempt.placements,
            attempt.within_quota,
            attempt.standing,
            attempt.started_s or attempt.dispatched_s,
            times.get(attempt.key, NOT_KNOWN).remaining_s,
            attempt.tuned.profiles,
            may_grow=attempt.may_grow_from_s <= now,
        )
        for attempt in attempts
    ]


def decided(
    memory: RegionMemory,
    attempts: list[AdjustableAttempt],
    elastic: ElasticPolicy | None,
    now: float,
    *,
    anything_waits: bool = False,
) -> tuple[Action, ...]:
    """What is to be resized and retuned now, each attempt once. Raises ImpossibleAction or InventoryError."""
    tuning = None if memory.tuning is None else memory.tuning.in_place
    attempts = [
        replace(one, specification=memory.asked_again(one.specification, one.profiles, one.placements))
        for one in attempts
    ]
    actions = adjust(memory.inventory, attempts, elastic, tuning, now, anything_waits=anything_waits)
    return one_change_each(memory.inventory, actions, now)


def _described(action: ScaleIn | ScaleOut, times: Mapping[AttemptKey, RemainingTime]) -> dict[str, object]:
    """For the log: by how many tasks, and by which estimate of what is left."""
    time = times.get(action.attempt, NOT_KNOWN)
    tasks = len(action.added) if isinstance(action, ScaleOut) else -len(action.released)
    remaining_s = round(time.remaining_s, 1) if math.isfinite(time.remaining_s) else None
    return {
        "workload": str(action.attempt.workload),
        "tasks": tasks,
        "remaining_s": remaining_s,
        "by": time.source.name.lower(),
    }
