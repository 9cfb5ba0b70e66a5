"""Rounds through PostgreSQL: guesses go from round to round and speed them up, and change nothing that is decided."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

import pytest

from domain.identifiers import ANY_GPU_MODEL, RegionId, TenantId, WorkloadId
from domain.life_cycle import State
from domain.placement import TaskPlacement
from domain.resources import Quota
from domain.tenant import Tenant
from regional_scheduler.rounds import RegionResponse
from services.configuration import AuctionConfiguration
from services.database import (
    attempt_store,
    catalog_store,
    fleet_store,
    lease_store,
    tenant_store,
    workload_store,
)
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import RegionalScheduler
from services.database.workload_store import NewWorkload
from services.regional_scheduler.auction_turn import AuctionTurn, begin_turn
from services.regional_scheduler.auctioneering import Auctioneer
from services.regional_scheduler.further_answers import CannotGoOn, FurtherQuestion
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.region_memory import RegionMemory
from services.wire.workloads import specification_to_proto
from tests.regional_scheduler.auction_worlds import PASS_INTERVAL_S, WorldPlan, auction_one_at_a_time, random_world
from tests.regional_scheduler_service.regions_of_one_process import RegionsOfOneProcess

TENANT = Tenant(TenantId("tenant"), 1, Quota.of({ANY_GPU_MODEL: 10_000}, cpus=10_000.0))
# Of worlds with several regions and with enough workloads for several rounds.
SEEDS = (11, 24, 48, 53, 60, 78, 81, 111)
LARGEST_WINDOW = 8
LONG_REAL_S = 600.0
KINDS = {State.WAITING.value: "waiting", State.AWAITING_DATA.value: "awaiting data"}

Fate = tuple[str, RegionId | None, tuple[TaskPlacement, ...]]
"""What became of a workload: won, waiting or awaiting data; where; on what."""


class StoppedClock:
    """The instant at which the twin auctions too."""

    def now(self) -> float:
        return PASS_INTERVAL_S


@dataclass
class AuctioningRegion:
    """A regional scheduler, as far as auctions go."""

    region: RegionId
    database: Database
    memory: RegionMemory
    auctioneer: Auctioneer

    turn: AuctionTurn | None = None

    async def step(self) -> bool:
        """Dispatches what it has won, then takes a step in the auction; whether there may be more to do."""
        dispatched = await self.dispatch()
        return await self.auction() or dispatched

    async def dispatch(self) -> bool:
        """Dispatches what it has won, and looks at the open round; whether there was anything to dispatch."""
        self.turn = await begin_turn(self.database, self.memory, self.auctioneer, StoppedClock())
        if self.turn.dispatched is None:
            return False
        assert self.turn.dispatched.given_back == 0, "what was won has room"
        for attempt in self.turn.dispatched.attempts:
            self.memory.live.add(attempt)
        return bool(self.turn.dispatched.attempts)

    async def auction(self) -> bool:
        """A step on what it has seen, and what it has to say of refused kinds before and after; whether there may be more to do."""
        turn, self.turn = self.turn, None
        if turn is None or not turn.goes_on:
            return True
        objected = await self.auctioneer.object_to_refusals()
        moved = (await self.auctioneer.go_on(turn.looked, turn.lots)).moved
        return await self.auctioneer.object_to_refusals() or moved or objected


def crowd(seed: int) -> WorldPlan:
    """All workloads of a random world, at once."""
    plan = random_world(seed)
    return replace(plan, arrivals=(tuple(chain.from_iterable(plan.arrivals)),), failures=((),))


async def prepare(connection: AnyConnection, plan: WorldPlan) -> None:
    """The fleet, and the queue as a scan pass leaves it."""
    await fleet_store.apply_fleet(connection, plan.fleet)
    await catalog_store.apply_tables(connection, plan.tables)
    await tenant_store.apply_tenants(connection, (TENANT,))
    (arrivals,) = plan.arrivals
    await workload_store.insert_submissions(
        connection,
        [
            NewWorkload(
                arrival.workload.workload,
                arrival.workload.specification,
                specification_to_proto(arrival.workload.specification).SerializeToString(),
                arrival.workload.submitted_s,
                None,
                None,
            )
            for arrival in arrivals
        ],
    )
    for arrival in arrivals:
        standing = arrival.standing
        await connection.execute(
            """UPDATE queue_entries SET priority = %s, level = %s, credit = %s, within_quota = %s
                WHERE workload = %s""",
            (standing.priority, standing.level, arrival.credit, standing.priority < 6, arrival.workload.workload),
        )
    await connection.execute(
        "INSERT INTO scan_passes (now_s, entries, changed, reclassified) VALUES (%s, %s, 0, 0)",
        (PASS_INTERVAL_S, len(arrivals)),
    )


async def open_region(
    database: Database,
    region: RegionId,
    window: int = LARGEST_WINDOW,
    others: RegionsOfOneProcess | None = None,
) -> AuctioningRegion:
    """Without `others` nothing is heard of any other region but what it stores."""
    others = others or RegionsOfOneProcess()
    async with database.transaction() as connection:
        memory = await load_memory(connection, region)
        name = f"{lease_store.REGIONAL_PREFIX}{region}"
        lease = await lease_store.acquire(connection, name, f"of {region}", "nowhere", 1, LONG_REAL_S)
    assert memory is not None
    assert lease is not None
    configuration = AuctionConfiguration(window=window, answer_timeout_real_s=LONG_REAL_S)
    auctioneer = Auctioneer(database, lease, memory, StoppedClock(), configuration, others.ask)
    others.add(region, auctioneer)
    return AuctioningRegion(region, database, memory, auctioneer)


async def auction(database: Database, plan: WorldPlan, others: RegionsOfOneProcess | None = None) -> None:
    """Until there is nothing left to auction and to dispatch."""
    async with database.transaction() as connection:
        await prepare(connection, plan)
    regions = [await open_region(database, region, others=others) for region in plan.regions]
    while any([await region.step() for region in regions]):
        pass


async def fates(connection: AnyConnection, plan: WorldPlan) -> dict[WorkloadId, Fate]:
    cursor = await connection.execute("SELECT workload, state FROM queue_entries")
    found: dict[WorkloadId, Fate] = {
        WorkloadId(workload): (KINDS[state], None, ()) for workload, state in await cursor.fetchall()
    }
    for region in plan.regions:
        for attempt in await attempt_store.load_live(connection, region):
            found[attempt.key.workload] = ("won", region, _ordered(attempt.placements))
    return found


def _ordered(placements: tuple[TaskPlacement, ...]) -> tuple[TaskPlacement, ...]:
    return tuple(sorted(placements, key=lambda placement: (placement.job, placement.task, placement.machine)))


def fates_one_at_a_time(plan: WorldPlan) -> dict[WorkloadId, Fate]:
    return {
        ruled.workload: (ruled.kind, ruled.region, _ordered(ruled.placements))
        for ruled in auction_one_at_a_time(plan).ruled
    }


async def closed_rounds(connection: AnyConnection) -> list[tuple[list[dict[str, Any]], int, dict[str, Any]]]:
    """Of each the lots, how many of them were asked first, and the outcome, in their order."""
    cursor = await connection.execute(
        "SELECT lots->'lots', (lots->'asked')::int, outcome FROM auction_rounds ORDER BY round"
    )
    return await cursor.fetchall()


@pytest.mark.parametrize("seed", SEEDS)
def test_guesses_reach_the_next_round_and_decide_nothing(database_url: str, seed: int) -> None:
    plan = crowd(seed)

    async def scenario() -> None:
        async with Database(database_url) as database:
            await auction(database, plan)
            async with database.transaction() as connection:
                assert await fates(connection, plan) == fates_one_at_a_time(plan)
                rounds = await closed_rounds(connection)
        left, beyond = len(plan.arrivals[0]), 0
        for (lots, _, outcome), (next_lots, asked, _) in pairwise(rounds):
            left -= len(outcome["verdicts"])
            assert len(next_lots) == min(LARGEST_WINDOW, left)
            assert asked == min(outcome["next_window"], len(next_lots))
            assert {lot["workload"]: lot["expected_winner"] for lot in next_lots if lot["expected_winner"]} == {
                lot["workload"]: outcome["hints"][lot["workload"]]
                for lot in next_lots
                if lot["workload"] in outcome["hints"]
            }
            put_up = {lot["workload"] for lot in lots}
            beyond += sum(lot["expected_winner"] is not None for lot in next_lots if lot["workload"] not in put_up)
        assert beyond > 0, "also to lots that no region has answered yet"

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_round_that_is_continued_decides_all_its_lots_as_one_at_a_time(database_url: str, seed: int) -> None:
    plan, others = crowd(seed), RegionsOfOneProcess()

    async def scenario() -> None:
        async with Database(database_url) as database:
            await auction(database, plan, others)
            async with database.transaction() as connection:
                assert await fates(connection, plan) == fates_one_at_a_time(plan)
                rounds = await closed_rounds(connection)
        assert all(len(outcome["verdicts"]) == len(lots) for lots, _, outcome in rounds)
        assert others.asked > 0, "guesses are wrong at times"

    asyncio.run(scenario())


def test_a_region_that_has_not_answered_the_round_does_not_go_on(database_url: str) -> None:
    plan, others = crowd(SEEDS[0]), RegionsOfOneProcess()

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await prepare(connection, plan)
            region = await open_region(database, plan.regions[0], others=others)
            with pytest.raises(CannotGoOn, match="has not answered round 1"):
                await region.auctioneer.further_answers.answer(FurtherQuestion(1, (), (None,)), 0.0)
            for other in plan.regions[1:]:
                await open_region(database, other, others=others)
            await region.dispatch()
            await region.auction()  # opens the round
            await region.step()  # answers it
            lots = (await _open_lots(database))[1:]
            with pytest.raises(CannotGoOn, match=f"knows {len(lots) + 1} lots of round 1, not {len(lots) + 2}"):
                await region.auctioneer.further_answers.answer(
                    FurtherQuestion(1, (None,), (None,) * (len(lots) + 1)), 0.0
                )

    asyncio.run(scenario())


async def _open_lots(database: Database) -> list[dict[str, Any]]:
    async with database.transaction() as connection:
        cursor = await connection.execute("SELECT lots->'lots' FROM auction_rounds WHERE closed_at IS NULL")
        row = await cursor.fetchone()
        assert row is not None
        lots: list[dict[str, Any]] = row[0]
        return lots


def test_what_was_answered_further_under_another_lease_decides_nothing(database_url: str) -> None:
    """The session of a region ends while a round is continued: what it has answered last may not be so any more."""
    plan = crowd(SEEDS[0])

    class EndsWhileAsked(RegionsOfOneProcess):
        async def ask(
            self, other: RegionalScheduler, question: FurtherQuestion, patience_real_s: float
        ) -> RegionResponse:
            response = await super().ask(other, question, patience_real_s)
            async with Database(database_url) as database, database.transaction() as connection:
                await lease_store.fence_regions(connection, [other.region])
            return response

    others = EndsWhileAsked()

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await prepare(connection, plan)
            regions = [await open_region(database, region, others=others) for region in plan.regions]
            await regions[0].dispatch()
            await regions[0].auction()
            for region in regions:
                await region.dispatch()
                await region.auction()
            async with database.transaction() as connection:
                (lots, asked, outcome), *_ = await closed_rounds(connection)
            assert others.asked > 0
            assert 0 < len(outcome["verdicts"]) <= asked
            assert len(outcome["verdicts"]) < len(lots)

    asyncio.run(scenario())
