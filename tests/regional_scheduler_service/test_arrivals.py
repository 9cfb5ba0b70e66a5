"""Attempts that migrate into a region: what is kept for them, and what is known of them when they come."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from psycopg.types.json import Jsonb

from domain.eviction import EvictionRule
from domain.fleet import MachineState
from domain.identifiers import AttemptNumber, MachineId
from domain.placement import AttemptKey
from domain.plan import Plan, Reclaim
from services.clock import SystemClock
from services.database import lease_store, reservation_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.placement_documents import placements_to_documents
from services.database.reservation_store import ReservedPlace
from services.regional_scheduler.action_requests import ReclaimRequest
from services.regional_scheduler.arrivals import Arrivals
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.requested_actions import RequestedActions
from services.regional_scheduler.session_over import SessionOver
from tests.database.small_world import EAST
from tests.regional_scheduler_service.test_races import FIRST, W1, dispatch_over_quota

SUCCESSOR = AttemptKey(W1, AttemptNumber(2))


async def keep_a_place(
    connection: AnyConnection, state: MachineState = MachineState.UP
) -> tuple[RegionMemory, ReservedPlace]:
    """Another machine, in that state, is kept for the successor of the attempt that runs."""
    await dispatch_over_quota(connection)
    before = await load_memory(connection, EAST)
    assert before is not None
    held = before.inventory.holding(FIRST)
    assert held is not None
    used = {placement.machine for placement in held.placements}
    machine = next(
        machine.machine
        for cluster in before.region.clusters
        for machine in cluster.machines()
        if machine.machine not in used and cluster.cluster == held.placements[0].cluster
    )
    moved = tuple(placement._replace(machine=machine) for placement in held.placements)
    place = ReservedPlace(SUCCESSOR, EAST, 2_000.0, moved)
    await connection.execute("UPDATE machines SET state = %s WHERE machine = %s", (state.value, machine))
    await connection.execute(
        "INSERT INTO reserved_places (workload, attempt, region, reserved_s, placements) VALUES (%s, 2, %s, 2000, %s)",
        (W1, EAST, Jsonb(placements_to_documents(moved))),
    )
    memory = await load_memory(connection, EAST, EvictionRule(600.0, 1), 2_000.0)
    assert memory is not None
    return memory, place


def with_a_kept_place(
    database_url: str, story: Callable[[AnyConnection, RegionMemory, ReservedPlace], Awaitable[None]]
) -> None:
    """The first attempt runs, and another machine is kept for its successor."""

    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await story(connection, *await keep_a_place(connection))

    asyncio.run(scenario())


def test_a_place_is_given_up_with_its_machine(database_url: str) -> None:
    async def story(connection: AnyConnection, memory: RegionMemory, place: ReservedPlace) -> None:
        arrivals = Arrivals(memory, DueAttempts())
        assert await arrivals.give_up(connection, [MachineId("elsewhere")]) == []
        assert await arrivals.give_up(connection, [place.placements[0].machine]) == [W1]

    with_a_kept_place(database_url, story)


def test_a_machine_is_not_lost_unseen_by_an_attempt_that_has_just_come(database_url: str) -> None:
    """Its successor was written by the other region a moment ago: it would stay on the lost machine for good."""

    async def story(connection: AnyConnection, memory: RegionMemory, place: ReservedPlace) -> None:
        await connection.execute("DELETE FROM reserved_places")
        with pytest.raises(SessionOver, match="that it may run on"):
            await Arrivals(memory, DueAttempts()).give_up(connection, [place.placements[0].machine])

    with_a_kept_place(database_url, story)


@pytest.mark.parametrize(("preempted_s", "evictable_from_s"), [((), 3_100.0), ((1_500.0,), 5_100.0)])
def test_evictions_of_who_comes_are_bounded_like_those_of_all_others(
    database_url: str, preempted_s: tuple[float, ...], evictable_from_s: float
) -> None:
    async def story(connection: AnyConnection, memory: RegionMemory, place: ReservedPlace) -> None:
        del connection
        attempt = memory.live.get(FIRST)
        assert attempt is not None
        run = attempt.run._replace(facts=attempt.run.facts._replace(key=SUCCESSOR))
        successor = replace(attempt, run=run, dispatched_s=2_500.0, placements=place.placements)
        Arrivals(memory, DueAttempts()).admit(successor, {W1: preempted_s})
        held = memory.inventory.holding(SUCCESSOR)
        assert held is not None
        assert held.evictable_from_s == evictable_from_s
        assert memory.inventory.next_evictable_s == min(evictable_from_s, 2_600.0)

    with_a_kept_place(database_url, story)


def test_a_place_is_given_up_when_the_lender_wants_its_machine_back(database_url: str) -> None:
    """The successor would begin on a machine that is to go back, and nobody would ask it to leave."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                memory, place = await keep_a_place(connection, MachineState.ON_LOAN)
                lease = await lease_store.acquire(connection, "regional/east", "it", "nowhere", 1, 600.0)
            assert lease is not None
            due = DueAttempts()
            arrivals, clock = Arrivals(memory, due), SystemClock()
            actions = RequestedActions(database, lease, memory, EvictionWriter(memory, due, clock), arrivals, clock)
            plan: asyncio.Future[Plan] = asyncio.get_running_loop().create_future()
            machine = place.placements[0].machine
            await actions.answer([ReclaimRequest(machines=(machine,), plan=plan)])
            assert plan.result().actions == (Reclaim((machine,), ()),)
            assert memory.inventory.machine_state(machine) is MachineState.RETURNING
            assert memory.inventory.holding(SUCCESSOR) is None
            assert await database.run(lambda connection: reservation_store.in_region(connection, EAST)) == []

    asyncio.run(scenario())
