"""Keeps machines for gangs that have waited for too long, as `regional_scheduler.reservations` decides (decision 073).

What is kept stands in the database, so that it outlives the session; memory follows it. A gang that waits no more is noticed
soon; all else, and what is new, is looked at as often as the rule has it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import structlog

from domain.clock import Clock
from domain.events import Event, EventKind, JsonValue
from domain.identifiers import RegionId, TenantId, WorkloadId
from domain.rank import Standing
from domain.reservation import Reservation, ReservationEnd, ReservationRule
from domain.time_limit import longest_attempt_s
from domain.workload import emulated_work_s
from formats.event_details import reservation_ended_details, reserved_details
from regional_scheduler.expected_ends import expected_end_s
from regional_scheduler.reservations import (
    MOST_GANGS,
    EndedReservation,
    ExpectedEnd,
    PatientGang,
    ReservationPlan,
    plan_reservations,
)
from services.database import event_store, gang_reservation_store, lease_store
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from services.database.estimate_store import RunTimes, run_times
from services.database.gang_reservation_store import StoredReservation
from services.database.lease_store import Lease
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.remaining_times import remaining_time
from services.tiers.fenced_transaction import fenced_transaction

_LOOK_REAL_S = 2.0
"""So often it is seen whether gangs that have a reservation still wait."""

_log = structlog.get_logger(__name__)


class _Known(NamedTuple):
    """What the database says when reservations are looked at."""

    own: Sequence[StoredReservation]
    elsewhere: Mapping[WorkloadId, Reservation]
    """Of regions that are served."""
    replaceable: Mapping[WorkloadId, Reservation]
    """Of any other region: what a new one may take the place of."""
    gangs: Sequence[PatientGang]
    past: Mapping[WorkloadId, RunTimes]


class Reserving:
    """Of one region; without a rule it only ends what an earlier setting has left."""

    def __init__(
        self, database: Database, lease: Lease, memory: RegionMemory, clock: Clock, rule: ReservationRule | None
    ) -> None:
        self._database = database
        self._lease = lease
        self._memory = memory
        self._region = memory.region.region
        self._clock = clock
        self._rule = rule
        self._look_at_real_s = 0.0
        self._look_at_s = -math.inf

    async def look(self, now_real_s: float) -> None:
        """Ends reservations and makes new ones, if it is time. Raises LeaseLost and DatabaseUnavailable."""
        if now_real_s < self._look_at_real_s:
            return
        if self._rule is None:
            self._look_at_real_s = math.inf
            await self._end_all()
            return
        self._look_at_real_s = now_real_s + _LOOK_REAL_S
        now = self._clock.now()
        if now >= self._look_at_s:
            self._look_at_s = now + self._rule.look_every_s
            await self._plan(self._rule, now)
        elif self._memory.inventory.reserved:
            await self._end_those_not_queued(now)

    async def _end_all(self) -> None:
        """Nothing is kept any more."""
        async with fenced_transaction(self._database, self._lease) as connection:
            await end_all_reservations(connection, self._region, ReservationEnd.SWITCHED_OFF, self._clock.now())

    async def _end_those_not_queued(self, now: float) -> None:
        own = await self._database.run(
            lambda connection: gang_reservation_store.in_region(connection, self._region), give_up_after_s=0.0
        )
        over = [EndedReservation(one.reservation, ReservationEnd.NOT_QUEUED) for one in own if not one.waits]
        if over:
            async with fenced_transaction(self._database, self._lease) as connection:
                await gang_reservation_store.lock(connection)
                await end_reservations(connection, self._region, over, now)
        await self._follow([one.reservation for one in own if one.waits])

    async def _plan(self, rule: ReservationRule, now: float) -> None:
        async with self._database.transaction() as connection:
            known = await self._load(connection, rule, now)
        await self._follow([one.reservation for one in known.own])
        if not known.own and not known.gangs:
            return
        # In a thread: a region of many machines takes a while, and questions wait meanwhile.
        async with self._memory.steady:
            found = await asyncio.to_thread(self._decide, rule, known, now)
        for one in found.unmet:
            _log.info("no machines are kept", workload=one.workload, region=self._region, reason=one.sentence)
        made = await self._store(found, known, now) if found.made or found.ended else []
        await self._follow([*found.kept, *made])
        if len(made) < len(found.made):
            # Its entry was being written, or another region was first.
            self._look_at_s = now

    async def _load(self, connection: AnyConnection, rule: ReservationRule, now: float) -> _Known:
        memory = self._memory
        stored = await gang_reservation_store.load_all(connection)
        own = [one for one in stored if one.reservation.region == self._region]
        others = {one.reservation.workload: one.reservation for one in stored if one.reservation.region != self._region}
        served: set[object] = set()
        if others:
            served.update(await lease_store.served_regions(connection, lease_store.ABSENCE_REAL_S))
        gangs, past = await self._gangs(connection, rule, now), {}
        if own or gangs:
            undeclared = [one.key.workload for one in memory.live if emulated_work_s(one.specification) is None]
            past = dict(await run_times(connection, undeclared)) if undeclared else {}
        elsewhere = {name: one for name, one in others.items() if one.region in served}
        return _Known(own, elsewhere, others, gangs, past)

    async def _gangs(self, connection: AnyConnection, rule: ReservationRule, now: float) -> list[PatientGang]:
        memory = self._memory
        queued = await gang_reservation_store.load_patient(connection, rule, now, MOST_GANGS)
        workloads = await memory.specifications.workloads(connection, [gang.workload for gang in queued])
        return [
            PatientGang(
                memory.asked(workloads[gang.workload]), gang.standing, gang.within_quota, now - gang.queued_since_s
            )
            for gang in queued
            if memory.bidder.abandons(workloads[gang.workload].specification) is None
        ]

    def _decide(self, rule: ReservationRule, known: _Known, now: float) -> ReservationPlan:
        waiting: dict[WorkloadId, Standing] = {
            one.reservation.workload: one.reservation.standing for one in known.own if one.waits
        }
        ends = self._ends(rule, known.past, now)
        return plan_reservations(self._memory.inventory, known.gangs, ends, waiting, known.elsewhere, rule, now)

    def _ends(self, rule: ReservationRule, past: Mapping[WorkloadId, RunTimes], now: float) -> list[ExpectedEnd]:
        """Of all that holds anything in the region."""
        inventory, ends = self._memory.inventory, []
        for holding in inventory.holdings():
            attempt = self._memory.live.get(holding.key)
            if inventory.is_leaving(holding.key):
                end_s = now
            elif attempt is None:
                # The place of a successor that has yet to come.
                end_s = expected_end_s(rule, math.inf, holding.started_s, None, now)
            else:
                # What has not started has all of its work before it.
                at_s = attempt.dispatched_s if attempt.started_s is None else now
                remaining_s = remaining_time(attempt, past.get(attempt.key.workload), at_s).remaining_s
                at_most_s = longest_attempt_s(attempt.specification)
                end_s = expected_end_s(rule, remaining_s, attempt.dispatched_s, attempt.started_s, now, at_most_s)
            ends.append(ExpectedEnd(end_s, holding.key))
        return ends

    async def _store(self, found: ReservationPlan, known: _Known, now: float) -> list[Reservation]:
        """Writes what was decided; returns those that were made."""
        tenants = {gang.workload.workload: gang.workload.specification.tenant for gang in known.gangs}
        made: list[Reservation] = []
        async with fenced_transaction(self._database, self._lease) as connection:
            await gang_reservation_store.lock(connection)
            if found.ended:
                await end_reservations(connection, self._region, found.ended, now)
            for one in sorted(found.made, key=lambda each: each.workload):
                before = known.replaceable.get(one.workload)
                if not await gang_reservation_store.make(connection, one, before):
                    continue
                made.append(one)
                tenant, events = tenants[one.workload], []
                if before is not None:
                    sooner = one.workload in known.elsewhere
                    reason = ReservationEnd.SOONER_ELSEWHERE if sooner else ReservationEnd.MACHINE_LOST
                    events.append(_ended_event(before, reason, tenant, now))
                events.append(_event(EventKind.RESERVED, one, tenant, reserved_details(one), now))
                await event_store.append(connection, events)
        return made

    async def _follow(self, reservations: Sequence[Reservation]) -> None:
        """From now on these are in force."""
        async with self._memory.steady:
            self._memory.inventory.reserved.replace(reservations)


async def end_reservations(
    connection: AnyConnection, region: RegionId, over: Sequence[EndedReservation], now: float
) -> None:
    """These of the region keep nobody off any more, as far as no other region has taken them over. Under the lock of the store."""
    deleted = await gang_reservation_store.delete(connection, region, [one.reservation.workload for one in over])
    events = []
    for ended, reason in over:
        row = deleted.get(ended.workload)
        if row is not None:
            started = reason is ReservationEnd.NOT_QUEUED and row.dispatched
            told = ReservationEnd.STARTED if started else reason
            events.append(_ended_event(ended, told, row.tenant, now))
    await event_store.append(connection, events)
    # There is room for what was kept off.
    wake_after_commit(connection, SCAN_CHANNEL)


async def end_all_reservations(connection: AnyConnection, region: RegionId, reason: ReservationEnd, now: float) -> None:
    """Nothing of the region is kept for anybody any more."""
    await gang_reservation_store.lock(connection)
    stored = await gang_reservation_store.in_region(connection, region)
    if stored:
        await end_reservations(connection, region, [EndedReservation(one.reservation, reason) for one in stored], now)


def _ended_event(one: Reservation, reason: ReservationEnd, tenant: TenantId, now: float) -> Event:
    return _event(EventKind.RESERVATION_ENDED, one, tenant, reservation_ended_details(reason), now)


def _event(kind: EventKind, one: Reservation, tenant: TenantId, details: dict[str, JsonValue], now: float) -> Event:
    return Event(
        now,
        kind,
        workload=one.workload,
        tenant=tenant,
        priority=one.standing.priority,
        level=one.standing.level,
        region=one.region,
        details=details,
    )
