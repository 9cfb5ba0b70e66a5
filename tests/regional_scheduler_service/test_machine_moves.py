"""Machines to clusters, step by step: decided anew when one is lost, kept through sessions, turned back when they are to stay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from domain.capacity_requests import CapacityRequest, ClusterRequests
from domain.clock import Clock, ManualClock
from domain.fleet import MachineState
from domain.identifiers import ClusterId, MachineId
from domain.machine_moves import MachineMovement, MoveState
from services.configuration import ClustersConfiguration
from services.database import fleet_store, lease_store, machine_move_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.absent_clusters import AbsentClusters
from services.regional_scheduler.arrivals import Arrivals
from services.regional_scheduler.cluster_link import MachineReport
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.inbox import Inbox
from services.regional_scheduler.machine_maintenance import MachineMaintenance
from services.regional_scheduler.machine_moves import MachineMoves
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.requested_actions import RequestedActions
from tests.database.small_world import A100, EAST
from tests.regional_scheduler_service.test_machine_reports import REAL_TIME, maintenance_of
from tests.regional_scheduler_service.test_races import dispatch_over_quota, load
from tests.regional_scheduler_service.test_refused_changes import (
    NOW_S,
    Region,
    grow_on_another_machine,
    in_a_region,
)
from tests.regional_scheduler_service.test_won_scale_in import TASKS

PATIENCE_REAL_S = 240.0
EAST_A, EAST_B = ClusterId("east-a"), ClusterId("east-b")


@dataclass
class Mover:
    """The moves of a region, with what they work on."""

    database: Database
    lease: Lease
    memory: RegionMemory
    maintenance: MachineMaintenance
    inbox: Inbox
    moves: MachineMoves

    async def ask(self, east_a: int, east_b: int) -> None:
        """So many machines for each."""
        requests = [
            ClusterRequests(name, (CapacityRequest(name, A100, count),))
            for name, count in ((EAST_A, east_a), (EAST_B, east_b))
        ]
        storing = partial(machine_move_store.store_requests, region=EAST, requests=requests, now=1.0)
        await self.database.run(storing)
        self.inbox.look_at_moves = True

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Looks until that is so."""
        async with asyncio.timeout(PATIENCE_REAL_S):
            while not await condition():
                await self.moves.look()
                await self.inbox.wait(0.05)

    async def under_way(self) -> dict[MachineId, MachineMovement]:
        return await self.database.run(partial(machine_move_store.load_moves, region=EAST))

    async def machines_of(self, cluster: ClusterId) -> tuple[MachineId, ...]:
        _, machines = await self.database.run(partial(fleet_store.machines_of_cluster, cluster=cluster))
        return machines

    async def decided(self) -> bool:
        stored = await self.database.run(machine_move_store.load_requests)
        return stored[EAST].decided_s is not None


def mover_of(
    database: Database,
    lease: Lease,
    memory: RegionMemory,
    settings: ClustersConfiguration,
    clock: Clock = REAL_TIME,
) -> Mover:
    due, inbox = DueAttempts(), Inbox()
    arrivals, absent = Arrivals(memory, due), AbsentClusters(memory, 0.0)
    maintenance = maintenance_of(database, lease, memory, clock)
    actions = RequestedActions(database, lease, memory, EvictionWriter(memory, due, clock), arrivals, clock)
    moves = MachineMoves(database, lease, memory, absent, arrivals, maintenance, actions, inbox, clock, settings)
    return Mover(database, lease, memory, maintenance, inbox, moves)


@asynccontextmanager
async def region_of(database_url: str, settings: ClustersConfiguration) -> AsyncIterator[Mover]:
    """The region of the small world, with an attempt on two machines of east-b."""
    async with Database(database_url) as database:
        async with database.transaction() as connection:
            await dispatch_over_quota(connection)
            lease = await lease_store.acquire(connection, "regional/east", "it", "nowhere", 1, 600.0)
            memory = await load(connection)
        assert lease is not None
        mover = mover_of(database, lease, memory, settings)
        yield mover
        await mover.moves.close()


