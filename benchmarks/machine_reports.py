"""What complete reports about every machine of a region cost its scheduler: ``python -m benchmarks.machine_reports``.

A region as large as MAST's, on an embedded PostgreSQL, takes in the reports of all its cluster managers: first with
nothing new, then with all machines of one rack, of one cluster, and of all clusters lost, and each time all back again.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from benchmarks.loop_blocks import watched_blocks
from benchmarks.mast_region import mast_region
from benchmarks.measurement import report
from benchmarks.scan_pass_stored import new_database
from domain.fleet import Fleet, Region
from domain.identifiers import ClusterId, MachineId
from services.clock import SystemClock
from services.database import fleet_store, lease_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import REGIONAL_PREFIX, Lease
from services.regional_scheduler.absent_clusters import AbsentClusters
from services.regional_scheduler.arrivals import Arrivals
from services.regional_scheduler.cluster_link import ClusterReport, MachineReport
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.lost_tasks import LostTasks
from services.regional_scheduler.machine_maintenance import MachineMaintenance
from services.regional_scheduler.order_sender import OrderSender
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.report_taker import ReportTaker
from services.regional_scheduler.undone_changes import UndoneChanges
from services.runtime.collection import forget_for_collection

_BUDGET: Final = "loops that hold a lease: no block over 50 ms"
_FOREVER_S: Final = 1e7


async def _fill(connection: AnyConnection, region: Region) -> Lease:
    await fleet_store.apply_fleet(connection, Fleet((region,)))
    name = f"{REGIONAL_PREFIX}{region.region}"
    lease = await lease_store.acquire(connection, name, "benchmark", "nowhere:0", os.getpid(), _FOREVER_S)
    if lease is None:
        raise RuntimeError("another process holds the lease in a new database")
    return lease


async def _nowhere(_cluster: ClusterId) -> str | None:
    return None


class _Reader:
    """The parts of a session that take reports in."""

    def __init__(self, database: Database, lease: Lease, memory: RegionMemory) -> None:
        clock, due = SystemClock(), DueAttempts()
        absent, arrivals = AbsentClusters(memory, 0.0), Arrivals(memory, due)
        sender = OrderSender(memory.region, memory.live, due, _nowhere, lambda _: None, lease)
        writer, undone = EvictionWriter(memory, due, clock), UndoneChanges(memory, due, clock)
        losses = LostTasks(database, lease, memory, due, clock)
        self._taker = ReportTaker(memory.live, due, sender, absent, clock)
        self._machines = MachineMaintenance(database, lease, memory, writer, undone, losses, absent, arrivals, clock)

    async def take(self, reports: Sequence[ClusterReport]) -> None:
        """Until all that is news is in the database and in memory."""
        await self._taker.take(reports, 0.0)
        await self._machines.take_reports(self._taker.take_machine_reports())


def _complete_reports(region: Region, lost: Collection[MachineId]) -> list[ClusterReport]:
    return [
        ClusterReport(
            cluster.cluster,
            0,
            True,
            (),
            tuple(
                MachineReport(
                    machine.machine, machine.machine not in lost, "its switch is gone" * (machine.machine in lost)
                )
                for machine in cluster.machines()
            ),
        )
        for cluster in region.clusters
    ]


async def measure(database: Database, rounds: int) -> tuple[list[float], dict[str, object]]:
    """Blocks of the loop, one for each time that reports were taken in, and how long that took, by what was lost."""
    region = mast_region()
    lease = await database.run(partial(_fill, region=region))
    memory = await database.run(partial(load_memory, region=region.region), snapshot=True)
    if memory is None:
        raise RuntimeError("the fleet has no such region")
    forget_for_collection()
    reader = _Reader(database, lease, memory)
    cluster = region.clusters[0]
    groups: dict[str, frozenset[MachineId]] = {
        "nothing": frozenset(),
        "a rack": frozenset(machine.machine for machine in cluster.racks[0].machines),
        "a cluster": frozenset(machine.machine for machine in cluster.machines()),
        "everything": frozenset(machine.machine for machine in region.machines()),
    }
    blocks_s: list[float] = []
    took_s: dict[str, object] = {}
    for what, lost in groups.items():
        times: list[float] = []
        longest_s = processor_s = 0.0
        for _ in range(rounds):
            for reports in (_complete_reports(region, lost), _complete_reports(region, ())):
                async with watched_blocks() as blocks:
                    began_s = time.perf_counter()
                    await reader.take(reports)
                    times.append(time.perf_counter() - began_s)
                block_s, of_processor_s = blocks.take()
                blocks_s.append(block_s)
                longest_s, processor_s = max(longest_s, block_s), max(processor_s, of_processor_s)
        took_s[what] = {
            "longest_s": round(max(times), 4),
            "longest_block_s": round(longest_s, 4),
            "longest_block_processor_s": round(processor_s, 4),
        }
    return blocks_s, took_s


async def main(rounds: int) -> None:
    async with new_database() as database:
        blocks_s, took_s = await measure(database, rounds)
    work = {"machines": sum(1 for _ in mast_region().machines()), "rounds": rounds}
    report("machine_reports", work, blocks_s, _BUDGET, {"by_what_was_lost": took_s})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure what complete reports about machines cost a region.")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    asyncio.run(main(options.rounds))
