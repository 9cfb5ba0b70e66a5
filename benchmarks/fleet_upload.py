"""A fleet that is too large for one message, applied in parts: ``python -m benchmarks.fleet_upload --machines 1000000``.

A global scheduler in a process of its own, on an embedded PostgreSQL, is sent a fleet by the client of a further process:
first onto nothing, then with the memory of one machine changed, then the same once more. Measured are the calls, the peak memory of
the client, of the scheduler and of the process that applies for it, and how long the scheduler's loop stands still.
"""

import argparse
import asyncio
import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import gettempdir
from typing import Final

import psutil

from benchmarks.loop_blocks import Blocks
from benchmarks.measurement import peak_rss_mib, report
from benchmarks.scan_pass_stored import new_database
from services.clock import SystemClock
from services.configuration import Configuration
from services.database.engine import Database
from services.global_scheduler.tier import GlobalSchedulerTier
from services.runtime.collection import short_collections
from services.tiers.grpc_server import LARGEST_MESSAGE_BYTES
from topmast import Client, FleetUploadProgress
from topmast.v1 import fleet_pb2

_BUDGET: Final = "loops that hold a lease: no block over 50 ms"
_REGIONS: Final = 20
_CLUSTERS_PER_REGION: Final = 5
_MACHINES_PER_RACK: Final = 20
_KIB_PER_MIB: Final = 1024
_LOOK_EVERY_S: Final = 0.1
_APPLYING: Final = "services.global_scheduler.fleet_task"


def fleet_of(machines: int, changed: int = 0) -> fleet_pb2.Fleet:
    """So many 8-GPU machines in 20 regions; of the last one the memory is greater by `changed` GiB."""
    fleet = fleet_pb2.Fleet()
    regions = [fleet.regions.add(region=f"region-{number:02}") for number in range(_REGIONS)]
    clusters = [
        region.clusters.add(cluster=f"{region.region}-cluster-{number}")
        for region in regions
        for number in range(_CLUSTERS_PER_REGION)
    ]
    for place, cluster in enumerate(clusters):
        count = machines // len(clusters) + (place < machines % len(clusters))
        for first in range(0, count, _MACHINES_PER_RACK):
            rack = cluster.racks.add(rack=f"{cluster.cluster}-rack-{first // _MACHINES_PER_RACK:04}")
            for number in range(first, min(first + _MACHINES_PER_RACK, count)):
                name = f"{rack.rack}-machine-{number:06}"
                rack.machines.add(machine=name, gpu_model="A100", gpus=8, cpus=96, memory_gib=1024)
    clusters[-1].racks[-1].machines[-1].memory_gib += changed
    return fleet


@dataclass
class Call:
    """One call of the client: what was sent, and how long that and the rest took."""

    began_s: float = field(default_factory=time.perf_counter)
    sent_bytes: int = 0
    size_bytes: int = 0
    sending_s: float = 0.0
    applying_s: float = 0.0

    def told(self, progress: FleetUploadProgress) -> None:
        if not self.size_bytes:
            self.sent_bytes = progress.size_bytes - progress.sent_bytes
        self.size_bytes, self.sending_s = progress.size_bytes, time.perf_counter() - self.began_s

    @property
    def took_s(self) -> float:
        return self.sending_s + self.applying_s


def apply_fleets(address: str, machines: int) -> tuple[list[Call], float]:
    """What the client does, in a process of its own; and its peak memory in MiB."""
    calls = []
    with Client(address) as client:
        for changed in (0, 1, 1):
            fleet = fleet_of(machines, changed)
            call = Call()
            applied = client.apply_fleet(fleet, told=call.told)
            call.applying_s = time.perf_counter() - call.began_s - call.sending_s
            if applied.machines != machines:
                raise RuntimeError(f"{applied.machines} machines were applied instead of {machines}")
            calls.append(call)
            del fleet
    return calls, peak_rss_mib()


@dataclass
class SchedulerMeasured:
    """Peak memory, and the longest blocks of the loop."""

    peak_rss_mib: float
    block_s: float
    block_processor_s: float


