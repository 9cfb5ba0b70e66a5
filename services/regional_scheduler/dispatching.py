"""Awards become attempts: planned once more, written in one transaction, only then sent to cluster managers (design §3.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from cluster_manager.attempt_run.run import facts_of, new_run
from domain.cells import virtual_cluster_of
from domain.clock import Clock
from domain.events import Event, EventKind
from domain.eviction import EvictionRule
from domain.identifiers import RegionId, TenantId, WorkloadId
from domain.tenant import Tenant, quota_charges, quota_limits
from domain.workload import Workload
from formats.event_details import dispatched_details
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.dispatching import Dispatch, StartWith
from regional_scheduler.needless_victims import needless_eviction
from regional_scheduler.rounds import Lot
from services.database import attempt_store, award_store, catalog_store, event_store, quota_store, running_store
from services.database.award_store import Award
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.eviction_guard import preemptions
from services.database.pipeline import together
from services.regional_scheduler.attempt_events import cell_events, evicting_events
from services.regional_scheduler.live_attempts import LiveAttempt, RegionAttempts
from services.regional_scheduler.migration import new_attempt
from services.regional_scheduler.plan_writing import PlannedWrites, PlanWriting, write_changes
from services.regional_scheduler.session_over import SessionOver
from services.regional_scheduler.specifications import SpecificationCache
from services.tuned_work import UNTUNED, TunedWorks

_log = structlog.get_logger(__name__)


AskedFor: TypeAlias = Callable[[Workload], Workload]
"""The workload with what it asks for, in place of what it was submitted with."""


def as_submitted(workload: Workload) -> Workload:
    """What a workload asks for itself."""
    return workload


class VictimsChanged(Exception):
    """A victim does not stand any more where memory has it: a scan pass has re-classified it since.

    Nothing was dispatched. The inventory is as it was; the transaction is to be rolled back.
    """


class QuotaChanged(Exception):
    """Less is left of a quota than was seen when plans were made: another region has dispatched within it meanwhile.

    Nothing was dispatched. The inventory is as it was; the transaction is to be rolled back.
    """


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What was written: new attempts, and what else their plans want done."""

    attempts: tuple[LiveAttempt, ...]
    writes: PlannedWrites
    given_back: int
    """Awards that came to nothing: the entry was gone, over its quota, had no room any more, or reads a table that changes."""


