"""Closing a round against the database: the region whose answer is the last one decides it, continues it, and stores what it came to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from domain.clock import Clock
from domain.identifiers import RegionId
from regional_scheduler.auction import Holders, RoundOutcome, Won, close_round
from regional_scheduler.queue_walk import QueueWalk
from regional_scheduler.round_opening import continue_round
from regional_scheduler.rounds import Lot, RegionResponse, Round
from services.configuration import AuctionConfiguration
from services.database import auction_store, lease_store, refusal_store
from services.database.auction_store import AuctionProgress, StoredRound
from services.database.channels import AUCTION_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from services.database.lease_store import Lease, RegionalScheduler
from services.database.pipeline import together
from services.regional_scheduler.auction_step import AuctionStep
from services.regional_scheduler.further_answers import Ask, CannotGoOn, FurtherAnswers, FurtherQuestion, ask_all
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.region_metrics import Planning, RegionMetrics
from services.regional_scheduler.round_opener import AuctionStand, Following, RoundOpener, as_round
from services.regional_scheduler.undecided_lots import data_holders, lack_data, mark_undecided, store_refusals

_LOOKS_TO_CLOSE = 3.0
"""So many times as long as reading a due round took is kept for closing it."""
_LONGEST_IN_TIMEOUTS = 2.0
"""A round is continued until it has been open for so many times as long as a region may take to answer: whoever fails each time
when it continues it, and begins anew, does not keep the others waiting for good."""
_UNASKED_REAL_S = 10.0
"""A region of which nothing was heard is not asked on for so long, unless it begins anew: each time costs a round its patience."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _DueRound:
    """A round that all have answered, or that is past its deadline, and what closing it needs."""

    stored: StoredRound
    auction_round: Round
    responses: Sequence[RegionResponse]
    behind: Sequence[Lot]
    """What follows behind its lots in the queue: what will be put up next."""
    holders: Holders | None
    """None: it is not known yet, for no region has lacked data."""
    schedulers: tuple[RegionalScheduler, ...]
    """That were live when it was read."""
    walk: QueueWalk
    progress: AuctionProgress
    has_room: bool

    def decide(self, auction_round: Round, responses: Sequence[RegionResponse]) -> RoundOutcome:
        """What these answers come to; `auction_round`: the round as it was opened, or as it was continued."""
        now = auction_round.deadline_s if self.stored.deadline_passed else auction_round.opened_s
        outcome = close_round(auction_round, responses, now, self.behind, self.holders)
        if not isinstance(outcome, RoundOutcome):
            raise RuntimeError(f"round {auction_round.number} is due, but {outcome.missing} are said to be missing")
        return outcome


