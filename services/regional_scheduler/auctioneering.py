"""A region's part in the auctions, against the database: it opens, answers and closes rounds (decision 003).

Any region may open or close a round; the one that holds the lock on the round's row does. What is decided is decided by
`regional_scheduler.auction.close_round`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import structlog

from domain.clock import Clock
from domain.diagnosis import Reason
from domain.events import Event, EventKind
from domain.identifiers import RegionId, TenantId, WorkloadId
from domain.life_cycle import Happening, State
from domain.workload import Workload
from formats.event_details import undecided_details
from regional_scheduler.auction import AwaitingData, Holders, NotYet, RoundOutcome, Waiting, Won, close_round
from regional_scheduler.queue_walk import QueueWalk, WalkStep, next_step
from regional_scheduler.refusals.kinds import kind_of
from regional_scheduler.refusals.refused_kinds import KindKey
from regional_scheduler.round_opening import open_round
from regional_scheduler.rounds import Abandoned, AuctionSettings, Lot, RegionResponse, Round
from services.configuration import AuctionConfiguration
from services.database import auction_store, event_store, lease_store, refusal_store
from services.database.auction_documents import lot_from_document
from services.database.auction_store import AuctionProgress, Award, QueuedLot, SortKey, StoredRound, Unplaceable
from services.database.channels import AUCTION_CHANNEL, SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from services.database.lease_store import Lease
from services.database.pipeline import together
from services.database.refusal_store import MarkedEntry, NewRefusal
from services.database.revision_store import Revisions, load_revisions
from services.regional_scheduler.refusal_watch import RefusalWatch
from services.regional_scheduler.region_memory import RegionMemory
from services.tiers.fenced_transaction import fenced_transaction

_ROUNDS_UNTIL_FORGOTTEN = 256
"""So often kinds of which nothing is queued any more are forgotten."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AuctionStep:
    """What a step of the auction leads to."""

    moved: bool
    """True when there may be more to do at once."""
    again_in_real_s: float | None = None
    """When to look again without being woken: the deadline of a round that others have not answered."""


@dataclass(frozen=True, slots=True)
class AuctionLook:
    """What a region has seen of the auctions, in one transaction."""

    stored: StoredRound | None
    """The open round."""
    revisions: Revisions
    """Of fleet, tenants, tables and profiles as they are: what was won is dispatched on no others."""
    has_awards: bool
    awards: tuple[Award, ...]
    """What the region has won and is to dispatch, with the entries locked; without those whose workload has left the queue."""

    @property
    def dispatches_all(self) -> bool:
        """Whether these are all that there are: then the next round can be answered with them dispatched."""
        return len(self.awards) < auction_store.AWARDS_AT_ONCE


@dataclass(frozen=True, slots=True)
class _Following:
    """What followed in the queue behind the last decided lot, as it was read to close a round."""

    scan_pass: int
    walk: QueueWalk
    lots: list[Lot]

    def is_next(self, step: WalkStep, newest_scan_pass: int) -> bool:
        """Whether the next round of this step is over these: the queue has its order still, and there are any."""
        keys = [lot.position.sort_key for lot in self.lots]
        return (
            bool(keys)
            and not step.from_head
            and (step.walk.number, newest_scan_pass) == (self.walk.number, self.scan_pass)
            and all(earlier < later for earlier, later in pairwise(keys))
        )


@dataclass(frozen=True, slots=True)
class _Stand:
    """How the auctions stand while their walk is locked: no other transaction opens a round until this one ends."""

    walk: QueueWalk
    progress: AuctionProgress
    has_room: bool
    """Whether some region has room again for what was refused."""
    participants: tuple[RegionId, ...]


