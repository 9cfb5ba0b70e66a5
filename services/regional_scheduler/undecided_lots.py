"""What is written down of lots that no region has placed: their state and reason, and which kinds need not be asked again."""

from __future__ import annotations

from collections.abc import Sequence

from domain.clock import Clock
from domain.diagnosis import Reason
from domain.events import Event, EventKind
from domain.identifiers import RegionId, TenantId
from domain.life_cycle import Happening, State
from domain.workload import Workload
from formats.event_details import undecided_details
from regional_scheduler.auction import AwaitingData, Holders, RoundOutcome, Waiting, Won
from regional_scheduler.refusals.kinds import kind_of
from regional_scheduler.refusals.refused_kinds import KindKey
from regional_scheduler.rounds import Abandoned, Lot, RegionResponse
from services.database import auction_store, event_store, lease_store, refusal_store
from services.database.auction_store import Unplaceable
from services.database.connection import AnyConnection
from services.database.refusal_store import MarkedEntry, NewRefusal
from services.regional_scheduler.region_memory import RegionMemory

_ROUNDS_UNTIL_FORGOTTEN = 256
"""So often kinds of which nothing is queued any more are forgotten."""


def lack_data(responses: Sequence[RegionResponse]) -> bool:
    """Whether any region has abandoned a lot for lack of data."""
    answers = [answer for response in responses for answer in response.answers]
    return any(isinstance(answer, Abandoned) and answer.reason is Reason.NO_DATA for answer in answers)


async def data_holders(connection: AnyConnection, memory: RegionMemory) -> Holders:
    """Which regions hold the tables of a lot and may be heard of: what to ask where some region lacks them."""
    served = sorted(await lease_store.served_regions(connection, lease_store.ABSENCE_REAL_S))

    def holders(lot: Lot) -> list[RegionId]:
        specification, catalog = lot.workload.specification, memory.catalog
        allowed = [region for region in served if not specification.regions or region in specification.regions]
        return [region for region in allowed if not catalog.missing_tables(region, specification.tables)]

    return holders


async def mark_undecided(connection: AnyConnection, outcome: RoundOutcome, clock: Clock) -> None:
    """Records of workloads that no region can place that it is so: their state, and an event when it is a new one."""
    undecided = [verdict for verdict in outcome.verdicts if isinstance(verdict, (Waiting, AwaitingData))]
    marks = [
        Unplaceable(
            verdict.lot.workload.workload,
            _happening(verdict),
            verdict.sentence,
            verdict.diagnosis,
        )
        for verdict in undecided
    ]
    # What is asked again is told the present numbers: it is asked no more often than in every walk.
    news = await auction_store.mark_undecided(connection, marks, refresh_reasons=True)
    now = clock.now()
    await event_store.append(
        connection,
        [_undecided_event(verdict, now) for verdict in undecided if verdict.lot.workload.workload in news],
    )


async def mark_alike(connection: AnyConnection, clock: Clock) -> int:
    """Tells some of those that were passed over why; how many."""
    marked = await refusal_store.mark_alike(connection)
    now = clock.now()
    await event_store.append(connection, [_passed_over_event(entry, now) for entry in marked])
    return len(marked)


async def store_refusals(connection: AnyConnection, memory: RegionMemory, outcome: RoundOutcome, walk: int) -> None:
    """Whom this walk need not ask again: kinds for which there is no room, and single workloads.

    Under static demands everybody is asked in each pass.
    """
    if memory.passes_over_kinds:
        await _store_refused_kinds(connection, memory, outcome, walk)
    if outcome.round_number % _ROUNDS_UNTIL_FORGOTTEN == 0:
        await refusal_store.forget_absent_kinds(connection)


async def _store_refused_kinds(
    connection: AnyConnection, memory: RegionMemory, outcome: RoundOutcome, walk: int
) -> None:
    undecided = {one.lot.workload.workload: one for one in outcome.verdicts if not isinstance(one, Won)}
    submitted = await memory.specifications.workloads(connection, outcome.hopeless)
    refusals: dict[KindKey, NewRefusal] = {}
    alone = dict.fromkeys(undecided)
    for name in outcome.hopeless:
        verdict = undecided[name]
        # A job may be kept together for what is known of others of its name: that is not in its kind.
        if verdict.lot.kind is None or kind_of(submitted[name].specification) != verdict.lot.kind:
            continue
        del alone[name]
        tenant = verdict.lot.workload.specification.tenant if outcome.tenants_apart else TenantId("")
        key = KindKey(verdict.lot.kind, tenant, verdict.lot.position.within_quota)
        refusals.setdefault(key, _new_refusal(key, verdict))
    await refusal_store.store(connection, list(refusals.values()), walk, outcome.round_number)
    if alone:
        await refusal_store.mark_asked(connection, list(alone), walk)


def _happening(verdict: Waiting | AwaitingData) -> Happening:
    return Happening.NO_DATA if isinstance(verdict, AwaitingData) else Happening.NO_PLACE


def _new_refusal(key: KindKey, verdict: Waiting | AwaitingData) -> NewRefusal:
    lot = verdict.lot
    return NewRefusal(
        key,
        lot.position.standing,
        lot.workload.workload,
        _happening(verdict),
        verdict.sentence,
        verdict.diagnosis,
    )


def _passed_over_event(entry: MarkedEntry, now: float) -> Event:
    details = undecided_details(entry.reason, entry.diagnosis)
    awaiting_data = entry.state is State.AWAITING_DATA
    if awaiting_data:
        details["tables"] = [*entry.diagnosis.tables]
    return Event(
        now,
        EventKind.AWAITING_DATA if awaiting_data else EventKind.WAITING,
        workload=entry.workload,
        tenant=entry.tenant,
        priority=entry.standing.priority,
        level=entry.standing.level,
        details=details,
    )


def _undecided_event(verdict: Waiting | AwaitingData, now: float) -> Event:
    workload: Workload = verdict.lot.workload
    details = undecided_details(verdict.sentence, verdict.diagnosis)
    if isinstance(verdict, AwaitingData):
        details["tables"] = [*verdict.tables]
    return Event(
        now,
        EventKind.AWAITING_DATA if isinstance(verdict, AwaitingData) else EventKind.WAITING,
        workload=workload.workload,
        tenant=workload.specification.tenant,
        priority=verdict.lot.position.standing.priority,
        level=verdict.lot.position.standing.level,
        details=details,
    )
