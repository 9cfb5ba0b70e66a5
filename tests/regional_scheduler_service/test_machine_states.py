"""The database moves a machine as the table of a machine's life does, and says what the event log is to say."""

from __future__ import annotations

import asyncio
import itertools

from domain.fleet import MachineState
from domain.identifiers import MachineId, RegionId
from domain.machine_life_cycle import MACHINE_EVENTS, MACHINE_TRANSITIONS, MachineHappening
from services.database import fleet_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.regional_scheduler.machine_states import machine_state, record_machine_happening
from tests.database.small_world import FLEET

MACHINE = MachineId("east-b-r0-m0")


def test_the_database_moves_machines_by_the_table(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: fleet_store.apply_fleet(connection, FLEET))
            for state, happening in itertools.product(MachineState, MachineHappening):
                async with database.transaction() as connection:
                    before = await _events(connection)
                    await connection.execute(
                        "UPDATE machines SET state = %s WHERE machine = %s", (state.value, MACHINE)
                    )
                    after = await record_machine_happening(
                        connection, RegionId("east"), MACHINE, happening, "as it is written", 5.0
                    )
                    assert after is MACHINE_TRANSITIONS.get((state, happening))
                    assert await machine_state(connection, MACHINE) is (after or state)
                    written = await _events(connection) - before
                    assert written == int(after is not None and happening in MACHINE_EVENTS)
            _, states = await database.run(fleet_store.load_fleet)
            assert {state for machine, state in states.items() if machine != MACHINE} == {MachineState.UP}

    asyncio.run(scenario())


def test_a_machine_that_is_not_there_is_in_no_state(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            nobody = MachineId("nobody")
            assert await machine_state(connection, nobody) is None
            for happening in MachineHappening:
                recorded = await record_machine_happening(
                    connection, RegionId("east"), nobody, happening, "it is not there", 5.0
                )
                assert recorded is None

    asyncio.run(scenario())


async def _events(connection: AnyConnection) -> int:
    """How many there are, in this transaction too."""
    cursor = await connection.execute("SELECT count(*) FROM events")
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])