class RoundCloser:
    """Takes one region's answers into the rounds, and closes those of which they are the last."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        memory: RegionMemory,
        clock: Clock,
        configuration: AuctionConfiguration,
        opener: RoundOpener,
        own_answers: FurtherAnswers,
        ask: Ask,
        metrics: RegionMetrics,
    ) -> None:
        self._database = database
        self._lease = lease
        self._region = memory.region.region
        self._memory = memory
        self._clock = clock
        self._configuration = configuration
        self._opener = opener
        self._own_answers = own_answers
        self._ask = ask
        self._metrics = metrics
        self._now_real_s = asyncio.get_running_loop().time
        self._unasked: dict[RegionalScheduler, float] = {}
        """Of whom nothing was heard, and until when they are not asked on."""

    async def close_if_due(self, response: RegionResponse | None) -> AuctionStep:
        """Stores the answer; when it is the last one, or the deadline has passed, the round is closed.

        Of a round that can be continued the last answer is stored with what it came to: until then no other region closes it,
        unless this one takes longer than a region may take to answer.
        """
        if response is not None:
            waits_real_s = await self._store_unless_last(response)
            if waits_real_s is not None:
                return AuctionStep(moved=False, again_in_real_s=max(0.0, waits_real_s))
        async with self._database.transaction(pipelined=True) as connection:
            stored = await self._lock(connection, response)
            if stored is None:
                return AuctionStep(moved=True)
            if self._region in stored.answered:
                # The first answer counts.
                response = None
            answered = {*stored.answered, *((self._region,) if response is not None else ())}
            if not stored.deadline_passed and not answered.issuperset(stored.participants):
                return AuctionStep(moved=False, again_in_real_s=max(0.0, stored.deadline_in_real_s))
            began_real_s = self._now_real_s()
            due = await self._read(connection, stored, response)
            # In a thread: leases are kept, and calls answered, meanwhile.
            with self._metrics.planning(Planning.DECISION):
                outcome = await asyncio.to_thread(due.decide, due.auction_round, due.responses)
            others = self._to_ask_on(due, outcome)
            timeout_real_s = self._configuration.answer_timeout_real_s
            patience_real_s = min(timeout_real_s, _LONGEST_IN_TIMEOUTS * timeout_real_s - stored.open_for_real_s)
            if response is None or others is None or patience_real_s <= 0.0:
                stand = AuctionStand(due.walk, due.progress, due.has_room, _regions(due.schedulers))
                await self._store(connection, due, response, outcome, stand)
                self._metrics.round_closed(outcome, stored.open_for_real_s)
                return AuctionStep(moved=True)
            await auction_store.put_deadline_off(connection, stored.number, patience_real_s)
        now_real_s = self._now_real_s()
        until_real_s = now_real_s + patience_real_s - _LOOKS_TO_CLOSE * (now_real_s - began_real_s)
        continued = await self._continue(due, outcome, others, until_real_s)
        await self._store_continued(due, response, outcome, continued, began_real_s)
        return AuctionStep(moved=True)

    async def _store_unless_last(self, response: RegionResponse) -> float | None:
        """In how many real seconds the round is due, when the answer is stored; None: it is the last one, or is not wanted any more."""
        async with self._database.transaction(pipelined=True) as connection:
            storing = await auction_store.send_unless_last(connection, self._lease, response)
        row = await storing.fetchone()
        return None if row is None else float(row[0])

    async def _store_continued(
        self,
        due: _DueRound,
        response: RegionResponse,
        outcome: RoundOutcome,
        continued: RoundOutcome,
        read_real_s: float,
    ) -> None:
        """Closes the round with what it came to when it was continued, unless another region has closed it meanwhile.

        `read_real_s`: when it was read that it was to be closed.
        """
        async with self._database.transaction(pipelined=True) as connection:
            if await self._lock(connection, response) is None:
                return
            walk, progress, has_room, schedulers = await together(
                connection,
                refusal_store.lock_walk(connection),
                auction_store.load_progress(connection),
                refusal_store.any_has_room(connection),
                lease_store.live_regional_schedulers(connection),
            )
            # What a region answered whose session has ended meanwhile may not be so.
            taking_part = {one for one in due.schedulers if one.region in due.auction_round.participants}
            same = taking_part.issubset(schedulers)
            stand = AuctionStand(walk, progress, has_room, _regions(schedulers))
            came_to = continued if same else outcome
            await self._store(connection, due, response, came_to, stand)
        self._metrics.round_closed(came_to, due.stored.open_for_real_s + self._now_real_s() - read_real_s)

    async def _lock(self, connection: AnyConnection, response: RegionResponse | None) -> StoredRound | None:
        """The open round, locked; None: it is closed, or not the one that was answered."""
        _, locked, stored = await together(
            connection,
            lease_store.assert_held(connection, self._lease),
            auction_store.lock_open_round(connection),
            auction_store.open_round(connection),
        )
        if stored is None or locked != stored.number:
            return None
        return stored if response is None or response.round_number == stored.number else None

    async def _store_response(self, connection: AnyConnection, response: RegionResponse | None) -> None:
        if response is not None:
            await auction_store.store_response(connection, response)

    async def _read(self, connection: AnyConnection, stored: StoredRound, response: RegionResponse | None) -> _DueRound:
        lots = await self._opener.lots(connection, stored)
        # What follows behind the window now is what will be put up next: guesses reach that far.
        last = lots[-1].position
        limit, now_s = 0 if stored.reaches_end else self._configuration.settings().window + 1, self._clock.now()
        walk, responses, progress, has_room, schedulers, queued, worse = await together(
            connection,
            refusal_store.lock_walk(connection),
            auction_store.load_responses(connection, stored.number),
            auction_store.load_progress(connection),
            refusal_store.any_has_room(connection),
            lease_store.live_regional_schedulers(connection),
            auction_store.upcoming_of(connection, last.standing, last.sort_key, limit, now_s),
            auction_store.next_standing(connection, last.standing),
        )
        queued = await auction_store.upcoming_from(connection, worse, limit, now_s, before=queued)
        behind = await self._opener.as_lots(connection, queued)
        if response is not None:
            responses.append(response)
        holders = await data_holders(connection, self._memory) if lack_data(responses) else None
        auction_round = as_round(stored, lots)
        return _DueRound(stored, auction_round, responses, behind, holders, schedulers, walk, progress, has_room)

    def _to_ask_on(self, due: _DueRound, outcome: RoundOutcome) -> list[RegionalScheduler] | None:
        """The other regions of the round, if it can be continued; None: all is decided, or one of them would not be heard."""
        if continue_round(due.auction_round, outcome) is None:
            return None
        names = [region for region in due.auction_round.participants if region != self._region]
        others = [scheduler for scheduler in due.schedulers if scheduler.region in names]
        silent = any(self._unasked.get(other, 0.0) > self._now_real_s() for other in others)
        return None if silent or len(others) < len(names) else others

    async def _continue(
        self, due: _DueRound, outcome: RoundOutcome, others: Sequence[RegionalScheduler], until_real_s: float
    ) -> RoundOutcome:
        """Asks all regions of the round on, until every lot is decided, one of them cannot go on, or time is up."""
        first, continued = outcome, continue_round(due.auction_round, outcome)
        while continued is not None and self._now_real_s() < until_real_s:
            question = FurtherQuestion(
                continued.number,
                tuple(verdict.winner if isinstance(verdict, Won) else None for verdict in outcome.verdicts),
                tuple(lot.expected_winner for lot in continued.lots_to_answer),
            )
            patience_real_s = until_real_s - self._now_real_s()
            try:
                responses = await ask_all(
                    self._ask, others, self._own_answers, question, self._clock.now(), patience_real_s
                )
            except CannotGoOn as cannot:
                _log.info("a round is not continued", round=continued.number, why=str(cannot))
                # Who has answered before is only slow.
                if cannot.silent and outcome is first:
                    self._ask_no_more([other for other in others if other.region == cannot.region])
                break
            due = await self._with_holders(due, responses)
            then = await asyncio.to_thread(due.decide, continued, responses)
            outcome = outcome.followed_by(then)
            continued = continue_round(continued, then)
        return outcome

    def _ask_no_more(self, silent: Sequence[RegionalScheduler]) -> None:
        """Not for a while."""
        now_real_s = self._now_real_s()
        self._unasked = {other: until for other, until in self._unasked.items() if until > now_real_s}
        self._unasked.update(dict.fromkeys(silent, now_real_s + _UNASKED_REAL_S))

    async def _with_holders(self, due: _DueRound, responses: Sequence[RegionResponse]) -> _DueRound:
        """Data may be lacking for a further lot, and for none of the first ones."""
        if due.holders is not None or not lack_data(responses):
            return due
        async with self._database.transaction() as connection:
            return replace(due, holders=await data_holders(connection, self._memory))

    async def _store(
        self,
        connection: AnyConnection,
        due: _DueRound,
        response: RegionResponse | None,
        outcome: RoundOutcome,
        stand: AuctionStand,
    ) -> None:
        """Closes the round and opens the next one."""
        await self._store_response(connection, response)
        next_window = outcome.next_window(self._configuration.settings())
        await auction_store.store_outcome(connection, outcome, self._region, next_window=next_window)
        await mark_undecided(connection, outcome, self._clock)
        await store_refusals(connection, self._memory, outcome, stand.walk.number)
        if outcome.hopeless:
            # What was refused now may be passed over from here on.
            await self._opener.open_next(connection)
        else:
            following = [*(lot._replace(expected_winner=None) for lot in outcome.carried_over), *due.behind]
            await self._opener.open_on(
                connection,
                stand.after(outcome, next_window),
                Following(due.stored.scan_pass, stand.walk, following),
            )
        wake_after_commit(connection, AUCTION_CHANNEL)


def _regions(schedulers: Sequence[RegionalScheduler]) -> tuple[RegionId, ...]:
    return tuple(scheduler.region for scheduler in schedulers)
