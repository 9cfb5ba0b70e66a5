"""Calls plan on a region's memory in threads; meanwhile its loop changes nothing, and reads nothing that is only tried out."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field

import pytest

from data_placement.catalog import Catalog
from domain.identifiers import AttemptNumber, RegionId, WorkloadId
from domain.placement import AttemptKey, Holding
from domain.rank import QueuePosition, Standing
from domain.workload import Workload
from regional_scheduler.bidding import PlaceLost
from regional_scheduler.rounds import Lot, RegionResponse, Round
from services.clock import SystemClock
from services.configuration import Configuration
from services.database.engine import Database
from services.database.lease_store import Lease
from services.database.revision_store import Revisions
from services.regional_scheduler.further_answers import MOST_QUESTIONS, CannotGoOn, FurtherAnswers, FurtherQuestion
from services.regional_scheduler.inbox import Inbox
from services.regional_scheduler.loading import make_memory
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.session import RegionSession
from services.regional_scheduler.session_over import SessionOver
from services.regional_scheduler.visits import Visits
from tests.database.small_world import EAST, FLEET, TENANTS, placement, specification

RUNNING = AttemptKey(WorkloadId("w000009"), AttemptNumber(1))
NOBODY = RegionResponse(1, EAST, 0.0, (), (), 0, 0.0)
PATIENCE_S = 60.0


@dataclass
class SlowBidder:
    """Tries something out for as long as it is told to."""

    memory: RegionMemory
    begun: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)
    answers: int = 0

    def answer(self, auction_round: Round, now: float, won: tuple[Lot, ...] = ()) -> RegionResponse:
        with self.memory.inventory.tentatively():
            self.begun.set()
            assert self.may_end.wait(PATIENCE_S)
        self.answers += 1
        return NOBODY

    async def until_begun(self) -> None:
        await asyncio.to_thread(self.begun.wait, PATIENCE_S)


def a_memory() -> RegionMemory:
    """Of a region in which something runs."""
    memory = make_memory(Revisions(1, 1, 1), FLEET, {}, TENANTS, Catalog(), [], EAST)
    assert memory is not None
    memory.inventory.hold(Holding(RUNNING, Standing(3, 0), 0.0, (placement("east-b-r0-m0", 8),)))
    return memory


def that_answers_slowly(memory: RegionMemory) -> tuple[SlowBidder, FurtherAnswers]:
    memory.bidder = bidder = SlowBidder(memory)  # type: ignore[assignment]  # answers, and does nothing else
    further = FurtherAnswers(memory, 1)
    workload = Workload(WorkloadId("w000001"), specification(), 0.0)
    lot = Lot(workload, QueuePosition(workload.workload, Standing(1, 0), 0.0, 0.0, within_quota=True), AttemptNumber(1))
    further.answered(Round(1, 1, 0.0, 1.0, (EAST, RegionId("west")), (lot,), reaches_end=True))
    return bidder, further


QUESTION = FurtherQuestion(1, (), (None,))


def test_what_a_session_releases_while_it_is_asked_on_stays_released() -> None:
    async def scenario() -> None:
        memory = a_memory()
        bidder, further = that_answers_slowly(memory)
        database, lease = Database("postgresql://nowhere"), Lease("regional/east", "it", 1)
        session = RegionSession(database, memory, lease, SystemClock(), Configuration(), Inbox())

        async def ends_then_is_over() -> None:
            await bidder.until_begun()
            memory.inventory.release(RUNNING)
            raise SessionOver("it has released what ended")

        session._loop_once = ends_then_is_over  # type: ignore[method-assign]  # one turn of it, and what it changes
        session._sender.run = asyncio.Event().wait  # type: ignore[method-assign,assignment]  # sends nothing
        running = asyncio.ensure_future(session.run())
        asked = asyncio.ensure_future(further.answer(QUESTION, 0.0))
        await bidder.until_begun()
        await asyncio.sleep(0.05)
        bidder.may_end.set()
        assert await asked is NOBODY
        with pytest.raises(SessionOver):
            await running
        assert memory.inventory.holding(RUNNING) is None
        memory.inventory.check()

    asyncio.run(scenario())


def test_who_does_not_wait_for_its_answer_leaves_the_memory_when_the_thread_does() -> None:
    """As where the deadline of a call has passed: the thread cannot be stopped."""

    async def scenario() -> None:
        memory = a_memory()
        bidder, further = that_answers_slowly(memory)
        asked = asyncio.ensure_future(further.answer(QUESTION, 0.0))
        await bidder.until_begun()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert memory.steady.locked()
        bidder.may_end.set()
        async with memory.steady:
            assert bidder.answers == 1

    asyncio.run(scenario())


def test_no_more_than_some_questions_are_taken_at_a_time() -> None:
    async def scenario() -> None:
        bidder, further = that_answers_slowly(a_memory())
        asked = [asyncio.ensure_future(further.answer(QUESTION, 0.0)) for _ in range(MOST_QUESTIONS)]
        await bidder.until_begun()
        with pytest.raises(CannotGoOn, match="is asked by 2 others already"):
            await further.answer(QUESTION, 0.0)
        bidder.may_end.set()
        assert await asyncio.gather(*asked) == [NOBODY] * MOST_QUESTIONS
        assert await further.answer(QUESTION, 0.0) is NOBODY

    asyncio.run(scenario())


def test_the_loop_goes_on_between_any_two_visits() -> None:
    async def scenario() -> None:
        visits = Visits(asyncio.Lock())
        present, turns = threading.Event(), 0
        seen: list[int] = []

        def visit() -> None:
            present.set()
            seen.append(turns)
            time.sleep(0.005)
            present.clear()

        async def loop() -> str:
            nonlocal turns
            while len(seen) < 10:
                assert not present.is_set()
                turns += 1
                async with asyncio.timeout(PATIENCE_S):
                    await asyncio.sleep(0.001)
            return "over"

        running = asyncio.ensure_future(visits.hold_up(loop()))
        await asyncio.gather(*(visits.visit(visit) for _ in range(10)))
        assert await running == "over"
        assert seen == sorted(set(seen))

    asyncio.run(scenario())


def test_a_loop_that_is_cancelled_while_somebody_visits_ends_after_the_visit() -> None:
    async def scenario() -> None:
        visits, may_end, over = Visits(asyncio.Lock()), threading.Event(), asyncio.Event()

        async def loop() -> None:
            try:
                await asyncio.sleep(PATIENCE_S)
            finally:
                over.set()

        running = asyncio.ensure_future(visits.hold_up(loop()))
        visit = asyncio.ensure_future(visits.visit(lambda: may_end.wait(PATIENCE_S)))
        await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.sleep(0.01)
        assert not over.is_set()
        running.cancel()
        await asyncio.sleep(0.01)
        may_end.set()
        assert await visit
        with pytest.raises(asyncio.CancelledError):
            await running
        assert over.is_set()

    asyncio.run(scenario())


def test_what_a_visit_fails_with_its_visitor_hears() -> None:
    async def scenario() -> None:
        steady = asyncio.Lock()

        def visit() -> None:
            raise PlaceLost("it is gone")

        with pytest.raises(PlaceLost):
            await Visits(steady).visit(visit)
        assert not steady.locked()

    asyncio.run(scenario())


class Refused(Exception):
    """What the loop knows how to go on after."""


def test_what_the_loop_waits_for_may_fail_and_the_loop_handles_that() -> None:
    """Whether what it waits for is a thread, another task, or a time that is up."""

    def refuse() -> None:
        raise Refused

    async def refuse_later() -> None:
        await asyncio.sleep(0.0)
        raise Refused

    async def loop() -> list[str]:
        handled = []
        for waits_for in (lambda: asyncio.to_thread(refuse), lambda: asyncio.ensure_future(refuse_later())):
            try:
                await waits_for()
            except Refused:
                handled.append("refused")
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            handled.append("time is up")
        return handled

    async def scenario() -> list[str]:
        return await Visits(asyncio.Lock()).hold_up(loop())

    assert asyncio.run(scenario()) == ["refused", "refused", "time is up"]
