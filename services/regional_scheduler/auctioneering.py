"""A region's part in the auctions, against the database: it opens, answers and closes rounds (decision 003).

Any region may open or close a round; the one that holds the lock on the round's row does. What is decided is decided by
`regional_scheduler.auction.close_round`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from domain.clock import Clock
from regional_scheduler.rounds import Lot
from services.configuration import AuctionConfiguration
from services.database import auction_store, award_store, lease_store, refusal_store
from services.database.auction_store import StoredRound
from services.database.award_store import Award
from services.database.channels import AUCTION_CHANNEL, SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from services.database.lease_store import Lease
from services.database.pipeline import together
from services.database.revision_store import Revisions, load_revisions
from services.regional_scheduler.auction_step import AuctionStep
from services.regional_scheduler.further_answers import Ask, FurtherAnswers
from services.regional_scheduler.refusal_watch import RefusalWatch
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.region_metrics import Planning, RegionMetrics
from services.regional_scheduler.round_closing import RoundCloser
from services.regional_scheduler.round_opener import RoundOpener, as_round
from services.tiers.fenced_transaction import fenced_transaction


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
        return len(self.awards) < award_store.AWARDS_AT_ONCE


class Auctioneer:
    """Takes one region through the rounds, one step at a time. Awards are dispatched elsewhere, before each step.

    `ask`: how other regions of a round are asked on when this region closes it.
    """

    def __init__(
        self,
        database: Database,
        lease: Lease,
        memory: RegionMemory,
        clock: Clock,
        configuration: AuctionConfiguration,
        ask: Ask,
        metrics: RegionMetrics | None = None,
    ) -> None:
        self._database = database
        self._lease = lease
        self._region = memory.region.region
        self._memory = memory
        self._clock = clock
        self._refused = RefusalWatch(memory)
        self._metrics = metrics = metrics or RegionMetrics(self._region)
        self.further_answers = FurtherAnswers(memory, lease.token)
        """What the region answers when a round that it has answered is continued."""
        self._opener = RoundOpener(memory, clock, configuration)
        self._closer = RoundCloser(
            database, lease, memory, clock, configuration, self._opener, self.further_answers, ask, metrics
        )

    async def look(self, connection: AnyConnection) -> AuctionLook:
        """What there is to dispatch and to answer; the caller's transaction is fenced by it.

        What the region has won in earlier rounds, which were closed before this one was opened, is read after it: whoever
        has dispatched that answers with it in its inventory (I11).
        """
        _, _, stored, revisions, has_awards, awards = await together(
            connection,
            lease_store.assert_held(connection, self._lease),
            self._refused.take_over(connection),
            auction_store.open_round(connection),
            load_revisions(connection),
            award_store.has_awards(connection, self._region),
            award_store.lock_awards(connection, self._region),
        )
        return AuctionLook(stored, revisions, has_awards, tuple(awards))

    async def lots_to_answer(self, connection: AnyConnection, looked: AuctionLook) -> tuple[Lot, ...] | None:
        """The lots of the open round, if it wants an answer of this region; None: it does not, or there is none."""
        if looked.stored is None or not self._answers(looked.stored):
            return None
        return await self._opener.lots(connection, looked.stored)

    async def go_on(self, looked: AuctionLook, lots: Sequence[Lot] | None) -> AuctionStep:
        """Answers the open round that was seen, or closes it, or opens one: whatever is to be done now.

        `lots` are those to answer. What was to be dispatched has been.
        """
        stored = looked.stored
        if stored is None:
            async with fenced_transaction(self._database, self._lease, pipelined=True) as connection:
                return AuctionStep(moved=await self._opener.open_next(connection))
        if lots is None and not stored.is_due:
            return AuctionStep(moved=False, again_in_real_s=max(0.0, stored.deadline_in_real_s))
        if lots is None:
            return await self._closer.close_if_due(None)
        auction_round = as_round(stored, lots)
        # In a thread: leases are kept, and calls answered, however long plans take. What they read waits.
        async with self._memory.steady:
            with self._metrics.planning(Planning.ANSWER):
                response = await asyncio.to_thread(self._memory.bidder.answer, auction_round, self._clock.now())
        self.further_answers.answered(auction_round)
        return await self._closer.close_if_due(response)

    def _answers(self, stored: StoredRound) -> bool:
        return self._region in stored.participants and self._region not in stored.answered

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
