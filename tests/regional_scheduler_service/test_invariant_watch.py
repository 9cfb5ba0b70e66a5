"""A region whose memory contradicts itself says so in the event log, and decides nothing more on it."""

from __future__ import annotations

import asyncio

import pytest

from cluster_manager.capacity.tables import MILLICPUS
from domain.events import Event, EventKind
from services.database import event_store
from services.database.engine import Database
from services.regional_scheduler.invariant_watch import CHECK_EVERY_REAL_S, InvariantWatch
from services.regional_scheduler.session_over import SessionOver
from tests.simulator.contract.recorded_run import read_recorded_run
from tests.simulator.contract.service_on_virtual_time import ServiceOnVirtualTime
from tests.simulator.contract.test_own_course import SETTINGS


def test_a_broken_invariant_is_an_event_and_ends_the_session(database_url: str) -> None:
    run = read_recorded_run()

    async def scenario() -> list[Event]:
        async with Database(database_url) as database:
            service = await ServiceOnVirtualTime.open(database, run.fleet, run.tables, run.tenants, SETTINGS, 0.0, 8)
            memory = service.regions[0].memory
            watch = InvariantWatch(database, service.lease, memory, service.clock, 0.0)
            await watch.look(CHECK_EVERY_REAL_S)
            memory.inventory.clusters[0].layout.arrays.state[0, MILLICPUS] -= 1
            await watch.look(CHECK_EVERY_REAL_S + 1.0)
            with pytest.raises(SessionOver, match="an invariant is broken: what is free"):
                await watch.look(2 * CHECK_EVERY_REAL_S)
            async with database.transaction() as connection:
                page = await event_store.read(connection, 0, 100)
            return [stored.event for stored in page.events]

    (event,) = asyncio.run(scenario())
    assert (event.event, event.region) == (EventKind.INVARIANT_BROKEN, run.fleet.regions[0].region)
    assert "what is free" in str(event.details["invariant"])