async def dispatch_awards(
    connection: AnyConnection,
    region: RegionId,
    awards: Sequence[Award],
    bidder: RegionBidder,
    specifications: SpecificationCache,
    tenants: Mapping[TenantId, Tenant],
    live: RegionAttempts,
    clock: Clock,
    works: TunedWorks | None = None,
    start: StartWith | None = None,
    asked: AskedFor = as_submitted,
    *,
    holds_quota: bool = False,
) -> Dispatched:
    """Dispatches what the region has won, in queue order: these awards, which this transaction has locked.

    `works` says how fast they work; None: whatever they hold. `start` is as in `confirm_wins`; `asked` says with what workloads
    ask for a place: they are charged what they said.
    Quotas are charged last, for regions wait for each other's: plans are made for what fits by the amounts of now. `holds_quota`: it
    is locked before, so that it does fit.
    Changes the bidder's inventory at once: when the transaction then fails, the caller must load its state anew. Raises
    SessionOver when the database shows that it must in any case, VictimsChanged, and QuotaChanged (not if it `holds_quota`).
    """
    # By what they ask for at this moment: it may have been changed since they were won.
    within_limits = await _within_limits(connection, awards, tenants)
    revisions = {award.position.workload: award.revision for award in awards if award.revision is not None}
    workloads = await specifications.workloads(connection, [award.position.workload for award in awards], revisions)
    charges = _charges(awards, workloads, tenants)
    now = clock.now()
    affordable, preempted_s, readable = await together(
        connection,
        _affordable(connection, awards, charges, tenants, holds_quota=holds_quota),
        preemptions(connection, bidder.rule, [award.position.workload for award in awards], now),
        _readable(connection, workloads, bidder.catalog_revision),
    )
    possible = affordable & within_limits & readable
    lots = _lots([award for award in awards if award.position.workload in possible], workloads, asked, preempted_s)
    # In a thread: leases are kept, and calls answered, however long plans take.
    confirmations = await asyncio.to_thread(bidder.confirm, lots, now, start)
    dispatches = [confirmation for confirmation in confirmations if isinstance(confirmation, Dispatch)]
    by_name = {award.position.workload: award for award in awards}
    new = tuple(_live_attempt(dispatch, workloads, charges, by_name, now, works) for dispatch in dispatches)
    dispatched = Dispatched(new, _planned_writes(region, dispatches, live, now), len(awards) - len(dispatches))
    try:
        await _store_and_charge(connection, region, dispatched, bidder.rule, now, tenants)
    except (VictimsChanged, QuotaChanged) as changed:
        if not bidder.withdraw(confirmations):
            raise SessionOver(str(changed)) from changed
        raise
    await award_store.delete_awards(connection, region, [award.position.workload for award in awards])
    told = [
        *_changing_events(region, dispatched, live, now),
        *_dispatching_events(region, dispatches, dispatched, now),
    ]
    await event_store.append(connection, [*told, *_broken_events(region, dispatches, now)])
    # What reads a table that changes is not tried again at once, but when the region has heard of the change: that wakes the pass, too.
    if readable - {attempt.key.workload for attempt in new}:
        wake_after_commit(connection, SCAN_CHANNEL)
    return dispatched


def _lots(
    awards: Sequence[Award],
    workloads: Mapping[WorkloadId, Workload],
    asked: AskedFor,
    preempted_s: Mapping[str, tuple[float, ...]],
) -> list[Lot]:
    """Awards stand in the order of the auctions; entries may have got another place since. The present order counts."""
    lots = []
    for award in awards:
        name = award.position.workload
        past_s = preempted_s.get(name, ())
        lots.append(Lot(asked(workloads[name]), award.position, award.attempt, preempted_s=past_s))
    return sorted(lots, key=lambda lot: lot.position.sort_key)


async def _store(
    connection: AnyConnection, region: RegionId, dispatched: Dispatched, rule: EvictionRule, now: float
) -> None:
    """Writes the new attempts, and that their victims leave. Raises VictimsChanged."""
    await attempt_store.dispatch(connection, region, [new_attempt(attempt) for attempt in dispatched.attempts])
    # First: what one plan takes from an attempt, the plan of a later lot may evict, and what is leaving is not changed any more.
    await write_changes(connection, region, dispatched.writes, now)
    evictions = dispatched.writes.evictions
    guaranteed = frozenset(attempt.key for attempt in dispatched.attempts if attempt.guaranteed)
    marked = await attempt_store.begin_evictions(connection, evictions, now, rule, guaranteed)
    if len(marked) != len(evictions):
        raise VictimsChanged(
            f"of {len(evictions)} victims only {len(marked)} are live and may be evicted for the newcomer"
        )


def _changing_events(region: RegionId, dispatched: Dispatched, live: RegionAttempts, now: float) -> list[Event]:
    """That attempts which ran before leave, or lose cells."""
    writes = dispatched.writes
    leaving = [(attempt, eviction) for key, eviction in writes.evictions if (attempt := live.get(key)) is not None]
    return [*evicting_events(region, leaving, now), *cell_events(region, writes.cells, live.get, now)]


