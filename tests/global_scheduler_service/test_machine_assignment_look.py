"""What an operator is told who names a region, machine or cluster that is not there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from services.database import fleet_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.global_scheduler.machine_assignment_look import apply_requests, explain, load_questions
from services.grpc_errors import NotFound
from tests.database.small_world import FLEET
from topmast.v1.machine_assignment_pb2 import PlanMachinesRequest


async def plan(connection: AnyConnection) -> None:
    await load_questions(connection, PlanMachinesRequest(region="eest"))


async def apply(connection: AnyConnection) -> None:
    await apply_requests(connection, "requests: []", "eest", 0.0)


async def ask(connection: AnyConnection) -> None:
    await explain(connection, "east-aa")


@pytest.mark.parametrize(
    ("look", "sentence"),
    [
        (plan, "there is no region 'eest'; did you mean east?"),
        (apply, "there is no region 'eest'; did you mean east?"),
        (ask, "there is no machine or cluster 'east-aa'; did you mean east-a"),
    ],
)
def test_who_mistypes_a_name_is_told_what_there_is(
    database_url: str, look: Callable[[AnyConnection], Awaitable[None]], sentence: str
) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await fleet_store.apply_fleet(connection, FLEET)
            with pytest.raises(NotFound) as refused:
                await look(connection)
            assert refused.value.sentence.startswith(sentence)

    asyncio.run(scenario())