class Auctioneer:
    """Takes one region through the rounds, one step at a time. Awards are dispatched elsewhere, before each step."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        memory: RegionMemory,
        clock: Clock,
        configuration: AuctionConfiguration,
    ) -> None:
        self._database = database
        self._lease = lease
        self._region = memory.region.region
        self._memory = memory
        self._clock = clock
        self._configuration = configuration
        self._refused = RefusalWatch(memory)

    async def look(self, connection: AnyConnection) -> AuctionLook:
        """What there is to dispatch and to answer; the caller's transaction is fenced by it.

        What the region has won in earlier rounds, which were closed before this one was opened, is read after it: whoever
        has dispatched that answers with it in its inventory (I11).
        """
        _, _, stored, revisions, has_awards, awards = await together(
            connection,
            lease_store.assert_held(connection, self._lease),
            self._refused.take_over(connection),
            auction_store.open_round(connection, self._region),
            load_revisions(connection),
            auction_store.has_awards(connection, self._region),
            auction_store.lock_awards(connection, self._region),
        )
        return AuctionLook(stored, revisions, has_awards, tuple(awards))

    async def lots_to_answer(self, connection: AnyConnection, looked: AuctionLook) -> tuple[Lot, ...] | None:
        """The lots of the open round, if it wants an answer of this region; None: it does not, or there is none."""
        if looked.stored is None or not self._answers(looked.stored):
            return None
        return await self._lots(connection, looked.stored)

    async def go_on(self, looked: AuctionLook, lots: Sequence[Lot] | None) -> AuctionStep:
        """Answers the open round that was seen, or closes it, or opens one: whatever is to be done now.

        `lots` are those to answer. What was to be dispatched has been.
        """
        stored = looked.stored
        if stored is None:
            async with fenced_transaction(self._database, self._lease, pipelined=True) as connection:
                return AuctionStep(moved=await self._open_next(connection))
        if lots is None:
            return await self._close_if_due(None)
        # In a thread: leases are kept, and calls answered, however long plans take. What they read waits.
        async with self._memory.steady:
            response = await asyncio.to_thread(self._memory.bidder.answer, _as_round(stored, lots), self._clock.now())
        return await self._close_if_due(response)

    def _answers(self, stored: StoredRound) -> bool:
        return self._region in stored.participants and self._region not in stored.answered

    async def _close_if_due(self, response: RegionResponse | None) -> AuctionStep:
        """Stores the answer, and closes the round when it was the last one (or the deadline has passed)."""
        async with self._database.transaction(pipelined=True) as connection:
            _, locked, stored = await together(
                connection,
                lease_store.assert_held(connection, self._lease),
                auction_store.lock_open_round(connection),
                auction_store.open_round(connection, self._region),
            )
            if stored is None or locked != stored.number:
                return AuctionStep(moved=True)
            if response is not None:
                if stored.number != response.round_number:
                    return AuctionStep(moved=True)
                await auction_store.store_response(connection, response)
            answered = {*stored.answered, *((self._region,) if response is not None else ())}
            if not stored.deadline_passed and not answered.issuperset(stored.participants):
                return AuctionStep(moved=False, again_in_real_s=max(0.0, stored.deadline_in_real_s))
            await self._close(connection, stored)
            wake_after_commit(connection, AUCTION_CHANNEL)
            return AuctionStep(moved=True)

    async def _close(self, connection: AnyConnection, stored: StoredRound) -> None:
        lots = await self._lots(connection, stored)
        settings = self._configuration.settings()
        # What follows behind the window now is what will be put up next: guesses reach that far.
        last = lots[-1].position
        limit, clock_s = 0 if stored.reaches_end else settings.window + 1, self._clock.now()
        walk, responses, progress, has_room, participants, queued, worse = await together(
            connection,
            refusal_store.lock_walk(connection),
            auction_store.load_responses(connection, stored.number),
            auction_store.load_progress(connection),
            refusal_store.any_has_room(connection),
            lease_store.live_regions(connection),
            auction_store.upcoming_of(connection, last.standing, last.sort_key, limit, clock_s),
            auction_store.next_standing(connection, last.standing),
        )
        queued += await auction_store.upcoming_from(connection, worse, limit - len(queued), clock_s)
        behind = await self._as_lots(connection, queued)
        auction_round = _as_round(stored, lots)
        now = auction_round.deadline_s if stored.deadline_passed else auction_round.opened_s
        outcome = close_round(auction_round, responses, now, behind, await self._holders(connection, responses))
        if isinstance(outcome, NotYet):
            raise RuntimeError(f"round {stored.number} is due, but {outcome.missing} are said to be missing")
        await auction_store.store_outcome(connection, outcome, self._region, next_window=outcome.next_window(settings))
        await self._mark_undecided(connection, outcome)
        await self._store_refusals(connection, outcome, walk)
        if stored.number % _ROUNDS_UNTIL_FORGOTTEN == 0:
            await refusal_store.forget_absent_kinds(connection)
        if outcome.hopeless:
            # What was refused now may be passed over from here on.
            await self._open_next(connection)
            return
        after_it = auction_store.progress_after(outcome, progress.newest_scan_pass, outcome.next_window(settings))
        following = [*(lot._replace(expected_winner=None) for lot in outcome.carried_over), *behind]
        stand = _Stand(walk, after_it, has_room, participants)
        await self._open_on(connection, stand, _Following(stored.scan_pass, walk, following))

    async def _holders(self, connection: AnyConnection, responses: Sequence[RegionResponse]) -> Holders | None:
        """Which regions hold the tables of a lot and may be heard of; None where every region that answered has them."""
        abandoned = [answer for response in responses for answer in response.answers if isinstance(answer, Abandoned)]
        if all(answer.reason is not Reason.NO_DATA for answer in abandoned):
            return None
        served = sorted(await lease_store.served_regions(connection, lease_store.ABSENCE_REAL_S))

        def holders(lot: Lot) -> list[RegionId]:
            specification, catalog = lot.workload.specification, self._memory.catalog
            allowed = [region for region in served if not specification.regions or region in specification.regions]
            return [region for region in allowed if not catalog.missing_tables(region, specification.tables)]

        return holders

    async def _store_refusals(self, connection: AnyConnection, outcome: RoundOutcome, walk: QueueWalk) -> None:
        """Whom this walk need not ask again: kinds for which there is no room, and single workloads.

        Under static demands everybody is asked in each pass.
        """
        if not self._memory.passes_over_kinds:
            return
        undecided = {one.lot.workload.workload: one for one in outcome.verdicts if not isinstance(one, Won)}
        submitted = await self._memory.specifications.workloads(connection, outcome.hopeless)
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
        await refusal_store.store(connection, list(refusals.values()), walk.number, outcome.round_number)
        if alone:
            await refusal_store.mark_asked(connection, list(alone), walk.number)

    async def object_to_refusals(self) -> bool:
        """Says for which refused kinds the region may have room by now; whether there were any, or are more to look at."""
        memory = self._memory
        if not self._refused.begun:
            # What was refused before it began, and what was released meanwhile, counts before the first round is opened.
            async with fenced_transaction(self._database, self._lease) as connection:
                await self._refused.take_over(connection)
        if not self._refused.to_check():
            return False
        async with memory.steady:
            objections = await asyncio.to_thread(self._refused.objections, self._clock.now())
        if objections:
            async with fenced_transaction(self._database, self._lease) as connection:
                await refusal_store.lock_walk(connection)
                await refusal_store.object_to(connection, objections)
                if any(objection.has_room for objection in objections):
                    wake_after_commit(connection, AUCTION_CHANNEL)
                if any(objection.is_outdated for objection in objections):
                    # The next walk asks them; without room for them nothing else begins one.
                    wake_after_commit(connection, SCAN_CHANNEL)
        return bool(objections) or self._refused.to_check()

    async def _mark_undecided(self, connection: AnyConnection, outcome: RoundOutcome) -> None:
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
        now = self._clock.now()
        await event_store.append(
            connection,
            [_undecided_event(verdict, now) for verdict in undecided if verdict.lot.workload.workload in news],
        )

    async def _open_next(self, connection: AnyConnection) -> bool:
        """Opens the next round over what follows in the queue; False when there is nothing to do at once."""
        walk, progress, has_room, participants = await together(
            connection,
            refusal_store.lock_walk(connection),
            auction_store.load_progress(connection),
            refusal_store.any_has_room(connection),
            lease_store.live_regions(connection),
        )
        return await self._open_on(connection, _Stand(walk, progress, has_room, participants))

    async def _open_on(self, connection: AnyConnection, stand: _Stand, known: _Following | None = None) -> bool:
        """The same where it is known how the auctions stand; `known` is what followed when the round before was closed, in the
        same transaction.
        """
        walk, progress, has_room = stand.walk, stand.progress, stand.has_room
        if progress.newest_scan_pass is None or progress.is_open:
            return False
        step = next_step(walk, progress.newest_scan_pass, has_room=has_room)
        if step is None:
            return False
        if step.begins:
            await refusal_store.forget_reopened(connection)
        if step.from_head:
            await self._give_back_awards(connection)
        settings = self._next_settings(progress, fresh=step.from_head)
        if known is not None and known.is_next(step, progress.newest_scan_pass):
            queued = known.lots
        else:
            after = None if step.from_head else progress.cursor
            queued = await self._queued(connection, after, settings.window + 1, step.walk)
        if not queued and (has_room or step.walk.scan_pass != progress.newest_scan_pass) and not step.from_head:
            # Nothing is left behind; but at the head there is.
            await refusal_store.store_walk(connection, step.walk)
            return True
        if not queued:
            marked = await self._mark_alike(connection)
            # There may be more to tell: then the walk comes to its end by the next step.
            ended = marked < refusal_store.MARKED_AT_ONCE
            await refusal_store.store_walk(connection, replace(step.walk, ended=ended))
            return not ended
        opened = open_round(
            number=progress.next_number,
            scan_pass=progress.newest_scan_pass,
            now=self._clock.now(),
            settings=settings,
            participants=stand.participants,
            upcoming=queued,
            # Guesses stay good ones when the order has changed; they never change what is decided.
            hints=progress.hints,
            hints_of_kinds=progress.hints_of_kinds,
            runs_alone=progress.runs_alone,
        )
        await self._insert(connection, progress, opened)
        if step.walk != walk:
            await refusal_store.store_walk(connection, step.walk)
        wake_after_commit(connection, AUCTION_CHANNEL)
        return True

    async def _mark_alike(self, connection: AnyConnection) -> int:
        """Tells some of those that were passed over why; how many."""
        marked = await refusal_store.mark_alike(connection)
        now = self._clock.now()
        await event_store.append(connection, [_passed_over_event(entry, now) for entry in marked])
        return len(marked)

    async def _give_back_awards(self, connection: AnyConnection) -> None:
        """What absent regions have won, and regions that the fleet has no more, is put up again: it would wait for good."""
        served = await lease_store.served_regions(connection, lease_store.ABSENCE_REAL_S)
        given_back = await auction_store.give_back_awards(connection, served)
        if given_back:
            _log.warning("awards of absent regions are put up again", awards=given_back)

    def _next_settings(self, progress: AuctionProgress, *, fresh: bool) -> AuctionSettings:
        """The window follows the guesses. At the head of a queue that was ranked anew, nothing is known of them."""
        settings = self._configuration.settings()
        if fresh or progress.next_window is None:
            return settings
        return replace(settings, window=min(settings.window, progress.next_window))

    async def _queued(self, connection: AnyConnection, after: SortKey | None, limit: int, walk: QueueWalk) -> list[Lot]:
        """So many lots behind this place in the queue, or from its head on, that this walk may put up for auction now."""
        queued = await auction_store.upcoming_lots(connection, after, limit, self._clock.now(), walk.number)
        return await self._as_lots(connection, queued)

    async def _as_lots(self, connection: AnyConnection, queued: Sequence[QueuedLot]) -> list[Lot]:
        workloads = await self._asked(connection, [lot.position.workload for lot in queued])
        return [Lot(workloads[lot.position.workload], lot.position, lot.attempt, kind=lot.kind) for lot in queued]

    async def _insert(self, connection: AnyConnection, progress: AuctionProgress, opened: Round) -> None:
        await auction_store.insert_round(
            connection,
            number=progress.next_number,
            scan_pass=opened.scan_pass,
            now_s=opened.opened_s,
            participants=opened.participants,
            lots=opened.lots,
            reaches_end=opened.reaches_end,
            answer_timeout_real_s=self._configuration.answer_timeout_real_s,
        )

    async def _lots(self, connection: AnyConnection, stored: StoredRound) -> tuple[Lot, ...]:
        names = [WorkloadId(document["workload"]) for document in stored.lots]
        workloads = await self._asked(connection, names)
        return tuple(
            lot_from_document(document, workloads[name]) for name, document in zip(names, stored.lots, strict=True)
        )

    async def _asked(self, connection: AnyConnection, names: Sequence[WorkloadId]) -> dict[WorkloadId, Workload]:
        """These workloads with what they ask for."""
        workloads = await self._memory.specifications.workloads(connection, names)
        return {name: self._memory.asked(workload) for name, workload in workloads.items()}


def _as_round(stored: StoredRound, lots: Sequence[Lot]) -> Round:
    """The round as the core knows it. Its deadline in the service's time is a formality: the real one is the
    database server's, so that it means the same to all regions and however fast the service's clock runs."""
    return Round(
        number=stored.number,
        scan_pass=stored.scan_pass,
        opened_s=stored.now_s,
        deadline_s=stored.now_s + 1.0,
        participants=stored.participants,
        lots=tuple(lots),
        reaches_end=stored.reaches_end,
    )


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
