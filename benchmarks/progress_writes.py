"""What progress costs: rows written and processor time a second, while many attempts run and tell how far they are.

One region with all of them in a real PostgreSQL. Its cluster managers tell of each attempt as often as they do in a
cluster of that size; the region reads their messages, takes them in and writes, once a simulated second. Nothing waits:
the share of a core is the processor time over the simulated seconds, of the region and of the server together.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.measurement import report
from benchmarks.service_world import many_machines
from domain.clock import ManualClock
from domain.fleet import Fleet, Region
from domain.identifiers import AttemptNumber, ClusterId, GpuModel, JobName, TenantId, WorkloadId
from domain.placement import AttemptKey, TaskPlacement
from domain.rank import Standing
from domain.resources import Quota, TaskResources
from domain.tenant import Tenant
from domain.workload import Command, JobSpecification, WorkloadSpecification
from services.cluster_manager.status_messages import changes_to_proto
from services.database import attempt_store, fleet_store, lease_store, tenant_store, workload_store
from services.database.attempt_store import NewAttempt
from services.database.connection import AnyConnection
from services.database.embedded import EmbeddedLayout, start_embedded, stop_embedded
from services.database.engine import Database
from services.database.migrations_runner import upgrade
from services.database.workload_store import NewWorkload
from services.execution.executor import AttemptPhase, AttemptStatus
from services.progress_pace import TOLD
from services.regional_scheduler.absent_clusters import AbsentClusters
from services.regional_scheduler.arrivals import Arrivals
from services.regional_scheduler.attempt_recorder import AttemptRecorder
from services.regional_scheduler.cluster_link import LinkMessage, report_from_proto
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.order_sender import OrderSender
from services.regional_scheduler.report_taker import ReportTaker
from services.regional_scheduler.time_limits import RunningLimits
from services.wire.workloads import specification_to_proto
from topmast.v1 import cluster_manager_pb2

BUDGET = "20,000 running attempts <= 5 % of one core and <= 200 row writes/s"
_TENANT = TenantId("vision")
_JOB = JobName("main")
_STARTED_S = 1_000.0
_AT_ONCE = 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--running", type=int, default=20_000)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=240, help="simulated ones, one transaction each at most")
    parser.add_argument("--checkpoint-s", type=float, default=0.0, help="how often each saves a checkpoint; 0: never")
    parser.add_argument("--told-s", type=float, help="how often each is told of; else as in a cluster of that size")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="topmast-benchmark-") as folder:
        home = Path(folder)
        url = start_embedded(home, stop_with_us=True)
        try:
            upgrade(url)
            asyncio.run(measure(url, home, arguments))
        finally:
            stop_embedded(home)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one simulated second after the other."""

    durations_s: list[float]
    region_cpu_s: float


