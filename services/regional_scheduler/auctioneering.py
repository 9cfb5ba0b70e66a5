"""A region's part in the auctions, against the database: it opens, answers and closes rounds (decision 003).

Any region may open or close a round; the one that holds the lock on the round's row does. What is decided is decided by
`regional_scheduler.auction.close_round`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from domain.clock import Clock
from domain.events import Event, EventKind
from domain.identifiers import WorkloadId
from domain.life_cycle import Happening
from domain.workload import Workload
from formats.event_details import undecided_details
from regional_scheduler.auction import AwaitingData, NotYet, RoundOutcome, Waiting, close_round
from regional_scheduler.rounds import AuctionSettings, Lot, RegionResponse, Round, open_round
from services.configuration import AuctionConfiguration
from services.database import auction_store, event_store, lease_store
from services.database.auction_documents import lot_from_document
from services.database.auction_store import AuctionProgress, SortKey, StoredRound, Unplaceable
from services.database.channels import AUCTION_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.region_memory import RegionMemory
from services.tiers.fenced_transaction import fenced_transaction

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AuctionStep:
    """What a step of the auction leads to."""

    moved: bool
    """True when there may be more to do at once."""
    again_in_real_s: float | None = None
    """When to look again without being woken: the deadline of a round that others have not answered."""


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

    async def step(self) -> AuctionStep:
        """Answers the open round, or closes it, or opens one: whatever is to be done now."""
        async with fenced_transaction(self._database, self._lease) as connection:
            stored = await auction_store.open_round(connection, lock=False)
            if stored is None:
                return AuctionStep(moved=await self._open_next(connection))
            lots = await self._lots(connection, stored) if self._answers(stored) else None
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
        async with fenced_transaction(self._database, self._lease) as connection:
            stored = await auction_store.open_round(connection, lock=True)
            if stored is None:
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
        responses = await auction_store.load_responses(connection, stored.number)
        auction_round = _as_round(stored, lots)
        now = auction_round.deadline_s if stored.deadline_passed else auction_round.opened_s
        settings = self._configuration.settings()
        # What follows behind the window now is what will be put up next: guesses reach that far.
        behind: list[Lot] = []
        if not stored.reaches_end:
            behind = await self._queued(connection, lots[-1].position.sort_key, settings.window)
        outcome = close_round(auction_round, responses, now, behind)
        if isinstance(outcome, NotYet):
            raise RuntimeError(f"round {stored.number} is due, but {outcome.missing} are said to be missing")
        progress = await auction_store.load_progress(connection)
        await auction_store.store_outcome(
            connection, outcome, responses, self._region, next_window=outcome.next_window(settings)
        )
        # Once in a scan pass, for the head of the queue, the numbers in the reasons are brought up to date.
        first_of_pass = progress.scan_pass != stored.scan_pass
        await self._mark_undecided(connection, outcome, refresh_reasons=first_of_pass)
        await self._open_next(connection)

    async def _mark_undecided(self, connection: AnyConnection, outcome: RoundOutcome, *, refresh_reasons: bool) -> None:
        """Records of workloads that no region can place that it is so: their state, and an event when it is a new one."""
        undecided = [verdict for verdict in outcome.verdicts if isinstance(verdict, (Waiting, AwaitingData))]
        marks = [
            Unplaceable(
                verdict.lot.workload.workload,
                Happening.NO_DATA if isinstance(verdict, AwaitingData) else Happening.NO_PLACE,
                verdict.sentence,
                verdict.diagnosis,
            )
            for verdict in undecided
        ]
        news = await auction_store.mark_undecided(connection, marks, refresh_reasons=refresh_reasons)
        now = self._clock.now()
        await event_store.append(
            connection,
            [_undecided_event(verdict, now) for verdict in undecided if verdict.lot.workload.workload in news],
        )

    async def _open_next(self, connection: AnyConnection) -> bool:
        """Opens the next round over what follows in the queue; False when there is nothing to auction."""
        progress = await auction_store.load_progress(connection)
        if progress.newest_scan_pass is None:
            return False
        fresh = progress.scan_pass != progress.newest_scan_pass
        if not fresh and progress.exhausted:
            return False
        if fresh:
            await self._give_back_awards(connection)
        settings = self._next_settings(progress, fresh=fresh)
        queued = await self._queued(connection, None if fresh else progress.cursor, settings.window + 1)
        if not queued:
            return False
        participants = await lease_store.live_regions(connection)
        opened = open_round(
            number=progress.next_number,
            scan_pass=progress.newest_scan_pass,
            now=self._clock.now(),
            settings=settings,
            participants=participants,
            upcoming=queued,
            # Guesses stay good ones when the order has changed; they never change what is decided.
            hints=progress.hints,
        )
        if not await self._insert(connection, progress, opened):
            return False
        wake_after_commit(connection, AUCTION_CHANNEL)
        return True

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

    async def _queued(self, connection: AnyConnection, after: SortKey | None, limit: int) -> list[Lot]:
        """So many lots behind this place in the queue, or from its head on, that may be put up for auction now."""
        queued = await auction_store.upcoming_lots(connection, after, limit, self._clock.now())
        workloads = await self._asked(connection, [lot.position.workload for lot in queued])
        return [Lot(workloads[lot.position.workload], lot.position, lot.attempt) for lot in queued]

    async def _insert(self, connection: AnyConnection, progress: AuctionProgress, opened: Round) -> bool:
        return await auction_store.insert_round(
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