def test_a_spare_machine_takes_over_from_one_that_is_lost(database_url: str) -> None:
    async def scenario() -> None:
        async with region_of(database_url, ClustersConfiguration(time_limit_real_s=5.0)) as mover:
            await mover.ask(2, 2)
            await mover.until(mover.decided)
            assert await mover.under_way() == {}
            lost = MachineId("east-a-r0-m0")
            await mover.maintenance.take_reports([MachineReport(lost, False, "it burns")])

            async def taken_over() -> bool:
                return len(await mover.machines_of(EAST_A)) == 3

            await mover.until(taken_over)
            busy = {machine for attempt in mover.memory.live for machine in attempt.machines}
            assert not busy & set(await mover.machines_of(EAST_A)), "an idle one"
            assert await mover.under_way() == {}

    asyncio.run(scenario())


def test_a_machine_that_is_not_to_move_any_more_takes_work_again(database_url: str) -> None:
    async def scenario() -> None:
        async with region_of(database_url, ClustersConfiguration(drain_s=1e8, time_limit_real_s=5.0)) as mover:
            # Three machines of east-b are idle; the fourth has work on it, and waits for its deadline.
            await mover.ask(6, 0)

            async def only_the_busy_one_is_left() -> bool:
                return len(await mover.machines_of(EAST_B)) == 1

            await mover.until(only_the_busy_one_is_left)
            ((machine, move),) = (await mover.under_way()).items()
            assert mover.memory.live.on(machine)
            assert (move.to_cluster, move.state) == (EAST_A, MoveState.DRAINING)
            assert mover.memory.machine_state(machine) is MachineState.DRAINING
            # The next session finds it under way; and another request has it stay.
            async with mover.database.transaction() as connection:
                memory = await load(connection)
            later = mover_of(mover.database, mover.lease, memory, ClustersConfiguration(time_limit_real_s=5.0))
            assert memory.machine_state(machine) is MachineState.DRAINING
            await later.ask(5, 1)

            async def nothing_is_under_way() -> bool:
                return await later.decided() and not await later.under_way()

            await later.until(nothing_is_under_way)
            states = await later.database.run(partial(fleet_store.states_of, machines=[machine]))
            assert states[machine] is MachineState.UP
            await later.moves.close()

    asyncio.run(scenario())


def test_machines_that_move_stand_with_their_rack(database_url: str) -> None:
    async def scenario() -> None:
        async with region_of(database_url, ClustersConfiguration()) as mover:
            moves = {MachineId("east-b-r1-m1"): EAST_A, MachineId("east-b-r0-m1"): EAST_A}

            async def idle_and_moved(connection: AnyConnection) -> None:
                await connection.execute("DELETE FROM placements")
                await machine_move_store.change_clusters(connection, moves)

            await mover.database.run(idle_and_moved)
            assert await mover.machines_of(EAST_A) == (
                "east-a-r0-m0",
                "east-a-r0-m1",
                "east-b-r0-m1",
                "east-b-r1-m1",
            )
            fleet, _ = await mover.database.run(partial(fleet_store.load_fleet, region=EAST))
            east_a = next(one for one in fleet.regions[0].clusters if one.cluster == EAST_A)
            assert [(rack.rack, len(rack.machines)) for rack in east_a.racks] == [("r0", 3), ("r1", 1)]

    asyncio.run(scenario())


def test_a_machine_that_moves_costs_flexible_tasks_only(database_url: str) -> None:
    async def story(region: Region) -> None:
        machine = await grow_on_another_machine(region)
        await region.carry_out()
        settings = ClustersConfiguration(drain_s=0.0)
        # By the clock of its attempts, which began in 1970: by another one they would have used GPUs for half a million hours.
        mover = mover_of(region.database, region.lease, region.memory, settings, ManualClock(NOW_S))
        here = region.memory.inventory.cluster_of(machine)
        to_cluster = EAST_A if here == EAST_B else EAST_B
        going = MachineMovement(machine, here, to_cluster, MoveState.WAITING, NOW_S)
        await region.database.run(partial(machine_move_store.store_moves, region=EAST, moves=[going]))
        mover.inbox.look_at_moves = True
        for _ in range(3):
            await mover.moves.look()
        assert region.memory.machine_state(machine) is MachineState.DRAINING
        assert (region.attempt.eviction, region.held) == (None, TASKS[:2])
        assert region.attempt.revision == 2
        await mover.moves.close()

    in_a_region(database_url, 2, story)