async def watch_applying(scheduler_id: int, peak_mib: list[float]) -> None:
    """The peak memory of each process that applies for this scheduler, until cancelled. (What `getrusage` says of a child counts
    what its parent had when it began.)"""
    while True:
        peak_mib += _peaks_of_applying(scheduler_id)
        await asyncio.sleep(_LOOK_EVERY_S)


def _peaks_of_applying(scheduler_id: int) -> list[float]:
    peaks: list[float] = []
    with contextlib.suppress(psutil.NoSuchProcess, OSError):
        for child in psutil.Process(scheduler_id).children():
            if _APPLYING in child.cmdline():
                status = Path(f"/proc/{child.pid}/status").read_text().splitlines()
                peaks += [int(line.split()[1]) / _KIB_PER_MIB for line in status if line.startswith("VmHWM:")]
    return peaks


def serve(url: str, to_parent: Connection) -> None:
    """A global scheduler until the parent says that it is enough; in a process of its own."""
    with short_collections():
        to_parent.send(asyncio.run(_serve(url, to_parent)))


async def _serve(url: str, to_parent: Connection) -> SchedulerMeasured:
    async with Database(url) as database:
        tier = GlobalSchedulerTier(database, SystemClock(), Configuration(), home=Path(gettempdir()))
        address = f"127.0.0.1:{await tier.start('127.0.0.1:0')}"
        blocks = Blocks()
        tasks = [asyncio.create_task(tier.run(address, "benchmark")), asyncio.create_task(blocks.watch())]
        to_parent.send(address)
        await asyncio.to_thread(to_parent.recv)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await tier.stop(0.0)
    return SchedulerMeasured(peak_rss_mib(), *blocks.take())


@contextmanager
def scheduler(url: str) -> Iterator[tuple[str, int, list[SchedulerMeasured]]]:
    """Its address, its process id, and what it measured, which is there after the context."""
    context = get_context("spawn")
    ours, its = context.Pipe()
    process = context.Process(target=serve, args=(url, its))
    process.start()
    measured: list[SchedulerMeasured] = []
    try:
        yield ours.recv(), process.pid or 0, measured
        ours.send("enough")
        measured.append(ours.recv())
    finally:
        process.join(timeout=30.0)
        process.kill()


async def main(machines: int) -> None:
    async with new_database() as database:
        spawned = get_context("spawn")
        with (
            scheduler(database.url) as (address, scheduler_id, of_scheduler),
            ProcessPoolExecutor(1, mp_context=spawned) as elsewhere,
        ):
            watching = asyncio.create_task(watch_applying(scheduler_id, applying_mib := [0.0]))
            applying = asyncio.get_running_loop().run_in_executor(elsewhere, apply_fleets, address, machines)
            (first, changed, again), client_mib = await applying
            watching.cancel()
    (server,) = of_scheduler
    report(
        "fleet_upload",
        {"machines": machines, "bytes": first.size_bytes, "largest_message_bytes": LARGEST_MESSAGE_BYTES},
        [first.took_s],
        _BUDGET,
        {
            "sending_s": round(first.sending_s, 2),
            "applying_s": round(first.applying_s, 2),
            "one_machine_changed_s": round(changed.took_s, 2),
            "one_machine_changed_applying_s": round(changed.applying_s, 2),
            "same_again_s": round(again.took_s, 2),
            "same_again_sent_bytes": again.sent_bytes,
            "client_peak_rss_mib": round(client_mib),
            "scheduler_peak_rss_mib": round(server.peak_rss_mib),
            "applying_peak_rss_mib": round(max(applying_mib)),
            "scheduler_longest_block_s": round(server.block_s, 3),
            "scheduler_longest_block_processor_s": round(server.block_processor_s, 3),
        },
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure what a fleet costs that is applied in parts.")
    parser.add_argument("--machines", type=int, default=1_000_000)
    asyncio.run(main(parser.parse_args().machines))
