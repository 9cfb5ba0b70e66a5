"""Auctions in the database: one open round, answers and outcomes that come back as they were, awards."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from domain.diagnosis import Diagnosis, Numbers, Quantity, Reason
from domain.identifiers import AttemptNumber, ClusterId, GpuModel, JobName, RegionId, TableId, WorkloadId
from domain.life_cycle import Happening
from domain.placement import Score
from domain.rank import QueuePosition, Standing
from domain.workload import Workload
from regional_scheduler.auction import RoundOutcome, close_round
from regional_scheduler.idle_outline import IdleMachines
from regional_scheduler.round_opening import open_round
from regional_scheduler.rounds import (
    Abandoned,
    AuctionSettings,
    Bid,
    Lot,
    NoPlan,
    PlanSummary,
    RegionResponse,
    Round,
)
from services.database import auction_store, award_store, queue_store, workload_reader
from services.database.auction_documents import lot_document, lot_from_document
from services.database.auction_store import Unplaceable
from services.database.connection import AnyConnection
from services.database.engine import Database
from tests.database.small_world import specification, submission, submit

EAST, WEST = RegionId("east"), RegionId("west")


def lot(number: int) -> Lot:
    name = WorkloadId(f"w{number:06d}")
    position = QueuePosition(name, Standing(1, 0), credit=5.0 - number, submitted_s=1000.0 + number, within_quota=True)
    return Lot(Workload(name, specification(), 1000.0 + number), position, AttemptNumber(1))


def round_over(lots: list[Lot], number: int = 1) -> Round:
    return open_round(
        number=number,
        scan_pass=1,
        now=2000.0,
        settings=AuctionSettings(window=8),
        participants=[EAST, WEST],
        upcoming=lots,
        hints={},
    )


def bid(load: float) -> Bid:
    return Bid(Score(load=load, fragmentation=2.0), PlanSummary((ClusterId("east-a"),), machines=2, evictions=1))


FULL = Diagnosis(
    Reason.NO_ROOM, EAST, ClusterId("east-a"), JobName("train"), numbers=(Numbers(Quantity.TASKS, 8, 3),), since_s=9.5
)

ANSWERS_OF_EAST = (
    bid(0.25),
    NoPlan(Diagnosis(Reason.NO_ROOM), "8 of 16 GPUs are idle", assumes_wins=True),
    Abandoned(Diagnosis(Reason.NO_DATA, tables=(TableId("clicks"),)), "table clicks is not here"),
)


def response(region: RegionId, answers: tuple[Bid | NoPlan | Abandoned, ...], number: int = 1) -> RegionResponse:
    idle = (IdleMachines(GpuModel("A100"), 4, 4, 2),)
    return RegionResponse(number, region, 2000.5, answers, (WorkloadId("w000001"),), 64, 768.0, idle)


async def open_stored(connection: AnyConnection, opened: Round) -> None:
    await auction_store.insert_round(
        connection,
        number=opened.number,
        scan_pass=opened.scan_pass,
        now_s=opened.opened_s,
        participants=opened.participants,
        lots=opened.lots,
        asked=len(opened.lots_to_answer),
        reaches_end=opened.reaches_end,
        answer_timeout_real_s=60.0,
    )


def closed(opened: Round, responses: list[RegionResponse]) -> RoundOutcome:
    outcome = close_round(opened, responses, opened.opened_s)
    assert isinstance(outcome, RoundOutcome)
    return outcome


def test_at_most_one_round_is_open(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await open_stored(connection, round_over([lot(1)]))
            async with database.transaction() as connection:
                await open_stored(connection, round_over([lot(1)], number=2))
                stored = await auction_store.open_round(connection)
                assert stored is not None
                assert (stored.number, stored.participants, stored.answered) == (1, (EAST, WEST), ())
                assert not stored.deadline_passed
                assert 0 < stored.deadline_in_real_s <= 60

    asyncio.run(scenario())


def test_lots_and_answers_come_back_as_they_were(database_url: str) -> None:
    lots = [lot(1), lot(2), lot(3)]

    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            opened = round_over(lots)
            await open_stored(connection, opened)
            stored = await auction_store.open_round(connection)
            assert stored is not None
            assert tuple(
                lot_from_document(document, original.workload)
                for document, original in zip(stored.lots, lots, strict=True)
            ) == tuple(lots)
            said = response(EAST, ANSWERS_OF_EAST)
            await auction_store.store_response(connection, said)
            await auction_store.store_response(connection, response(EAST, (bid(0.9),) * 3))
            assert await auction_store.load_responses(connection, 1) == [said], "the first answer counts"

    asyncio.run(scenario())


def test_a_closed_round_leaves_awards_and_a_cursor(database_url: str) -> None:
    lots = [lot(1), lot(2)]

    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await submit(connection, [submission(1), submission(2)])
            opened = round_over(lots)
            await open_stored(connection, opened)
            no_place = NoPlan(Diagnosis(Reason.NO_ROOM), "0 of 8 GPUs are idle", assumes_wins=False)
            responses = [
                RegionResponse(1, EAST, 2000.0, (bid(0.2), no_place), (lots[0].position.workload,), 64, 768.0),
                RegionResponse(1, WEST, 2000.0, (bid(0.4), no_place), (), 64, 768.0),
            ]
            outcome = closed(opened, responses)
            await auction_store.store_outcome(connection, outcome, WEST, next_window=7)

            assert await auction_store.open_round(connection) is None
            assert await award_store.has_awards(connection, EAST)
            assert not await award_store.has_awards(connection, WEST)
            progress = await auction_store.load_progress(connection)
            assert (progress.next_number, progress.is_open) == (2, False)
            assert progress.cursor == lots[1].position.sort_key
            assert progress.next_window == 7

    asyncio.run(scenario())


def test_an_undecided_workload_changes_its_state_once_and_its_reason_when_asked(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await submit(connection, [submission(1)])
            name = WorkloadId("w000001")

            async def mark(reason: str, *, refresh_reasons: bool) -> set[WorkloadId]:
                found = replace(FULL, numbers=(Numbers(Quantity.TASKS, 8, int(reason[0])),))
                undecided = Unplaceable(name, Happening.NO_PLACE, reason, found)
                return await auction_store.mark_undecided(connection, [undecided], refresh_reasons=refresh_reasons)

            async def available() -> float:
                stored = await workload_reader.get(connection, name)
                assert stored is not None
                assert stored.diagnosis is not None
                assert stored.diagnosis.reason is Reason.NO_ROOM
                return stored.diagnosis.numbers[0].available

            async def reason() -> str:
                cursor = await connection.execute("SELECT reason FROM queue_entries")
                row = await cursor.fetchone()
                assert row is not None
                return str(row[0])

            assert await mark("3 GPUs are idle", refresh_reasons=False) == {name}
            assert await mark("4 GPUs are idle", refresh_reasons=False) == set()
            assert await reason() == "3 GPUs are idle"
            assert await available() == 3
            assert await mark("4 GPUs are idle", refresh_reasons=True) == set()
            assert await reason() == "4 GPUs are idle"
            assert await available() == 4

    asyncio.run(scenario())


def test_the_queue_shows_the_diagnosis_as_it_was_stored(database_url: str) -> None:
    """With the tenant and without: two statements."""

    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await submit(connection, [submission(1), submission(2)])
            await connection.execute("UPDATE queue_entries SET priority = 1")
            undecided = Unplaceable(WorkloadId("w000001"), Happening.NO_PLACE, "full", FULL)
            await auction_store.mark_undecided(connection, [undecided], refresh_reasons=False)
            for tenants in (None, [submission(1).specification.tenant]):
                lines = await queue_store.list_head(connection, 10, tenants)
                assert {line.workload: (line.reason, line.diagnosis) for line in lines} == {
                    "w000001": ("full", FULL),
                    "w000002": ("", None),
                }
                assert [line.rank for line in lines] == [1, 2]

    asyncio.run(scenario())


def test_a_diagnosis_says_since_when_the_reason_has_been_the_same(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await submit(connection, [submission(1)])
            name = WorkloadId("w000001")

            async def since_s(reason: Reason, found_s: float | None) -> float | None:
                """As it is stored after this was found, too."""
                found = replace(FULL, reason=reason, since_s=found_s)
                undecided = Unplaceable(name, Happening.NO_PLACE, f"{reason} at {found_s}", found)
                await auction_store.mark_undecided(connection, [undecided], refresh_reasons=True)
                stored = await workload_reader.get(connection, name)
                assert stored is not None
                assert stored.diagnosis is not None
                assert stored.diagnosis.reason is reason
                return stored.diagnosis.since_s

            assert await since_s(Reason.NO_ROOM, 10.0) == 10.0
            assert await since_s(Reason.NO_ROOM, 20.0) == 10.0
            # A smaller job was refused meanwhile: for this workload nothing has changed.
            assert await since_s(Reason.KNOWN_TO_FAIL, 30.0) == 10.0
            assert await since_s(Reason.NO_MACHINE_FITS, 40.0) == 40.0
            assert await since_s(Reason.TASK_TOO_LARGE, None) is None
            assert await since_s(Reason.NO_ROOM, 50.0) == 50.0

    asyncio.run(scenario())


def test_upcoming_lots_follow_the_queue_from_the_cursor_on_without_those_awarded(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await submit(connection, [submission(number) for number in range(1, 6)])
            # Ranked: 3 first (better priority), then 1, 2, 4 by credit; 5 has not been ranked yet.
            for number, priority, credit in ((1, 2, 9.0), (2, 2, 7.0), (3, 1, 0.0), (4, 2, 7.0)):
                await connection.execute(
                    "UPDATE queue_entries SET priority = %s, credit = %s WHERE workload = %s",
                    (priority, credit, f"w{number:06d}"),
                )

            async def upcoming(after: tuple[int, int, float, float, str] | None) -> list[str]:
                lots = await auction_store.upcoming_lots(connection, after, 10, 5000.0, 1)
                return [upcoming_lot.position.workload for upcoming_lot in lots]

            assert await upcoming(None) == ["w000003", "w000001", "w000002", "w000004"]
            first = (await auction_store.upcoming_lots(connection, None, 1, 5000.0, 1))[0]
            assert await upcoming(first.position.sort_key) == ["w000001", "w000002", "w000004"]
            await connection.execute(
                "INSERT INTO awards (workload, region, round, lot) VALUES ('w000001', 'east', 1, 0)"
            )
            assert await upcoming(None) == ["w000003", "w000002", "w000004"]
            assert [award.position.workload for award in await award_store.lock_awards(connection, EAST)] == ["w000001"]
            await award_store.delete_awards(connection, EAST, [WorkloadId("w000001")])
            assert not await award_store.has_awards(connection, EAST)

    asyncio.run(scenario())


class RankedMeanwhile:
    """A connection that has another one rank entries anew before its second statement that reads entries of a standing."""

    def __init__(self, connection: AnyConnection, rank: Callable[[], Awaitable[None]]) -> None:
        self._connection = connection
        self._rank = rank
        self._reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def execute(self, query: Any, *arguments: Any) -> Any:
        self._reads += "queue_entries" in query and "walk" in query
        if self._reads == 2:
            await self._rank()
        return await self._connection.execute(query, *arguments)


@pytest.mark.parametrize("behind_first", [False, True])
def test_no_workload_is_put_up_twice_that_gets_a_worse_standing_while_the_queue_is_read(
    database_url: str, behind_first: bool
) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await submit(connection, [submission(number) for number in range(1, 4)])
                await connection.execute("UPDATE queue_entries SET priority = 1")
                await connection.execute("UPDATE queue_entries SET priority = 2 WHERE workload = 'w000003'")

            async def rank() -> None:
                async with database.transaction() as connection:
                    await connection.execute("UPDATE queue_entries SET priority = 2")

            async with database.transaction() as connection:
                after = (1, 0, -1e9, 0.0, "") if behind_first else None
                meanwhile = cast(AnyConnection, RankedMeanwhile(connection, rank))
                lots = await auction_store.upcoming_lots(meanwhile, after, 10, 5000.0, 1)
        assert [upcoming.position.workload for upcoming in lots] == ["w000001", "w000002", "w000003"]

    asyncio.run(scenario())


def test_a_lot_document_is_plain_json() -> None:
    document = lot_document(lot(1))
    assert lot_from_document(json.loads(json.dumps(document)), lot(1).workload) == lot(1)
