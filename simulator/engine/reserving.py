"""Reservations in simulations: after a pass along the queue machines are kept for gangs that have waited for too long."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice

from domain.identifiers import WorkloadId
from domain.rank import Standing
from domain.reservation import Reservation, ReservationEnd, ReservationRule
from regional_scheduler.reservations import MOST_GANGS, ExpectedEnd, PatientGang, plan_reservations
from simulator.engine.queue_pass import SimulatedQueuePass
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World


class Reserving:
    """Keeps machines as the rule has it."""

    def __init__(self, world: World, queue_pass: SimulatedQueuePass) -> None:
        self._world = world
        self._queue_pass = queue_pass
        self._rule = world.settings.reservations.rule()
        self._look_at_s = -math.inf
        self.made = 0

    def start_reserved(self, now: float) -> None:
        """Gangs that have a reservation may start although others of their kind found nothing: these are kept off."""
        if self._rule is None:
            return
        queued = [work for name in self._all() if self._is_queued(work := self._world.by_name[name])]
        for work in sorted(queued, key=lambda one: (self._queue_pass.standing_of(one), -one.credit, one.index)):
            self._queue_pass.start(work)
        self.end_those_not_queued(now)

    def look(self, now: float) -> None:
        """Now and then all reservations are looked at, and new ones are made."""
        rule, world = self._rule, self._world
        if rule is None or now < self._look_at_s:
            return
        self._look_at_s = now + rule.look_every_s
        gangs = self._patient(rule, now)
        if not gangs and not self._all():
            return
        for position in sorted(range(len(world.regions.members)), key=lambda one: world.regions.members[one].region):
            self._look_at_region(position, [work for work in gangs if position in work.eligible], rule, now)

    def _look_at_region(self, position: int, gangs: list[SimulatedWorkload], rule: ReservationRule, now: float) -> None:
        inventory = self._world.regions.members[position].inventory
        if not gangs and not inventory.reserved:
            return
        elsewhere = {name: one for name, one in self._all().items() if one.region != inventory.region}
        found = plan_reservations(
            inventory,
            [self._as_patient(work, now) for work in gangs],
            self._ends(position, now),
            self._waiting(),
            elsewhere,
            rule,
            now,
        )
        opened = inventory.reserved.opened
        inventory.reserved.replace(found.all)
        for ended in found.ended:
            self._tell_end(ended.reservation, ended.reason, now)
        for one in found.made:
            if one.workload in elsewhere:
                self._end(elsewhere[one.workload], ReservationEnd.SOONER_ELSEWHERE, now)
            self.made += 1
            if self._world.log is not None:
                self._world.log.reserved(one, self._world.by_name[one.workload], now)
        self._world.news |= inventory.reserved.opened != opened

    def end_those_not_queued(self, now: float) -> None:
        """Who has started, or is not queued any more, needs no place."""
        if self._rule is None:
            return
        for name, one in self._all().items():
            work = self._world.by_name[name]
            if not self._is_queued(work):
                started = work.index in self._world.live
                self._end(one, ReservationEnd.STARTED if started else ReservationEnd.NOT_QUEUED, now)

    def _end(self, one: Reservation, reason: ReservationEnd, now: float) -> None:
        for member in self._world.regions.members:
            if member.region == one.region:
                member.inventory.reserved.replace(
                    [other for other in member.inventory.reserved.all if other.workload != one.workload]
                )
        self._tell_end(one, reason, now)
        self._world.news = True

    def _tell_end(self, one: Reservation, reason: ReservationEnd, now: float) -> None:
        if self._world.log is not None:
            self._world.log.reservation_ended(one, self._world.by_name[one.workload], reason, now)

    def _all(self) -> Mapping[WorkloadId, Reservation]:
        """By workload, sorted."""
        members = self._world.regions.members
        found = [one for member in members for one in member.inventory.reserved.all]
        return {one.workload: one for one in sorted(found, key=lambda one: one.workload)}

    def _waiting(self) -> dict[WorkloadId, Standing]:
        works = [self._world.by_name[name] for name in self._all()]
        return {work.submitted.workload: self._queue_pass.standing_of(work) for work in works if self._is_queued(work)}

    def _is_queued(self, work: SimulatedWorkload) -> bool:
        return self._world.queue.holds(work)

    def _patient(self, rule: ReservationRule, now: float) -> list[SimulatedWorkload]:
        entitled = (
            work
            for work in self._world.queue.in_order()
            if work.base_gpus >= rule.least_gpus
            and now - work.queued_since_s >= rule.limits_of(work.standing.priority).entitled_after_s
        )
        return list(islice(entitled, MOST_GANGS))

    def _as_patient(self, work: SimulatedWorkload, now: float) -> PatientGang:
        standing = self._queue_pass.standing_of(work)
        return PatientGang(work.workload, standing, work.within_quota, now - work.queued_since_s)

    def _ends(self, position: int, now: float) -> list[ExpectedEnd]:
        inventory = self._world.regions.members[position].inventory
        ends: list[ExpectedEnd] = []
        for holding in inventory.holdings():
            work = self._world.by_name[holding.key.workload]
            leaves = inventory.is_leaving(holding.key) and work.goes_on_in is None
            ends.append(ExpectedEnd(now if leaves else self._queue_pass.expected_end_s(work), holding.key))
        return ends
