"""Compaction in simulations: after a pass along the queue, room is made for waiting gangs that find idle GPUs but no machines."""

from __future__ import annotations

from domain.compaction import CompactionRule
from domain.eviction import HOUR_S
from domain.identifiers import RegionId
from domain.life_cycle import State
from regional_scheduler.compaction import (
    MOST_KINDS,
    Compaction,
    RunningAttempt,
    WaitingGang,
    plan_compactions,
    plan_intake,
    sources_of_intakes,
)
from regional_scheduler.requested_plans import AttemptToChange
from simulator.engine.attempts import Attempts
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World


class Compacting:
    """Moves attempts as the rule has it."""

    def __init__(self, world: World, attempts: Attempts) -> None:
        self._world = world
        self._attempts = attempts
        self._rule = world.settings.compaction.rule()
        self._moved_s: dict[int, tuple[float, ...]] = {}
        """When workloads were moved in the last hour, by index."""
        self.moves = 0
        self.gangs = 0

    def make_room(self, now: float) -> None:
        """What has just been refused may find machines after these moves."""
        rule, members = self._rule, self._world.regions.members
        if rule is None or not len(self._world.queue):
            return
        under_way = {
            region
            for work in self._world.live.values()
            if work.goes_on_in is not None
            for region in (work.region, work.goes_on_in[0])
        }
        most_idle = {
            position: idle
            for position, member in enumerate(members)
            if position not in under_way and (idle := member.inventory.idle_gpus)
        }
        if not most_idle:
            return
        gangs = self._first_of_each_kind(max(most_idle.values()))
        for position in sorted(most_idle, key=lambda one: members[one].region):
            here = [work for work in gangs if position in work.eligible and work.base_gpus <= most_idle[position]]
            if not here:
                continue
            waiting = [WaitingGang(work.submitted, work.within_quota, now - work.queued_since_s) for work in here]
            running = [self._running(work, now) for work in self._movable(position)]
            for found in plan_compactions(members[position].inventory, waiting, running, rule, now):
                self._carry_out(position, found, now)
                under_way.add(position)
                gangs = [work for work in gangs if work.submitted.workload != found.plan.workload]
        if rule.between_regions:
            self._take_in(rule, under_way, now)

    def _take_in(self, rule: CompactionRule, under_way: set[int], now: float) -> None:
        """Room for gangs that lack GPUs in every region, by attempts that go on in another one; no region takes part twice."""
        regions = {member.region: place for place, member in enumerate(self._world.regions.members)}
        idle = {
            region: self._world.regions.members[place].inventory.idle_gpus
            for region, place in sorted(regions.items())
            if place not in under_way
        }
        for gang in self._first_of_each_kind(sum(idle.values())) if any(idle.values()) else []:
            waiting = WaitingGang(gang.submitted, gang.within_quota, now - gang.queued_since_s)
            for source in sources_of_intakes([gang.base_gpus], idle, None):
                found = None
                if regions[source] in gang.eligible:
                    found = self._intake(rule, regions, source, waiting, idle, now)
                if found is not None:
                    self._carry_out(regions[found.plan.region], found, now)
                    del idle[source], idle[found.plan.region]
                    break

    def _intake(
        self,
        rule: CompactionRule,
        regions: dict[RegionId, int],
        source: RegionId,
        gang: WaitingGang,
        idle: dict[RegionId, int],
        now: float,
    ) -> Compaction | None:
        """Off the source, into the first region with idle GPUs enough of those that are left with the least."""
        members = self._world.regions.members
        movable: list[SimulatedWorkload] | None = None
        for into in sorted(idle, key=lambda one: (idle[one], one)):
            if into == source or gang.gpus - idle[source] > idle[into]:
                continue
            if movable is None:
                movable = self._movable(regions[source])
            running = [self._running(work, now) for work in movable if regions[into] in work.eligible]
            capacity, leaving = members[regions[into]].inventory, members[regions[source]].inventory
            found = plan_intake(capacity, leaving, [gang], running, rule, now)
            if found is not None:
                return found
        return None

    def _carry_out(self, region: int, found: Compaction, now: float) -> None:
        self._attempts.carry_out(region, found.plan.actions)
        for key in found.moved:
            index = self._attempts.workload_of(key).index
            lately = tuple([moved_s for moved_s in self._moved_s.get(index, ()) if moved_s > now - HOUR_S])
            self._moved_s[index] = (*lately, now)
        self.moves += len(found.moved)
        self.gangs += 1

    def _first_of_each_kind(self, most_gpus: int) -> list[SimulatedWorkload]:
        kinds: dict[tuple[int, bool], SimulatedWorkload] = {}
        for work in self._world.queue.in_order():
            if work.base_gpus <= most_gpus and work.base_gpus and work.state in (State.PENDING, State.WAITING):
                kinds.setdefault((work.kind, work.within_quota), work)
                if len(kinds) >= MOST_KINDS:
                    break
        return list(kinds.values())

    def _movable(self, region: int) -> list[SimulatedWorkload]:
        """Those that run there as they were asked for, and of which no change is under way."""
        rule = self._rule
        return [
            work
            for _, work in sorted(self._world.live.items())
            if work.region == region
            and work.state is State.RUNNING
            and rule is not None
            and work.gpus == work.base_gpus <= rule.most_gpus
            and not work.ways
            and not self._attempts.change_waits(work)
        ]

    def _running(self, work: SimulatedWorkload, now: float) -> RunningAttempt:
        attempt = AttemptToChange(work.key, work.workload.specification, work.placements, work.within_quota)
        age_s: float | None = None
        if work.emulated is not None and work.emulated.speed > 0:
            saved = work.emulated.checkpoint_at(now)
            if saved > 0:
                age_s = (work.emulated.progress_at(now) - saved) / work.emulated.speed
        return RunningAttempt(attempt, age_s, self._moved_s.get(work.index, ()))