def _dispatching_events(
    region: RegionId, dispatches: Sequence[Dispatch], dispatched: Dispatched, now: float
) -> list[Event]:
    """In queue order; an owner of cells may have an attempt leave, or lose its cells, that was dispatched just before."""
    new = {attempt.key: attempt for attempt in dispatched.attempts}
    changed: dict[WorkloadId | None, list[Event]] = {}
    for key, eviction in dispatched.writes.evictions:
        if key in new:
            newcomer = None if eviction.by is None else eviction.by.workload
            changed.setdefault(newcomer, []).extend(evicting_events(region, [(new[key], eviction)], now))
    for cells in dispatched.writes.cells:
        if cells.key in new:
            changed.setdefault(cells.by, []).extend(cell_events(region, [cells], new.get, now))
    events: list[Event] = []
    for dispatch in dispatches:
        events += changed.get(dispatch.lot.workload.workload, ())
        events.append(_dispatched_event(region, dispatch, now))
    return events


def _charges(
    awards: Sequence[Award], workloads: Mapping[WorkloadId, Workload], tenants: Mapping[TenantId, Tenant]
) -> dict[WorkloadId, Mapping[str, int]]:
    """What each takes of its tenant's quota. Raises SessionOver for a tenant that memory does not know."""
    unknown = sorted({award.tenant for award in awards if award.tenant not in tenants})
    if unknown:
        raise SessionOver(f"tenant {unknown[0]} is not known yet")
    return {
        name: quota_charges(workload.specification, tenants[workload.specification.tenant])
        for name, workload in workloads.items()
    }


async def _within_limits(
    connection: AnyConnection, awards: Sequence[Award], tenants: Mapping[TenantId, Tenant]
) -> set[WorkloadId]:
    """Those that may run as far as limits of running workloads go: the scan pass saw to it, but what it let in before counts too."""
    limits = {
        award.tenant: limit
        for award in awards
        if (tenant := tenants.get(award.tenant)) is not None and (limit := tenant.limits.max_running) is not None
    }
    if not limits:
        return {award.position.workload for award in awards}
    running = await running_store.lock_and_count(connection, limits)
    within: set[WorkloadId] = set()
    for award in sorted(awards, key=lambda award: award.position.sort_key):
        if award.tenant in limits:
            if running[award.tenant] >= limits[award.tenant]:
                continue
            running[award.tenant] += 1
        within.add(award.position.workload)
    return within


async def _affordable(
    connection: AnyConnection,
    awards: Sequence[Award],
    charges: Mapping[WorkloadId, Mapping[str, int]],
    tenants: Mapping[TenantId, Tenant],
    *,
    holds_quota: bool,
) -> set[WorkloadId]:
    """Those that may be dispatched, as far as quotas go.

    The scan pass saw to it that they fit; between it and now another region may have dispatched the workload for which
    the next pass gave this one's place away. So the quota is looked at once more.
    """
    within = [award for award in awards if award.position.within_quota]
    wanted = [(award.tenant, charges[award.position.workload]) for award in within]
    if holds_quota:
        await quota_store.lock(connection, quota_store.buckets_of(wanted))
    fits = await quota_store.would_fit(connection, wanted, _limits(tenants, [tenant for tenant, _ in wanted]))
    affordable = {award.position.workload for award in awards if not award.position.within_quota}
    affordable.update(award.position.workload for award, fit in zip(within, fits, strict=True) if fit)
    return affordable


async def _readable(
    connection: AnyConnection, workloads: Mapping[WorkloadId, Workload], catalog_revision: int
) -> set[WorkloadId]:
    """Those whose input tables are where the region's memory has them, and stay there until they are dispatched (I3).

    A copy that is switched meanwhile waits for this transaction; what reads a table that was changed since is auctioned again.
    """
    inputs = {name: {one.table for one in workload.specification.tables} for name, workload in workloads.items()}
    held = await catalog_store.hold_tables(connection, sorted(set().union(*inputs.values())))
    unchanged = {table for table, revision in held.items() if revision <= catalog_revision}
    return {name for name, tables in inputs.items() if tables <= unchanged}


