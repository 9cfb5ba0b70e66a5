"""Of plans that were followed by others only what may still be asked for is kept."""

import asyncio

import pytest

from services.database import plan_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.plan_store import PlanGivenUp, StoredMove


def moves(count: int) -> list[StoredMove]:
    return [StoredMove(place, "t", "east", "west", "copy", 1, None, "no job reads it") for place in range(count)]


async def _made(connection: AnyConnection, count: int) -> int:
    plan = await plan_store.begin_plan(connection, {}, 1.0)
    await plan_store.finish_plan(connection, plan, {}, moves(count), {}, 0, 2.0)
    return plan


def test_moves_of_earlier_plans_are_forgotten_but_for_the_one_applied_last(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            plans = []
            for is_applied in (True, True, False, False):
                plans.append(await _made(connection, 3))
                if is_applied:
                    assert await plan_store.mark_applied(connection, plans[-1], 3.0)
            kept = [await plan_store.count_moves(connection, plan) for plan in plans]
            assert kept == [0, 3, 0, 3]

    asyncio.run(scenario())


def test_of_a_plan_that_nobody_waits_for_nothing_is_stored(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            ready = await database.run(lambda connection: _made(connection, 2))
            plan = await database.run(lambda connection: plan_store.begin_plan(connection, {}, 1.0))
            await database.run(lambda connection: plan_store.abandon_plan(connection, "the leader went", 2.0))
            with pytest.raises(PlanGivenUp):
                await database.run(
                    lambda connection: plan_store.finish_plan(connection, plan, {}, moves(3), {}, 0, 2.0)
                )
            async with database.transaction() as connection:
                assert await plan_store.count_moves(connection, plan) == 0
                assert await plan_store.count_moves(connection, ready) == 2

    asyncio.run(scenario())
