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
from services.database.workload_store import NewWorkload
from services.regional_scheduler.auction_turn import AuctionTurn, begin_turn
from services.regional_scheduler.auctioneering import Auctioneer
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.region_memory import RegionMemory
from services.wire.workloads import specification_to_proto
from tests.regional_scheduler.auction_worlds import PASS_INTERVAL_S, WorldPlan, auction_one_at_a_time, random_world

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


async def open_region(database: Database, region: RegionId, window: int = LARGEST_WINDOW) -> AuctioningRegion:
    async with database.transaction() as connection:
        memory = await load_memory(connection, region)
        name = f"{lease_store.REGIONAL_PREFIX}{region}"
        lease = await lease_store.acquire(connection, name, f"of {region}", "nowhere", 1, LONG_REAL_S)
    assert memory is not None
    assert lease is not None
    configuration = AuctionConfiguration(window=window, answer_timeout_real_s=LONG_REAL_S)
    auctioneer = Auctioneer(database, lease, memory, StoppedClock(), configuration)
    return AuctioningRegion(region, database, memory, auctioneer)


async def auction(database: Database, plan: WorldPlan) -> None:
    """Until there is nothing left to auction and to dispatch."""
    async with database.transaction() as connection:
        await prepare(connection, plan)
    regions = [await open_region(database, region) for region in plan.regions]
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


async def closed_rounds(connection: AnyConnection) -> list[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """The lots and the outcome of each, in their order."""
    cursor = await connection.execute("SELECT lots->'lots', outcome FROM auction_rounds ORDER BY round")
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
        assert len(rounds[0][0]) == min(LARGEST_WINDOW, left), "nothing is known of guesses at the head of the queue"
        for (lots, outcome), (next_lots, _) in pairwise(rounds):
            left -= len(outcome["verdicts"])
            assert len(next_lots) == min(outcome["next_window"], left)
            assert {lot["workload"]: lot["expected_winner"] for lot in next_lots if lot["expected_winner"]} == {
                lot["workload"]: outcome["hints"][lot["workload"]]
                for lot in next_lots
                if lot["workload"] in outcome["hints"]
            }
            put_up = {lot["workload"] for lot in lots}
            beyond += sum(lot["expected_winner"] is not None for lot in next_lots if lot["workload"] not in put_up)
        assert beyond > 0, "also to lots that no region has answered yet"

    asyncio.run(scenario())