async def _store_and_charge(
    connection: AnyConnection,
    region: RegionId,
    dispatched: Dispatched,
    rule: EvictionRule,
    now: float,
    tenants: Mapping[TenantId, Tenant],
) -> None:
    """Writes what is dispatched, and charges it to its tenants under lock, as far as it is within quota (I4).

    Raises VictimsChanged, and QuotaChanged when it does not fit any more.
    """
    wanted = [(attempt.tenant, attempt.charges) for attempt in dispatched.attempts if attempt.within_quota]
    # Under way together: the lock is held for one round trip.
    locked = await quota_store.send_lock(connection, quota_store.buckets_of(wanted))
    await _store(connection, region, dispatched, rule, now)
    limits = _limits(tenants, [tenant for tenant, _ in wanted])
    fits = await quota_store.charge_locked(connection, locked, wanted, limits)
    refused = sorted({tenant for (tenant, _), fit in zip(wanted, fits, strict=True) if not fit})
    if refused:
        raise QuotaChanged(f"less is left of the quota of {refused[0]} than when plans were made")


def _limits(tenants: Mapping[TenantId, Tenant], names: Sequence[TenantId]) -> dict[TenantId, Mapping[str, int]]:
    return {tenant: quota_limits(tenants[tenant]) for tenant in sorted(set(names))}


def _planned_writes(
    region: RegionId, dispatches: Sequence[Dispatch], live: RegionAttempts, now: float
) -> PlannedWrites:
    writing = PlanWriting(region, live, now)
    for dispatch in dispatches:
        writing.add(dispatch.plan, (dispatch.lot.key, dispatch.lot.position.standing))
    return writing.writes


def _live_attempt(
    dispatch: Dispatch,
    workloads: Mapping[WorkloadId, Workload],
    charges: Mapping[WorkloadId, Mapping[str, int]],
    awards: Mapping[WorkloadId, Award],
    now: float,
    works: TunedWorks | None,
) -> LiveAttempt:
    lot = dispatch.lot
    name = lot.workload.workload
    award = awards[name]
    specification = workloads[name].specification
    return LiveAttempt(
        run=new_run(facts_of(lot.key, specification, award.checkpoint_progress, award.failures)),
        tenant=specification.tenant,
        specification=specification,
        standing=lot.position.standing,
        within_quota=lot.position.within_quota,
        guaranteed=lot.position.within_quota,
        dispatched_s=now,
        charges=charges[name],
        placements=dispatch.plan.placements,
        submitted_s=lot.position.submitted_s if lot.attempt == 1 else None,
        cells=dispatch.plan.cells,
        tuned=UNTUNED if works is None else works.beginning(specification),
    )


def _broken_events(region: RegionId, dispatches: Sequence[Dispatch], now: float) -> list[Event]:
    """Needless evictions are decided and cannot be taken back, but never passed over in silence."""
    broken = [needless_eviction(dispatch.lot.key, dispatch.needless) for dispatch in dispatches if dispatch.needless]
    for sentence in broken:
        _log.error("an invariant is broken", region=region, invariant=sentence)
    return [Event(now, EventKind.INVARIANT_BROKEN, region=region, details={"invariant": one}) for one in broken]


def _dispatched_event(region: RegionId, dispatch: Dispatch, now: float) -> Event:
    return Event(
        now,
        EventKind.DISPATCHED,
        dispatch.lot.workload.workload,
        dispatch.lot.attempt,
        dispatch.lot.workload.specification.tenant,
        dispatch.lot.position.standing.priority,
        dispatch.lot.position.standing.level,
        region,
        details=dispatched_details(
            dispatch.plan.placements,
            dispatch.plan.evictions,
            within_quota=dispatch.lot.position.within_quota,
            guaranteed=dispatch.lot.position.within_quota,
            virtual_cluster=virtual_cluster_of(dispatch.plan.cells),
            own_cells=dispatch.plan.own_cells,
        ),
    )