async def measure(url: str, home: Path, arguments: argparse.Namespace) -> None:
    """Fills the region, then lets everything in it make progress."""
    per_cluster = -(-arguments.running // arguments.clusters)
    told_s = arguments.told_s or TOLD.interval_s(per_cluster)
    region = many_machines(1, arguments.clusters, -(-per_cluster // 8)).regions[0]
    attempts = _attempts_in(region, arguments.running)
    async with Database(url) as database:
        await database.run(partial(_apply, region=region))
        for start in range(0, len(attempts), _AT_ONCE):
            await database.run(partial(_run, region=region, attempts=attempts[start : start + _AT_ONCE]))
    async with Database(url) as database:
        rows, server_s = await database.run(_row_writes), _server_cpu_s(home)
        cost = await _progress(database, region, attempts, told_s, arguments)
        server_s = _server_cpu_s(home) - server_s
    async with Database(url) as database:
        # What the server counts of a connection is up to date when that is closed.
        rows = await database.run(_row_writes) - rows
        oldest = await database.run(_least_progress)
    seconds = arguments.seconds
    report(
        "progress_writes",
        {
            "running": len(attempts),
            "clusters": arguments.clusters,
            "simulated_s": seconds,
            "told_every_s": told_s,
            "checkpoint_every_s": arguments.checkpoint_s or None,
        },
        cost.durations_s,
        BUDGET,
        {
            "row_writes_per_s": round(rows / seconds, 1),
            "share_of_a_core": round((cost.region_cpu_s + server_s) / seconds, 4),
            "region_share_of_a_core": round(cost.region_cpu_s / seconds, 4),
            "server_share_of_a_core": round(server_s / seconds, 4),
            "oldest_progress_s": seconds - oldest,
            "what": "durations are of taking in and writing a second's reports",
        },
    )


async def _progress(
    database: Database, region: Region, attempts: Sequence[NewAttempt], told_s: float, arguments: argparse.Namespace
) -> Cost:
    async with database.transaction() as connection:
        lease = await lease_store.acquire(connection, f"regional/{region.region}", "benchmark", "nowhere", 1, 36_000.0)
        memory = await load_memory(connection, region.region)
    if lease is None or memory is None:
        raise RuntimeError("the region was not stored")
    due, clock = DueAttempts(), ManualClock(_STARTED_S)
    sender = OrderSender(memory.region, memory.live, due, _no_address, _no_inbox, lease)
    reports = ReportTaker(memory.live, due, sender, AbsentClusters(memory, 0.0), clock)
    arrivals, limits = Arrivals(memory, due), RunningLimits()
    recorder = AttemptRecorder(database, lease, memory, due, reports, sender, arrivals, limits, clock)
    by_cluster = {
        cluster.cluster: [attempt.key for attempt in attempts if attempt.placements[0].cluster == cluster.cluster]
        for cluster in region.clusters
    }
    turns = max(1, round(told_s))
    durations_s, cpu_s = [], 0.0
    for second in range(arguments.seconds + 1):
        clock.advance_to(_STARTED_S + second)
        messages = {
            cluster: _message(turn, second, arguments.checkpoint_s, complete=second == 0)
            for cluster, held in by_cluster.items()
            if (turn := [key for number, key in enumerate(held) if second == 0 or (second + number) % turns == 0])
        }
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        read = cluster_manager_pb2.WatchStatusResponse.FromString
        await reports.take(
            [report_from_proto(cluster, 1, read(message)) for cluster, message in messages.items()], second
        )
        # Orders are given without looking at what is reported: none follow from progress.
        due.take_orders()
        await recorder.record(second)
        if second > 0:
            durations_s.append(time.perf_counter() - began_s)
            cpu_s += time.process_time() - began_cpu_s
    return Cost(durations_s, cpu_s)


def _attempts_in(region: Region, count: int) -> list[NewAttempt]:
    """On one GPU each, as evenly over the clusters as their machines allow."""
    places = [
        [(cluster.cluster, machine.machine, gpu) for machine in cluster.machines() for gpu in range(machine.gpus)]
        for cluster in region.clusters
    ]
    evenly = [place for row in zip(*places, strict=True) for place in row][:count]
    return [
        NewAttempt(
            key=AttemptKey(WorkloadId(f"w{number:06d}"), AttemptNumber(1)),
            tenant=_TENANT,
            standing=Standing(1, 0),
            within_quota=True,
            guaranteed=True,
            dispatched_s=_STARTED_S,
            progress_at_start=0.0,
            charges={"A100": 1},
            placements=(TaskPlacement(_JOB, 0, cluster, machine, (gpu,), 12_000, 1024),),
        )
        for number, (cluster, machine, gpu) in enumerate(evenly)
    ]


async def _apply(connection: AnyConnection, region: Region) -> None:
    await fleet_store.apply_fleet(connection, Fleet((region,)))
    await tenant_store.apply_tenants(connection, [Tenant(_TENANT, 1, Quota.of({GpuModel("A100"): 10**6}))])


async def _run(connection: AnyConnection, region: Region, attempts: Sequence[NewAttempt]) -> None:
    """Submitted, dispatched and started."""
    job = JobSpecification(_JOB, 1, TaskResources(gpus=1, gpu_model=GpuModel("A100")), Command(("train",)))
    wanted = WorkloadSpecification("train", _TENANT, (job,))
    serialized = specification_to_proto(wanted).SerializeToString()
    await workload_store.insert_submissions(
        connection, [NewWorkload(attempt.key.workload, wanted, serialized, _STARTED_S) for attempt in attempts]
    )
    await attempt_store.dispatch(connection, region.region, attempts)
    await attempt_store.record_started(connection, [(attempt.key, _STARTED_S) for attempt in attempts])


def _message(keys: Sequence[AttemptKey], second: float, checkpoint_s: float, *, complete: bool) -> bytes:
    """What a cluster manager says of these: each is one step further every second."""
    saved = second // checkpoint_s * checkpoint_s if checkpoint_s else 0.0
    statuses = [
        AttemptStatus(
            key,
            AttemptPhase.RUNNING,
            _STARTED_S,
            progress=float(second),
            checkpoint_progress=saved,
            throughput=1.0,
            started_s=_STARTED_S,
        )
        for key in keys
    ]
    return changes_to_proto(statuses, complete=complete).SerializeToString()


async def _no_address(_: ClusterId) -> str | None:
    return None


def _no_inbox(message: LinkMessage) -> None:
    raise RuntimeError(f"nothing is linked, and yet came {message}")


async def _row_writes(connection: AnyConnection) -> int:
    """Rows of Topmast's own tables inserted, updated and deleted so far."""
    cursor = await connection.execute("SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint FROM pg_stat_user_tables")
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def _least_progress(connection: AnyConnection) -> float:
    """Of all live attempts."""
    cursor = await connection.execute("SELECT min(progress) FROM attempts WHERE ended_s IS NULL")
    row = await cursor.fetchone()
    return 0.0 if row is None else float(row[0])


def _server_cpu_s(home: Path) -> float:
    """Processor time of the server and of all that it has started, ended ones too."""
    postmaster = int(EmbeddedLayout.of(home).data.joinpath("postmaster.pid").read_text().split()[0])
    ticks = sum(_ticks(process, with_ended=process == postmaster) for process in _family(postmaster))
    return ticks / os.sysconf("SC_CLK_TCK")


def _family(parent: int) -> list[int]:
    return [parent, *map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())]


def _ticks(process: int, *, with_ended: bool) -> int:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0  # It has ended: its parent counts it now.
    # proc(5): utime, stime, and both of children that were waited for.
    return sum(map(int, fields[11 : 15 if with_ended else 13]))


if __name__ == "__main__":
    main()
