"""The database moves a machine as the table of a machine's life does, and says what the event log is to say."""

from __future__ import annotations

import asyncio
import itertools

from domain.fleet import Fleet, MachineState, Region
from domain.identifiers import MachineId, RegionId
from domain.machine_life_cycle import MACHINE_EVENTS, MACHINE_TRANSITIONS, MachineHappening
from services.database import fleet_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.regional_scheduler.machine_states import (
    machine_state,
    record_machine_happening,
    record_machine_happenings,
)
from tests.database.small_world import FLEET, cluster

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


def test_many_machines_are_lost_by_few_statements_and_each_is_told_once(database_url: str) -> None:
    # One lock an event would end in "out of shared memory" where a large cluster is lost.
    many = cluster("east-many", racks=30, machines_per_rack=20)
    machines = [machine.machine for machine in many.machines()]
    lost = dict.fromkeys([*reversed(machines), MachineId("nobody")], "its switch is gone")

    async def scenario() -> None:
        async with Database(database_url) as database:
            fleet = Fleet((Region(RegionId("east"), (many,)),))
            await database.run(lambda connection: fleet_store.apply_fleet(connection, fleet))
            async with database.transaction() as connection:
                changed = await record_machine_happenings(
                    connection, RegionId("east"), lost, MachineHappening.FAILED, 5.0
                )
                assert list(changed) == machines[::-1]
                assert set(changed.values()) == {MachineState.DOWN}
                assert await _advisory_locks(connection) <= 3
                again = await record_machine_happenings(
                    connection, RegionId("east"), lost, MachineHappening.FAILED, 6.0
                )
                assert again == {}
            assert await database.run(_machines_in_events) == machines[::-1]

    asyncio.run(scenario())


async def _advisory_locks(connection: AnyConnection) -> int:
    cursor = await connection.execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def _machines_in_events(connection: AnyConnection) -> list[MachineId]:
    cursor = await connection.execute("SELECT details ->> 'machine' FROM events ORDER BY sequence")
    return [MachineId(row[0]) for row in await cursor.fetchall()]


async def _events(connection: AnyConnection) -> int:
    """How many there are, in this transaction too."""
    cursor = await connection.execute("SELECT count(*) FROM events")
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])
