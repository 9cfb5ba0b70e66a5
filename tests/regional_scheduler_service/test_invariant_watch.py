"""A region whose memory contradicts itself says so in the event log, and decides nothing more on it."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import cast

import pytest

from cluster_manager.capacity.tables import MILLICPUS
from data_placement.catalog import Catalog
from domain.events import Event, EventKind
from regional_scheduler.region_capacity import RegionCapacity
from services.clock import SystemClock
from services.database import event_store
from services.database.engine import Database
from services.database.lease_store import Lease
from services.database.revision_store import Revisions
from services.regional_scheduler.invariant_watch import CHECK_EVERY_REAL_S, CHECK_SOON_REAL_S, InvariantWatch
from services.regional_scheduler.loading import make_memory
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.server import Context, RegionalSchedulerServicer
from services.regional_scheduler.session import RegionSession
from services.regional_scheduler.session_over import SessionOver
from services.wire.workloads import specification_to_proto
from tests.database.small_world import EAST, FLEET, TENANTS, specification
from tests.simulator.contract.recorded_run import read_recorded_run
from tests.simulator.contract.service_on_virtual_time import ServiceOnVirtualTime
from tests.simulator.contract.test_own_course import SETTINGS
from topmast.v1.regional_scheduler_pb2 import PlanWorkloadRequest


@dataclass
class AtWork:
    """A session, as far as it is asked what it would plan."""

    memory: RegionMemory


def test_nobody_tries_a_plan_on_the_memory_while_it_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan for several jobs charges one after the other: a check beside it would find what does not add up."""
    begun, may_end = threading.Event(), threading.Event()

    def check(inventory: RegionCapacity) -> None:
        del inventory
        begun.set()
        assert may_end.wait(60.0)

    async def scenario() -> None:
        memory = make_memory(Revisions(1, 1, 1), FLEET, {}, TENANTS, Catalog(), [], EAST)
        assert memory is not None
        session = cast(RegionSession, AtWork(memory))
        servicer = RegionalSchedulerServicer(EAST, lambda: session, SystemClock())
        watch = InvariantWatch(Database("postgresql:///none"), Lease("", "", 1), memory, SystemClock(), 0.0)
        monkeypatch.setattr(RegionCapacity, "check", check)
        look = asyncio.create_task(watch.look(CHECK_EVERY_REAL_S))
        await asyncio.to_thread(begun.wait)
        request = PlanWorkloadRequest(specification=specification_to_proto(specification()))
        plan = asyncio.create_task(servicer.PlanWorkload(request, cast(Context, None)))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not plan.done()
        may_end.set()
        await look
        assert (await plan).placeable

    asyncio.run(scenario())


@pytest.mark.parametrize("soon", [False, True], ids=["in time", "after something went wrong"])
def test_a_broken_invariant_is_an_event_and_ends_the_session(database_url: str, soon: bool) -> None:
    run = read_recorded_run()

    async def scenario() -> list[Event]:
        async with Database(database_url) as database:
            service = await ServiceOnVirtualTime.open(database, run.fleet, run.tables, run.tenants, SETTINGS, 0.0, 8)
            memory = service.regions[0].memory
            watch = InvariantWatch(database, service.lease, memory, service.clock, 0.0)
            await watch.look(CHECK_EVERY_REAL_S)
            memory.inventory.clusters[0].layout.arrays.state[0, MILLICPUS] -= 1
            if soon:
                watch.look_soon()
                watch.look_soon()
            await watch.look(CHECK_EVERY_REAL_S + CHECK_SOON_REAL_S - 1.0)
            next_real_s = CHECK_SOON_REAL_S if soon else CHECK_EVERY_REAL_S
            with pytest.raises(SessionOver, match="an invariant is broken: what is free"):
                await watch.look(CHECK_EVERY_REAL_S + next_real_s)
            async with database.transaction() as connection:
                page = await event_store.read(connection, 0, 100)
            return [stored.event for stored in page.events]

    (event,) = asyncio.run(scenario())
    assert (event.event, event.region) == (EventKind.INVARIANT_BROKEN, run.fleet.regions[0].region)
    assert "what is free" in str(event.details["invariant"])
