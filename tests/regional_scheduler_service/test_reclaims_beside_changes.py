"""Inference gets its machines back although what runs there is being changed at the moment."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from domain.clock import ManualClock
from domain.fleet import Fleet, MachineState
from domain.identifiers import JobName
from domain.inference import InferenceSide
from domain.life_cycle import State
from domain.placement import TaskPlacement
from services.database import attempt_store, fleet_store, lease_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.absent_clusters import AbsentClusters
from services.regional_scheduler.action_requests import ResizeRequest
from services.regional_scheduler.arrivals import Arrivals
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.inbox import Inbox
from services.regional_scheduler.live_loans import LiveLoans
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.requested_actions import RequestedActions
from services.wire.workloads import specification_to_proto
from tests.database.small_world import EAST, FLEET, dispatch, new_attempt, placement, submission, submit
from tests.regional_scheduler_service.test_races import FIRST, W1
from tests.regional_scheduler_service.test_won_scale_in import elastic

NOW_S = 3000.0
WITH_BASE_TASKS, WITH_FLEXIBLE_TASKS = "east-b-r0-m0", "east-b-r0-m1"
PATIENCE_REAL_S = 240.0


def on(machine: str, number: int) -> TaskPlacement:
    first = 2 * (number % 2)
    return placement(machine)._replace(task=number, gpu_indices=(first, first + 1), millicpus=8_000)


TASKS = (
    on(WITH_BASE_TASKS, 0),
    on(WITH_BASE_TASKS, 1),
    on(WITH_FLEXIBLE_TASKS, 2),
    on(WITH_FLEXIBLE_TASKS, 3),
)


def lending(series: Path) -> Fleet:
    """Half of the four machines of one cluster are on loan; its inference needs three from now on."""
    side = InferenceSide(series=str(series), headroom=0.0, forecast="persistence")
    east, *others = FLEET.regions
    lender, *clusters = east.clusters
    return Fleet((replace(east, clusters=(replace(lender, inference=side), *clusters)), *others))


async def set_up(connection: AnyConnection, fleet: Fleet) -> tuple[Lease, RegionMemory]:
    await fleet_store.apply_fleet(connection, fleet)
    await connection.execute(
        "UPDATE machines SET state = 'on_loan' WHERE machine = ANY (%s)", ([WITH_BASE_TASKS, WITH_FLEXIBLE_TASKS],)
    )
    serialized = specification_to_proto(elastic()).SerializeToString()
    await submit(connection, [replace(submission(1, elastic()), serialized=serialized)])
    await dispatch(connection, replace(new_attempt(W1), placements=TASKS))
    await attempt_store.record_started(connection, [(FIRST, 2100.0)])
    lease = await lease_store.acquire(connection, "regional/east", "it", "nowhere", 1, 600.0)
    assert lease is not None
    memory = await load_memory(connection, EAST)
    assert memory is not None
    return lease, memory


def test_what_is_being_changed_leaves_as_a_whole(database_url: str, tmp_path: Path) -> None:
    series = tmp_path / "series.csv"
    series.write_text("t_s,busy_pod_fraction\n0,0.75\n300,0.75\n")

    async def scenario() -> None:
        async with Database(database_url) as database:
            lease, memory = await database.run(lambda connection: set_up(connection, lending(series)))
            due, clock, inbox = DueAttempts(), ManualClock(NOW_S), Inbox()
            writer, arrivals = EvictionWriter(memory, due, clock), Arrivals(memory, due)
            actions = RequestedActions(database, lease, memory, writer, arrivals, clock)
            request = ResizeRequest(
                workload=W1, job=JobName("train"), tasks=3, plan=asyncio.get_running_loop().create_future()
            )
            await actions.answer([request])
            await request.plan
            attempt = memory.live.get(FIRST)
            assert attempt is not None
            assert attempt.change is not None
            loans = LiveLoans(database, lease, memory, writer, AbsentClusters(memory, 0.0), arrivals, inbox, clock)
            await loans.look()
            assert await inbox.wait(PATIENCE_REAL_S)
            await loans.look()
            await loans.close()
            states = [memory.machine_state(machine.machine) for machine in memory.region.machines()]
            assert states.count(MachineState.RETURNING) == 1
            assert attempt.state is State.PREEMPTING
            memory.inventory.check()

    asyncio.run(scenario())
