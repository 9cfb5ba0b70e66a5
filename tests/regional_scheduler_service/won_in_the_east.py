"""What the region in the east has won, dispatched as its session would."""

from __future__ import annotations

from domain.clock import Clock
from regional_scheduler.dispatching import StartWith
from services.database import award_store
from services.database.connection import AnyConnection
from services.regional_scheduler.dispatching import Dispatched, dispatch_awards
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.region_memory import RegionMemory
from tests.database.small_world import EAST


async def loaded(connection: AnyConnection) -> RegionMemory:
    memory = await load_memory(connection, EAST)
    assert memory is not None
    return memory


async def dispatch_won(
    connection: AnyConnection,
    memory: RegionMemory,
    clock: Clock,
    start: StartWith | None = None,
    *,
    holds_quota: bool = False,
) -> Dispatched:
    """In the caller's transaction; raises as `dispatch_awards`."""
    awards = await award_store.lock_awards(connection, EAST)
    told = memory.bidder, memory.specifications, memory.tenants, memory.live, clock
    return await dispatch_awards(connection, EAST, awards, *told, start=start, holds_quota=holds_quota)


def take_over(memory: RegionMemory, dispatched: Dispatched, clock: Clock) -> None:
    """What was written counts in memory too."""
    for attempt in dispatched.attempts:
        memory.live.add(attempt)
    EvictionWriter(memory, DueAttempts(), clock).carry_out(dispatched.writes)
