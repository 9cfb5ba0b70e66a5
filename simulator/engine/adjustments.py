"""Rounds over what runs: when they are due, and that what they decide is carried out (`regional_scheduler.adjustment`).

A round is due at the next multiple of `round_s` after anything happened, so that an idle world has none. It comes after
whatever starts at the same instant: what is left over then is given out. What starts in the room that a round makes has a
round of its own, still at that instant. A run that begins with what is running begins with a round.
"""

from __future__ import annotations

import math

from domain.life_cycle import State
from domain.placement import TaskPlacement
from regional_scheduler.adjustment import AdjustableAttempt, adjust
from regional_scheduler.tuning import TunedInPlace
from simulator.engine.attempts import Attempts
from simulator.engine.event_queue import Happens
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World


class Adjustments:
    """Holds the rounds. A policy that neither resizes nor tunes has none."""

    def __init__(self, world: World, attempts: Attempts, start_s: float) -> None:
        self._world = world
        self._attempts = attempts
        self._start_s = start_s
        mechanism = world.policy.tuning
        self._tuning = None if mechanism is None else TunedInPlace(mechanism)
        self._adjusts = world.policy.elastic is not None or self._tuning is not None
        self._known: dict[int, AdjustableAttempt] = {}
        """What the last round was told of attempts, by the index of their workload."""
        self._scheduled = False
        self._due = False
        if self._adjusts:
            world.observers += (self,)

    def expect(self, now: float) -> None:
        """Something has happened: there is a round at the next multiple of the period."""
        if not self._adjusts or self._scheduled:
            return
        period_s = self._world.settings.round_s
        due_s = self._start_s + math.ceil((now - self._start_s) / period_s) * period_s
        self._world.events.add(max(now, due_s), Happens.ROUND)
        self._scheduled = True

    def begin(self, now: float) -> None:
        """The run begins: what runs there already, as a snapshot has it, is adjusted first."""
        if self._world.live:
            self.expect(now)

    def fall_due(self) -> None:
        """The time of the round has come: it is held when all else of this instant has happened."""
        self._scheduled = False
        self._due = True

    def hold_due(self, now: float) -> bool:
        """Holds the round that is due, if there is one: in all regions, in their order. Whether anything was changed."""
        if not self._due:
            return False
        self._due = False
        world, changed = self._world, False
        for region, member in enumerate(world.regions.members):
            attempts = self._adjustable(region, now)
            if attempts:
                waits = len(world.queue) > 0
                elastic, tuning = world.policy.elastic, self._tuning
                actions = adjust(member.inventory, attempts, elastic, tuning, now, anything_waits=waits)
                if actions:
                    self._attempts.carry_out(region, actions)
                    changed = True
        return changed

    def comes_to_queue(self, work: SimulatedWorkload) -> None:
        """What waits is not adjusted."""

    def started(self, work: SimulatedWorkload) -> None:
        """It runs from now on: in the round that is due, or in one that still comes."""
        if not self._due:
            self.expect(work.started_s)

    def completed(self, work: SimulatedWorkload) -> None:
        """Its completion is an event, after which a round is due in any case."""

    def _adjustable(self, region: int, now: float) -> list[AdjustableAttempt]:
        """Those that run in the region, with what it says that they hold."""
        world = self._world
        inventory = world.regions.members[region].inventory
        found: dict[int, AdjustableAttempt] = {}
        for work in world.live.values():
            if work.region != region or work.state is not State.RUNNING or self._attempts.change_waits(work):
                continue
            holding = inventory.holding(work.key)
            if holding is not None:
                found[work.index] = self._told(work, holding.placements, now)
        self._known = found
        return list(found.values())

    def _told(self, work: SimulatedWorkload, placements: tuple[TaskPlacement, ...], now: float) -> AdjustableAttempt:
        """What a round is told of it: what the last one was, if nothing is different."""
        known = self._known.get(work.index)
        if (
            known is not None
            and self._world.policy.elastic is None
            and known.placements is placements
            and known.key == work.key
            and known.standing == work.standing
        ):
            return known
        # Only elastic policies ask how much is left to do.
        remaining_s = math.inf
        if self._world.policy.elastic is not None:
            remaining_s = max(0.0, work.estimate * work.work_s - work.progress_at(now))
        return AdjustableAttempt(
            work.key,
            work.workload.specification,
            placements,
            work.guaranteed,
            work.standing,
            work.started_s,
            remaining_s,
            self._world.speed.profiles_of(work.workload.specification),
        )
