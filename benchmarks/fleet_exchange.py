"""How long a region's event loop stands still while another fleet is taken over: ``python -m benchmarks.fleet_exchange``.

A session of a region as large as MAST's works on a queue, on an embedded PostgreSQL, while another process applies the
fleet again and again, with one machine more or less. A task that only sleeps measures how late it has its turn: so late
would a lease be renewed, or a call answered.
"""

import argparse
import asyncio
import gc
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from typing import Final

from benchmarks.loop_blocks import Blocks
from benchmarks.mast_region import mast_region
from benchmarks.measurement import report, summary_of
from benchmarks.scan_pass_stored import new_database
from benchmarks.service_world import many_tenants, small_workload
from domain.fleet import Fleet, Machine, Rack, Region
from domain.identifiers import GpuModel, MachineId, RackId, WorkloadId
from services.clock import SystemClock
from services.configuration import Configuration
from services.database import fleet_store, lease_store, tenant_store, workload_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import REGIONAL_PREFIX, Lease
from services.database.workload_store import NewWorkload
from services.regional_scheduler.inbox import Inbox
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.session import RegionSession
from services.runtime.collection import forget_for_collection
from services.wire.workloads import specification_to_proto

_BUDGET: Final = "loops that hold a lease: no block over 50 ms"
_TENANTS: Final = 20
_FOREVER_S: Final = 1e7
_LOOK_EVERY_S: Final = 0.001
_OLDEST_GENERATION: Final = 2


@dataclass
class Measured:
    """One entry per exchange."""

    blocks_s: list[float] = field(default_factory=list)
    processor_s: list[float] = field(default_factory=list)
    taken_over_s: list[float] = field(default_factory=list)


@dataclass
class Collections:
    """Processor time of each search for garbage among all objects: no thread of the process goes on meanwhile."""

    took_s: list[float] = field(default_factory=list)
    _began_s: float = 0.0

    def note(self, phase: str, about: dict[str, int]) -> None:
        """One of `gc.callbacks`."""
        if phase == "start":
            self._began_s = time.thread_time()
        elif about["generation"] == _OLDEST_GENERATION:
            self.took_s.append(time.thread_time() - self._began_s)


def fleet_with_more(machines: int) -> Fleet:
    """One region as large as MAST's, with so many machines more."""
    region = mast_region()
    first = region.clusters[0]
    more = tuple(Machine(MachineId(f"more-{number}"), GpuModel("A100"), 8, 96.0, 1024.0) for number in range(machines))
    racks = (*first.racks, Rack(RackId("more"), more)) if more else first.racks
    return Fleet((Region(region.region, (replace(first, racks=racks), *region.clusters[1:])),))


def apply_elsewhere(url: str, more_machines: int) -> None:
    """In another process: `topmast fleet apply` blocks the global scheduler's loop, not the region's."""
    asyncio.run(_apply(url, more_machines))


async def _apply(url: str, more_machines: int) -> None:
    async with Database(url) as database:
        await database.run(partial(fleet_store.apply_fleet, fleet=fleet_with_more(more_machines)))


async def fill(connection: AnyConnection, pending: int) -> None:
    """The fleet, and a queue as a scan pass leaves it."""
    await fleet_store.apply_fleet(connection, fleet_with_more(0))
    tenants = many_tenants(_TENANTS, gpus_each=1_000)
    await tenant_store.apply_tenants(connection, tenants)
    submissions = []
    for number in range(pending):
        specification = small_workload(number, _TENANTS, _FOREVER_S)
        stored = specification_to_proto(specification).SerializeToString()
        submissions.append(NewWorkload(WorkloadId(f"w{number:06}"), specification, stored, 0.0, None, None))
    await workload_store.insert_submissions(connection, submissions)
    await connection.execute("UPDATE queue_entries SET priority = 1, level = 0, credit = 1, within_quota = true")


async def new_scan_pass(connection: AnyConnection) -> None:
    """All that waits is put up for auction again."""
    await connection.execute("INSERT INTO scan_passes (now_s, entries, changed, reclassified) VALUES (0, 0, 0, 0)")


async def acquire(connection: AnyConnection) -> Lease:
    """The region's lease."""
    name = f"{REGIONAL_PREFIX}{mast_region().region}"
    lease = await lease_store.acquire(connection, name, "benchmark", "nowhere:0", os.getpid(), _FOREVER_S)
    if lease is None:
        raise RuntimeError("another process holds the lease in a new database")
    return lease


async def measure(database: Database, pending: int, exchanges: int) -> Measured:
    """Works on a queue, and takes so many fleets over."""
    await database.run(partial(fill, pending=pending))
    forget_for_collection()  # before anything is loaded, as a tier does it
    lease = await database.run(acquire)
    memory = await database.run(partial(load_memory, region=mast_region().region), snapshot=True)
    if memory is None:
        raise RuntimeError("the fleet has no such region")
    inbox = Inbox()
    session = RegionSession(database, memory, lease, SystemClock(), Configuration(), inbox)
    blocks, measured = Blocks(), Measured()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere:
        working = [asyncio.create_task(session.run()), asyncio.create_task(blocks.watch())]
        try:
            for exchange in range(1, exchanges + 1):
                await database.run(new_scan_pass)
                inbox.look_at_auction = True
                applying = asyncio.get_running_loop().run_in_executor(
                    elsewhere, apply_elsewhere, database.url, exchange % 2
                )
                await applying
                known, began_s = memory.revisions.fleet, time.perf_counter()
                blocks.take()
                inbox.look_at_applied = True
                inbox.wake()
                while memory.revisions.fleet == known:
                    if working[0].done():
                        working[0].result()
                    await asyncio.sleep(_LOOK_EVERY_S)
                measured.taken_over_s.append(time.perf_counter() - began_s)
                block_s, processor_s = blocks.take()
                measured.blocks_s.append(block_s)
                measured.processor_s.append(processor_s)
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
    return measured


async def main(pending: int, exchanges: int) -> None:
    collections = Collections()
    gc.callbacks.append(collections.note)
    async with new_database() as database:
        measured = await measure(database, pending, exchanges)
    report(
        "fleet_exchange",
        {"machines": sum(1 for _ in mast_region().machines()), "pending": pending, "exchanges": exchanges},
        measured.blocks_s,
        _BUDGET,
        {
            "processor_max_s": max(measured.processor_s),
            "collection_processor_max_s": max(collections.took_s, default=0.0),
            "taken_over_p50_s": summary_of(measured.taken_over_s)["p50_s"],
        },
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure how long a region's loop stands still for another fleet.")
    parser.add_argument("--pending", type=int, default=2_000)
    parser.add_argument("--exchanges", type=int, default=10)
    options = parser.parse_args()
    asyncio.run(main(options.pending, options.exchanges))
