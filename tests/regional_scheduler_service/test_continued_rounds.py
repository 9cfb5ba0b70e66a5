"""A round is continued with regions that die, say nothing, or say what is none: it is decided as far as it was, and closed."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import grpc
import pytest

from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import (
    AttemptNumber,
    ClusterId,
    GpuModel,
    JobName,
    MachineId,
    RackId,
    RegionId,
    TableId,
    TenantId,
    WorkloadId,
)
from domain.life_cycle import State
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.rank import Standing
from domain.resources import TaskResources
from domain.table import Table
from domain.workload import Emulated, JobSpecification, TableInput, Workload, WorkloadSpecification
from regional_scheduler.rounds import RegionResponse
from services.database import auction_store, award_store, lease_store
from services.database.auction_documents import response_document
from services.database.engine import Database
from services.database.lease_store import RegionalScheduler
from services.regional_scheduler.auctioneering import Auctioneer
from services.regional_scheduler.further_answers import CannotGoOn, FurtherQuestion, OtherRegions, answers_from_json
from services.regional_scheduler.round_opener import as_round
from tests.regional_scheduler.auction_worlds import OfferedWorkload, WorldPlan
from tests.regional_scheduler_service.regions_of_one_process import RegionsOfOneProcess
from tests.regional_scheduler_service.test_auctioneering import (
    LONG_REAL_S,
    SEEDS,
    AuctioningRegion,
    closed_rounds,
    crowd,
    open_region,
    prepare,
)

EAST, NORTH, WEST = (RegionId(name) for name in ("east", "north", "west"))
A100 = GpuModel("a100")
QUESTION = FurtherQuestion(1, (), (None, None))


class AllAreSilent(RegionsOfOneProcess):
    """Nothing is heard of any region."""

    async def ask(self, other: RegionalScheduler, question: FurtherQuestion, patience_real_s: float) -> RegionResponse:
        self.asked += 1
        raise CannotGoOn(other.region, "says nothing", silent=True)


class Meanwhile(RegionsOfOneProcess):
    """Something happens while the first further answer is on its way."""

    def __init__(self, happens: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._happens = happens
        self._happened = False

    async def ask(self, other: RegionalScheduler, question: FurtherQuestion, patience_real_s: float) -> RegionResponse:
        response = await super().ask(other, question, patience_real_s)
        if not self._happened:
            self._happened = True
            await self._happens()
        return response


async def answered_by_all_but_the_last(
    database: Database, plan: WorldPlan, others: RegionsOfOneProcess
) -> AuctioningRegion:
    """A round is open; the region whose answer is the last one has looked at it."""
    async with database.transaction() as connection:
        await prepare(connection, plan)
    *regions, last = [await open_region(database, region, others=others) for region in plan.regions]
    await last.dispatch()
    await last.auction()
    for region in regions:
        await region.step()
    await last.dispatch()
    return last


def test_a_region_of_which_nothing_is_heard_is_not_asked_in_every_round(database_url: str) -> None:
    plan, others = crowd(SEEDS[0]), AllAreSilent()

    async def scenario() -> None:
        async with Database(database_url) as database:
            last = await answered_by_all_but_the_last(database, plan, others)
            await last.auction()
            asked, others.asked = others.asked, 0
            assert asked == len(plan.regions) - 1
            closer = last.auctioneer
            # The next one: the others answer first again.
            await _answer_by_others(database, closer, others)
            await last.step()
            async with database.transaction() as connection:
                closed = [outcome for _, _, outcome in await closed_rounds(connection) if outcome]
            assert len(closed) == 2
            assert others.asked == 0

    asyncio.run(scenario())


async def _answer_by_others(database: Database, closer: Auctioneer, others: RegionsOfOneProcess) -> None:
    for auctioneer in others.auctioneers.values():
        if auctioneer is not closer:
            async with database.transaction() as connection:
                looked = await auctioneer.look(connection)
                lots = await auctioneer.lots_to_answer(connection, looked)
            assert lots is not None
            await auctioneer.go_on(looked, lots)


def test_who_fails_each_time_that_it_continues_a_round_does_not_put_it_off_for_good(database_url: str) -> None:
    plan, others = crowd(SEEDS[0]), RegionsOfOneProcess()

    async def scenario() -> None:
        async with Database(database_url) as database:
            last = await answered_by_all_but_the_last(database, plan, others)
            async with database.transaction() as connection:
                await connection.execute(
                    "UPDATE auction_rounds SET opened_at = opened_at - make_interval(secs => %s)", (2 * LONG_REAL_S,)
                )
            await last.auction()
            async with database.transaction() as connection:
                (lots, asked, outcome), *_ = await closed_rounds(connection)
            assert others.asked == 0
            assert 0 < len(outcome["verdicts"]) <= asked <= len(lots)

    asyncio.run(scenario())


def test_an_answer_that_is_stored_already_counts_once(database_url: str) -> None:
    plan, others = crowd(SEEDS[0]), RegionsOfOneProcess()

    async def scenario() -> None:
        async with Database(database_url) as database:
            last = await answered_by_all_but_the_last(database, plan, others)
            assert last.turn is not None
            stored, lots = last.turn.looked.stored, last.turn.lots
            assert stored is not None
            assert lots is not None
            response = last.memory.bidder.answer(as_round(stored, lots), 0.0)
            async with database.transaction() as connection:
                await auction_store.store_response(connection, response)
            assert await last.auction()
            async with database.transaction() as connection:
                (_, _, outcome), *_ = await closed_rounds(connection)
            assert outcome["verdicts"]

    asyncio.run(scenario())


def test_what_awaits_the_answer_of_a_region_with_its_data_does_not_await_data(database_url: str) -> None:
    """Also where no lot lacks data but one that is answered further: its table is in a region that starts again."""
    table = TableId("clicks")
    fleet = Fleet(tuple(Region(name, (_cluster(name),)) for name in (EAST, NORTH, WEST)))
    offered = [_offered(number, gpus=1 + number % 2) for number in range(20)]
    specification = replace(offered[-1].workload.specification, tables=(TableInput(table),))
    offered[-1] = replace(offered[-1], workload=replace(offered[-1].workload, specification=specification))
    plan = WorldPlan(fleet, (Table(table, 10**9, home=WEST),), (tuple(offered),), ((),))
    others = RegionsOfOneProcess()

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await prepare(connection, plan)
                name = f"{lease_store.REGIONAL_PREFIX}{WEST}"
                await lease_store.acquire(connection, name, "it", "nowhere", 1, 600.0)
                await connection.execute("UPDATE leases SET expires_at = clock_timestamp() - interval '1 second'")
            regions = [await open_region(database, one, window=64, others=others) for one in (EAST, NORTH)]
            await regions[0].step()
            for region in regions:
                await region.step()
            async with database.transaction() as connection:
                (lots, asked, outcome), *_ = await closed_rounds(connection)
                cursor = await connection.execute(
                    "SELECT state FROM queue_entries WHERE workload = %s", (offered[-1].workload.workload,)
                )
                row = await cursor.fetchone()
            assert others.asked > 0
            assert asked < len(lots) == len(outcome["verdicts"])
            assert row == (State.WAITING.value,)

    asyncio.run(scenario())


def _cluster(region: RegionId, machines: int = 8) -> Cluster:
    some = tuple(Machine(MachineId(f"{region}-{number}"), A100, 8, 96.0, 1024.0) for number in range(machines))
    return Cluster(ClusterId(f"{region}/0"), (Rack(RackId(f"{region}/0/0"), some),))


def _offered(number: int, gpus: int) -> OfferedWorkload:
    job = JobSpecification(JobName("main"), 1, TaskResources(gpus=gpus, gpu_model=A100), Emulated(600.0))
    name = WorkloadId(f"w{number:06}")
    workload = Workload(name, WorkloadSpecification(str(name), TenantId("tenant"), (job,)), float(number))
    return OfferedWorkload(workload, Standing(3, 0), 100.0 - number, 1)


def test_a_round_that_another_region_has_closed_meanwhile_stays_as_it_was_closed(database_url: str) -> None:
    """The one that continues it is paused beyond the deadline; then it comes with its own outcome."""
    plan = crowd(SEEDS[0])

    async def scenario() -> None:
        async with Database(database_url) as database:
            closed: list[tuple[str, Any]] = []

            async def another_closes_it() -> None:
                async with database.transaction() as connection:
                    await connection.execute("UPDATE auction_rounds SET deadline_at = clock_timestamp()")
                auctioneer = others.auctioneers[plan.regions[0]]
                async with database.transaction() as connection:
                    looked = await auctioneer.look(connection)
                assert (await auctioneer.go_on(looked, None)).moved
                closed.append(await first_outcome(database))

            others = Meanwhile(another_closes_it)
            last = await answered_by_all_but_the_last(database, plan, others)
            assert await last.auction()
            assert others.asked > 0
            assert closed == [await first_outcome(database)]
            assert closed[0][0] == plan.regions[0]
            assert closed[0][1]["absent"] == [last.region]

    asyncio.run(scenario())


async def first_outcome(database: Database) -> tuple[str, Any]:
    async with database.transaction() as connection:
        cursor = await connection.execute("SELECT closed_by, outcome FROM auction_rounds ORDER BY round LIMIT 1")
        row = await cursor.fetchone()
    assert row is not None
    return row[0], row[1]


def test_who_dies_while_it_continues_a_round_answers_anew_and_closes_it(database_url: str) -> None:
    plan = crowd(SEEDS[0])

    async def scenario() -> None:
        async with Database(database_url) as database:

            async def dies() -> None:
                raise asyncio.CancelledError

            others = Meanwhile(dies)
            last = await answered_by_all_but_the_last(database, plan, others)
            with pytest.raises(asyncio.CancelledError):
                await last.auction()
            again = await open_region(database, last.region, others=others)
            await again.dispatch()
            assert await again.auction()
            closed_by, outcome = await first_outcome(database)
            assert closed_by == last.region
            assert outcome["absent"] == []
            async with database.transaction() as connection:
                (lots, _, _), *_ = await closed_rounds(connection)
            assert len(outcome["verdicts"]) == len(lots)

    asyncio.run(scenario())


@pytest.mark.parametrize("ranked_anew", [False, True])
def test_what_is_cancelled_while_a_round_is_continued_is_not_awarded(database_url: str, ranked_anew: bool) -> None:
    plan = crowd(SEEDS[0])

    async def scenario() -> None:
        async with Database(database_url) as database:

            async def all_are_cancelled() -> None:
                async with database.transaction() as connection:
                    await connection.execute("DELETE FROM queue_entries")
                    if ranked_anew:
                        await connection.execute(
                            "INSERT INTO scan_passes (now_s, entries, changed, reclassified) VALUES (1, 0, 0, 0)"
                        )

            others = Meanwhile(all_are_cancelled)
            last = await answered_by_all_but_the_last(database, plan, others)
            assert await last.auction()
            _, outcome = await first_outcome(database)
            assert outcome["verdicts"]
            async with database.transaction() as connection:
                assert not any([await award_store.has_awards(connection, region) for region in plan.regions])
            # And the auctions go on.
            for _ in range(20):
                await last.step()

    asyncio.run(scenario())


def test_what_becomes_free_while_a_round_is_continued_is_room_for_what_it_has_refused(database_url: str) -> None:
    """The region had answered already that it has none, for kinds that are passed over from then on."""
    fleet = Fleet(tuple(Region(name, (_cluster(name, machines=1),)) for name in (EAST, WEST)))
    plan = WorldPlan(fleet, (), (tuple(_offered(number, gpus=1 + number % 2) for number in range(40)),), ((),))
    running = AttemptKey(WorkloadId("w999999"), AttemptNumber(1))

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await prepare(connection, plan)

            async def east_is_free_again() -> None:
                await asyncio.sleep(0.2)
                by_name[EAST].memory.inventory.release(running)

            others = Meanwhile(east_is_free_again)
            regions = [await open_region(database, name, window=64, others=others) for name in (EAST, WEST)]
            by_name = {region.region: region for region in regions}
            for name, region in by_name.items():
                gpus = tuple(range(8))
                task = TaskPlacement(JobName("main"), 0, ClusterId(f"{name}/0"), MachineId(f"{name}-0"), gpus, 1, 1)
                region.memory.inventory.hold(Holding(running, Standing(0, 0), 0.0, (task,)))
            await regions[0].step()
            await regions[0].step()
            await regions[1].step()
            _, outcome = await first_outcome(database)
            assert len(outcome["verdicts"]) == len(plan.arrivals[0])
            assert others.asked > 0
            while any([await region.step() for region in regions]):
                pass
            async with database.transaction() as connection:
                cursor = await connection.execute("SELECT count(*) FROM queue_entries")
                row = await cursor.fetchone()
            assert row is not None
            assert row[0] < len(plan.arrivals[0])

    asyncio.run(scenario())


# ---------------------------------------------------------------- what is no answer


def _document(**changed: Any) -> bytes:
    refused = {"abandoned": {"reason": "region_not_allowed"}, "sentence": "none"}
    response = RegionResponse(1, EAST, 0.0, (), (), 8, 8.0)
    return json.dumps({**response_document(response), "answers": [refused] * 2, **changed}).encode()


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[]", "cannot be read"),
        (b"null", "cannot be read"),
        (b"{}", "cannot be read"),
        (b"[" * 200_000, "cannot be read"),
        (_document(answers=[{"bid": [1]}] * 2), "cannot be read"),
        (_document(answers=[{"bid": None, "clusters": [], "machines": 1, "evictions": 0}] * 2), "cannot be read"),
        (_document(answers=[]), "gives 0 answers to 2 lots"),
        (_document(alike=[0]), "says of 1 lots, not 2, which are alike"),
    ],
)
def test_what_is_no_answer_to_the_question_ends_nobody(document: bytes, why: str) -> None:
    with pytest.raises(CannotGoOn, match=why):
        answers_from_json(EAST, QUESTION, document)


def test_a_region_that_takes_calls_and_never_answers_is_silent() -> None:
    async def failures(patience_real_s: Sequence[float]) -> list[CannotGoOn]:
        regions, failed = OtherRegions(), []
        with socket.create_server(("127.0.0.1", 0)) as server:
            other = RegionalScheduler(WEST, f"127.0.0.1:{server.getsockname()[1]}", 1)
            for patience in patience_real_s:
                with pytest.raises(CannotGoOn, match="west says") as raised:
                    await regions.ask(other, QUESTION, patience)
                failed.append(raised.value)
            await regions.close()
        return failed

    hurried, patient = asyncio.run(failures((0.05, 0.6)))
    assert (hurried.silent, patient.silent) == (False, True)
    assert isinstance(patient.__cause__, grpc.aio.AioRpcError)
