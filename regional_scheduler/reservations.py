"""Reservations for gangs that have waited for too long: when and where each could start (EASY backfilling: Lifka, 1995).

Rule: what runs in the region is taken away in the order of its expected ends until the gang has a plan; the machines of that
plan are kept for it from now on, and that end is when it is expected to start. A reservation stays as it is until its gang
starts or leaves, a machine of it is lost, or its time has passed by more than the tolerance; then it is made anew. One workload
has one at most: another region takes it over only if it is sooner by more than the tolerance, and only when it looks first after
that was made.

Invariants: of a priority never more than the limit have one; no machine is kept for two of which neither may ignore the other's;
what could not start with nothing running gets none, and it is said why; the region is as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from domain.identifiers import WorkloadId
from domain.placement import AttemptKey
from domain.plan import Plan
from domain.rank import Standing
from domain.reservation import Reservation, ReservationEnd, ReservationRule
from domain.workload import Workload
from regional_scheduler.closed_machines import close_machines
from regional_scheduler.planner import plan_workload
from regional_scheduler.refusal import Refusal
from regional_scheduler.region_capacity import RegionCapacity

MOST_GANGS = 64
"""Of those that have waited for long enough so many are looked at, in queue order."""
MOST_TRIED = 8
"""Of so many gangs at most the earliest start is sought at a time: each costs a dozen plans."""


class ExpectedEnd(NamedTuple):
    """When an attempt that holds something in the region will be gone, if nothing comes between."""

    end_s: float
    attempt: AttemptKey


class PatientGang(NamedTuple):
    """A gang that waits and that the region could host."""

    workload: Workload
    standing: Standing
    within_quota: bool
    waited_s: float

    @property
    def gpus(self) -> int:
        """Of all its base tasks."""
        return self.workload.specification.base_gpus


class EndedReservation(NamedTuple):
    """It keeps nobody off any more."""

    reservation: Reservation
    reason: ReservationEnd


class Unmet(NamedTuple):
    """A gang for which no reservation can be made, and why."""

    workload: WorkloadId
    sentence: str


class ReservationPlan(NamedTuple):
    """What is kept for whom in the region from now on."""

    kept: tuple[Reservation, ...]
    """Those that go on, at the standings that their gangs have now."""
    made: tuple[Reservation, ...]
    ended: tuple[EndedReservation, ...]
    unmet: tuple[Unmet, ...]

    @property
    def all(self) -> tuple[Reservation, ...]:
        """Those that there are from now on, sorted by workload."""
        return tuple(sorted((*self.kept, *self.made), key=lambda one: one.workload))


def plan_reservations(
    inventory: RegionCapacity,
    gangs: Sequence[PatientGang],
    ends: Sequence[ExpectedEnd],
    waiting: Mapping[WorkloadId, Standing],
    elsewhere: Mapping[WorkloadId, Reservation],
    rule: ReservationRule,
    now: float,
) -> ReservationPlan:
    """What becomes of the region's reservations, and which are made, `gangs` being in queue order.

    `ends` of all attempts that hold something there; `waiting`: of all workloads that have a reservation and are still queued,
    where they stand; `elsewhere`: the reservations in other regions.
    """
    kept: list[Reservation] = []
    ended: list[EndedReservation] = []
    for one in inventory.reserved.all:
        reason = why_it_ends(inventory, one, waiting, rule, now)
        if reason is None:
            kept.append(_standing_as(one, waiting[one.workload]))
        else:
            ended.append(EndedReservation(one, reason))
    made, unmet = _made(inventory, gangs, ends, kept, elsewhere, rule, now)
    return ReservationPlan(tuple(kept), tuple(made), tuple(ended), tuple(unmet))


def why_it_ends(
    inventory: RegionCapacity,
    one: Reservation,
    waiting: Mapping[WorkloadId, Standing],
    rule: ReservationRule,
    now: float,
) -> ReservationEnd | None:
    """Why there is this reservation no more; None: it goes on."""
    standing = waiting.get(one.workload)
    if standing is None:
        return ReservationEnd.NOT_QUEUED
    known = inventory.number_of_machine
    if any(machine not in known or not inventory.machine_state(machine).takes_work for machine in one.machines):
        return ReservationEnd.MACHINE_LOST
    if rule.limits_of(standing.priority).at_most == 0:
        return ReservationEnd.SWITCHED_OFF
    return ReservationEnd.NOT_MET if now > one.expires_s else None


def earliest_start(
    inventory: RegionCapacity, gang: PatientGang, ends: Sequence[ExpectedEnd], now: float
) -> tuple[float, Plan] | Refusal:
    """When the gang would have a plan, at the latest, if everything ended when expected, and that plan; `now` at the earliest.

    A refusal: not even with nothing running. The region is as before.
    """
    # Those that end together are one step; what should be over by now could end at any moment.
    clamped = sorted((max(now, end.end_s), end.attempt) for end in ends)
    steps = [(end_s, [key for _, key in group]) for end_s, group in groupby(clamped, key=lambda end: end[0])]
    with inventory.tentatively():
        # Owners of cells wait for nobody (HiveD), so nothing of theirs is kept for others.
        close_machines(inventory, [machine for _, one in inventory.in_cells for machine in one.layout.machine_ids])
        done, found_s = 0, now
        found = _planned(inventory, gang, now)
        if isinstance(found, Plan):
            return now, found
        first, last = 0, len(steps)  # no plan after `first` steps; with a plan after `last`, once that is known
        found = _planned_after(inventory, gang, steps, now)
        if isinstance(found, Refusal):
            return found
        found_s = steps[-1][0]
        while last - first > 1:
            middle = (first + last) // 2
            tried = _planned_after(inventory, gang, steps[done:middle], now)
            if isinstance(tried, Plan):
                last, found, found_s = middle, tried, steps[middle - 1][0]
            else:
                _release(inventory, steps[done:middle])
                first = done = middle
    return found_s, found


_Steps = Sequence[tuple[float, Sequence[AttemptKey]]]


def _planned_after(inventory: RegionCapacity, gang: PatientGang, steps: _Steps, now: float) -> Plan | Refusal:
    """The plan once these have ended too."""
    with inventory.tentatively():
        _release(inventory, steps)
        return _planned(inventory, gang, steps[-1][0] if steps else now)


def _release(inventory: RegionCapacity, steps: _Steps) -> None:
    for _, keys in steps:
        for key in keys:
            inventory.release(key)


def _planned(inventory: RegionCapacity, gang: PatientGang, now: float) -> Plan | Refusal:
    return plan_workload(inventory, gang.workload, gang.standing, now, within_quota=gang.within_quota)


def _made(
    inventory: RegionCapacity,
    gangs: Sequence[PatientGang],
    ends: Sequence[ExpectedEnd],
    kept: Sequence[Reservation],
    elsewhere: Mapping[WorkloadId, Reservation],
    rule: ReservationRule,
    now: float,
) -> tuple[list[Reservation], list[Unmet]]:
    """New ones, each with those before it in force, as far as the limits go."""
    made: list[Reservation] = []
    unmet: list[Unmet] = []
    have = {one.workload for one in kept}
    count = Counter(one.standing.priority for one in kept)
    settled = {name for name, one in elsewhere.items() if one.made_s < now - rule.look_every_s}
    for gang in _of_those_entitled(gangs, have | settled, count, rule):
        with inventory.reserved.instead((*kept, *made)):
            found = earliest_start(inventory, gang, ends, now)
        if isinstance(found, Refusal):
            unmet.append(Unmet(gang.workload.workload, found.sentence))
            continue
        start_s, plan = found
        other = elsewhere.get(gang.workload.workload)
        if other is None or start_s + rule.tolerance_s < other.expected_start_s:
            made.append(_reservation(inventory, gang, plan, start_s, rule, now))
            count[gang.standing.priority] += 1
    return made, unmet


def _of_those_entitled(
    gangs: Sequence[PatientGang], have: set[WorkloadId], count: Counter[int], rule: ReservationRule
) -> Iterator[PatientGang]:
    """Those that have waited for long enough, while their priority has less than its limit; `count` is kept by the caller."""
    tried = 0
    for gang in gangs:
        limits = rule.limits_of(gang.standing.priority)
        if (
            gang.gpus >= rule.least_gpus
            and gang.waited_s >= limits.entitled_after_s
            and gang.workload.workload not in have
            and count[gang.standing.priority] < limits.at_most
            and tried < MOST_TRIED
        ):
            tried += 1
            yield gang


def _reservation(
    inventory: RegionCapacity, gang: PatientGang, plan: Plan, start_s: float, rule: ReservationRule, now: float
) -> Reservation:
    return Reservation(
        gang.workload.workload,
        inventory.region,
        tuple(sorted({placement.cluster for placement in plan.placements})),
        tuple(sorted({placement.machine for placement in plan.placements})),
        gang.gpus,
        gang.standing,
        made_s=now,
        expected_start_s=start_s,
        expires_s=start_s + rule.tolerance_s,
    )


def _standing_as(one: Reservation, standing: Standing) -> Reservation:
    return one if one.standing == standing else replace(one, standing=standing)
