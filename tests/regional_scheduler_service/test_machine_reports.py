"""What cluster managers say of machines: only what is news reaches the database, and all of it together."""

from __future__ import annotations

import asyncio

from domain.clock import Clock
from domain.fleet import MachineState
from domain.identifiers import MachineId
from domain.machine_life_cycle import MachineHappening
from domain.placement import AttemptKey
from services.clock import SystemClock
from services.database import lease_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.absent_clusters import AbsentClusters
from services.regional_scheduler.arrivals import Arrivals
from services.regional_scheduler.cluster_link import MachineReport
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.inbox import MachineRequest
from services.regional_scheduler.lost_tasks import LostTasks
from services.regional_scheduler.machine_maintenance import MachineMaintenance
from services.regional_scheduler.machine_states import machine_state
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.undone_changes import UndoneChanges
from tests.database.small_world import EAST, FLEET
from tests.regional_scheduler_service.test_races import FIRST, dispatch_over_quota, load

MACHINES = [machine.machine for machine in FLEET.region(EAST).machines()]
LOST = {MachineId("east-b-r0-m0"), MachineId("east-b-r0-m1")}

REAL_TIME = SystemClock()


def maintenance_of(
    database: Database, lease: Lease, memory: RegionMemory, clock: Clock = REAL_TIME
) -> MachineMaintenance:
    due = DueAttempts()
    arrivals, absent = Arrivals(memory, due), AbsentClusters(memory, 0.0)
    writer, undone = EvictionWriter(memory, due, clock), UndoneChanges(memory, due, clock)
    losses = LostTasks(database, lease, memory, due, clock)
    return MachineMaintenance(database, lease, memory, writer, undone, losses, absent, arrivals, clock)


def reports(down: set[MachineId]) -> list[MachineReport]:
    """A complete one."""
    return [MachineReport(machine, machine not in down, "it burns" if machine in down else "") for machine in MACHINES]


async def events(connection: AnyConnection) -> list[tuple[str, int]]:
    cursor = await connection.execute(
        "SELECT event, count(*) FROM events WHERE event LIKE 'machine%' GROUP BY event ORDER BY event"
    )
    return await cursor.fetchall()


def test_a_complete_report_writes_what_is_news_in_one_transaction_and_nothing_when_nothing_is(
    database_url: str,
) -> None:
    async def transactions(database: Database) -> list[tuple[str, int]]:
        async with database.transaction() as connection:
            cursor = await connection.execute(
                """SELECT state, count(DISTINCT machines.xmin::text) FROM machines JOIN clusters USING (cluster)
                    WHERE region = %s GROUP BY state ORDER BY state""",
                (EAST,),
            )
            return await cursor.fetchall()

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await dispatch_over_quota(connection)
                lease = await lease_store.acquire(connection, "regional/east", "it", "nowhere", 1, 600.0)
                memory = await load(connection)
            assert lease is not None
            maintenance = maintenance_of(database, lease, memory)
            before = await transactions(database)
            # Without a lease any transaction would raise.
            await maintenance_of(database, Lease("regional/east", "nobody", 0), memory).take_reports(reports(set()))
            assert await transactions(database) == before == [("up", 1)]
            await maintenance.take_reports(reports(LOST))
            assert await transactions(database) == [("down", 1), ("up", 1)]
            assert {m for m in MACHINES if memory.inventory.machine_state(m) is MachineState.DOWN} == LOST
            assert memory.inventory.is_leaving(FIRST), "it was on one of them"
            await maintenance.take_reports([*reports(LOST), *reports(set())])
            assert [state for state, _ in await transactions(database)] == ["up"]
            assert all(memory.inventory.machine_state(m) is MachineState.UP for m in MACHINES)
            assert await database.run(events) == [("machine_down", 2), ("machine_up", 2)]

    asyncio.run(scenario())


def test_a_machine_that_is_drained_takes_no_work_after_its_restart_either(database_url: str) -> None:
    machine = MachineId("east-b-r0-m0")

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await dispatch_over_quota(connection)
                lease = await lease_store.acquire(connection, "regional/east", "it", "nowhere", 1, 600.0)
                await connection.execute("UPDATE machines SET state = 'draining' WHERE machine = %s", (machine,))
                memory = await load(connection)
            assert lease is not None
            maintenance = maintenance_of(database, lease, memory)
            for down, state in (({machine}, MachineState.DRAINING_DOWN), (set[MachineId](), MachineState.DRAINING)):
                await maintenance.take_reports(reports(down))
                assert memory.inventory.machine_state(machine) is state
                assert await database.run(lambda connection: machine_state(connection, machine)) is state

    asyncio.run(scenario())


def test_a_drain_is_undone_while_the_machine_is_down_and_the_log_says_so(database_url: str) -> None:
    machine = MachineId("east-b-r0-m0")

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await dispatch_over_quota(connection)
                lease = await lease_store.acquire(connection, "regional/east", "it", "nowhere", 1, 600.0)
                await connection.execute("UPDATE machines SET state = 'draining_down' WHERE machine = %s", (machine,))
                memory = await load(connection)
            assert lease is not None
            maintenance = maintenance_of(database, lease, memory)
            evicted: asyncio.Future[list[AttemptKey]] = asyncio.get_running_loop().create_future()
            undone = MachineRequest(
                (machine,), MachineHappening.UNDRAINED, "by hand", keep_running=True, evicted=evicted
            )
            await maintenance.answer([undone])
            assert await evicted == []
            assert memory.inventory.machine_state(machine) is MachineState.DOWN
            await maintenance.take_reports(reports(set()))
            assert memory.inventory.machine_state(machine) is MachineState.UP
            async with database.transaction() as connection:
                cursor = await connection.execute(
                    "SELECT details FROM events WHERE event = 'machine_up' ORDER BY sequence"
                )
                told = [row[0] for row in await cursor.fetchall() if row[0]["machine"] == machine]
            assert [details.get("still_down", False) for details in told] == [True, False]

    asyncio.run(scenario())
