"""How long the event loops that hold leases stand still, at MAST's size: ``python -m benchmarks.lease_loops``.

One region of 66,500 machines in 20 clusters, 20,000 attempts that run (emulated), 1,000,000 tables, on an embedded PostgreSQL. The
global scheduler, the regional scheduler and all cluster managers have a process each, as a service has them, with the watchdog
of a service. Phases: `beginning` (all start on what is stored, until every attempt runs), `submissions` (ten a second),
`fleet` (another fleet is applied, with one machine more, and taken over), `tables` (some tables are others).
"""

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.fleet_exchange import fleet_with_more
from benchmarks.mast_region import GPU_MACHINES, mast_region
from benchmarks.measurement import report, summary_of
from benchmarks.scan_pass_stored import new_database
from benchmarks.service_world import many_tenants, small_workload
from domain.identifiers import AttemptNumber, JobName, WorkloadId
from domain.placement import AttemptKey, TaskPlacement
from domain.rank import Standing
from services.configuration import Configuration
from services.database import attempt_store, fleet_store, lease_store, tenant_store, workload_store
from services.database.attempt_store import NewAttempt
from services.database.channels import CATALOG_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from services.database.workload_store import NewWorkload
from services.log_output import configure_logging
from services.runtime.collection import short_collections
from services.runtime.executor_kind import ExecutorKind
from services.runtime.tier_place import TierKind
from services.runtime.tier_process import TierRequest, run_tier
from services.tiers.loop_watchdog import Block, WatchedEventLoop, watched_loop
from services.wire.fleets import fleet_to_proto
from services.wire.workloads import specification_to_proto
from topmast import AsyncClient

_BUDGET: Final = "loops that hold a lease: no block over 50 ms"
_TENANTS: Final = 100
_FOREVER_S: Final = 1e7
_BATCH: Final = 1_000
_LOOK_EVERY_S: Final = 0.2
_FRAMES: Final = 3
_PHASES: Final = ("beginning", "submissions", "fleet", "tables")


class _Told(NamedTuple):
    at_s: float
    """On the machine's monotonic clock, when the block was over."""
    block: Block


@dataclass
class _Process:
    """One that runs tiers on one loop."""

    name: str
    connection: Connection
    process: multiprocessing.process.BaseProcess
    told: list[_Told] = field(default_factory=list)

    def stop(self) -> None:
        """Ends it; takes what it was told."""
        self.connection.send("stop")
        self.told = self.connection.recv()
        self.process.join()


def _serve(name: str, requests: Sequence[TierRequest], log: Path, connection: Connection) -> None:
    """In a process of its own, until it is told to stop."""
    configure_logging(log)
    told: list[_Told] = []

    async def run() -> None:
        async with watched_loop(name, lambda block: told.append(_Told(time.monotonic(), block))):
            tiers = [asyncio.ensure_future(run_tier(request, lambda _address: None)) for request in requests]
            stopping = asyncio.get_running_loop().run_in_executor(None, connection.recv)
            await asyncio.wait([stopping, *tiers], return_when=asyncio.FIRST_COMPLETED)
            for tier in tiers:
                tier.cancel()
            await asyncio.gather(*tiers, return_exceptions=True)

    with short_collections(), asyncio.Runner(loop_factory=WatchedEventLoop) as runner:
        runner.run(run())
    connection.send(told)


@asynccontextmanager
async def _running(url: str, home: Path) -> AsyncIterator[list[_Process]]:
    region = mast_region()
    request = partial(
        TierRequest,
        database_url=url,
        home=home,
        configuration=Configuration().without_authentication(),
        executor=ExecutorKind.EMULATED,
    )
    tiers = {
        "global": [request(kind=TierKind.GLOBAL)],
        "regional": [request(kind=TierKind.REGIONAL, region=region.region)],
        "clusters": [
            request(kind=TierKind.CLUSTER, region=region.region, cluster=cluster.cluster) for cluster in region.clusters
        ],
    }
    context = multiprocessing.get_context("spawn")
    processes: list[_Process] = []
    for name, requests in tiers.items():
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(name, requests, home / f"{name}.log", theirs))
        process.start()
        processes.append(_Process(name, ours, process))
    try:
        yield processes
    finally:
        for one in processes:
            await asyncio.to_thread(one.stop)


async def _fill(connection: AnyConnection, first: int, count: int) -> None:
    """So many workloads with attempts that are dispatched, one GPU each, on the machines in turn."""
    region = mast_region()
    places = [
        (cluster.cluster, machine.machine)
        for cluster in region.clusters
        for machine in cluster.machines()
        if machine.gpus
    ]
    submissions, attempts = [], []
    for number in range(first, first + count):
        workload, specification = WorkloadId(f"w{number:06}"), small_workload(number, _TENANTS, _FOREVER_S)
        stored = specification_to_proto(specification).SerializeToString()
        submissions.append(NewWorkload(workload, specification, stored, time.time(), None, None))
        cluster, machine = places[number % GPU_MACHINES]
        placement = TaskPlacement(JobName("main"), 0, cluster, machine, (number // GPU_MACHINES,), 12_000, 128 * 1024)
        attempts.append(
            NewAttempt(
                AttemptKey(workload, AttemptNumber(1)),
                specification.tenant,
                Standing(number % _TENANTS % 6, 0),
                within_quota=False,
                guaranteed=False,
                dispatched_s=time.time(),
                progress_at_start=0.0,
                charges={},
                placements=(placement,),
            )
        )
    await workload_store.insert_submissions(connection, submissions)
    await attempt_store.dispatch(connection, region.region, attempts)


async def _fill_tables(connection: AnyConnection, tables: int) -> None:
    await connection.execute(
        """INSERT INTO data_tables (data_table, size_bytes, home, revision, from_fleet)
           SELECT 'warehouse.t' || n, 1000000000, %s, 1, false FROM generate_series(1, %s) AS n""",
        (mast_region().region, tables),
    )
    await connection.execute(
        "INSERT INTO revisions VALUES ('catalog', 1) ON CONFLICT (subject) DO UPDATE SET revision = 1"
    )


async def _change_tables(connection: AnyConnection, tables: int) -> None:
    """So many are larger in the next revision."""
    await connection.execute("UPDATE revisions SET revision = revision + 1 WHERE subject = 'catalog'")
    await connection.execute(
        """UPDATE data_tables SET size_bytes = size_bytes + 1, revision = (SELECT revision FROM revisions WHERE subject = 'catalog')
            WHERE data_table IN (SELECT 'warehouse.t' || n FROM generate_series(1, %s) AS n)""",
        (tables,),
    )
    wake_after_commit(connection, CATALOG_CHANNEL)


async def _running_attempts(connection: AnyConnection) -> int:
    cursor = await connection.execute("SELECT count(*) FROM attempts WHERE state = 'RUNNING'")
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def _address(connection: AnyConnection) -> str | None:
    return await lease_store.address(connection, lease_store.GLOBAL_LEASE)


async def _address_when_all_run(database: Database, attempts: int) -> str:
    """Of the global scheduler, once so many attempts run."""
    while True:
        address = await database.run(_address)
        if address is not None and await database.run(_running_attempts) >= attempts:
            return address
        await asyncio.sleep(_LOOK_EVERY_S)


async def measure(database: Database, options: argparse.Namespace) -> tuple[dict[str, object], list[float]]:
    """Blocks by process and phase, and all of them in seconds by the clock."""
    await database.run(partial(fleet_store.apply_fleet, fleet=fleet_with_more(0)))
    tenants = many_tenants(_TENANTS, gpus_each=8 * GPU_MACHINES // _TENANTS)
    await database.run(partial(tenant_store.apply_tenants, tenants=tenants))
    for first in range(0, options.running, _BATCH):
        await database.run(partial(_fill, first=first, count=min(_BATCH, options.running - first)))
    await database.run(partial(_fill_tables, tables=options.tables))
    ends_s: dict[str, float] = {}
    took_s: dict[str, float] = {}
    began_s = time.monotonic()

    def end_phase(phase: str) -> None:
        ends_s[phase] = time.monotonic()
        took_s[phase] = round(ends_s[phase] - max([began_s, *(at for name, at in ends_s.items() if name != phase)]), 1)

    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="topmast-benchmark-")))
        processes = await stack.enter_async_context(_running(database.url, home))
        address = await _address_when_all_run(database, options.running)
        end_phase("beginning")
        client = await stack.enter_async_context(AsyncClient(address))
        for number in range(round(10 * options.seconds)):
            await client.submit(specification_to_proto(small_workload(10**6 + number, _TENANTS, _FOREVER_S)))
            await asyncio.sleep(0.1)
        end_phase("submissions")
        await client.apply_fleet(fleet_to_proto(fleet_with_more(1)))
        await asyncio.sleep(options.seconds)  # until it is taken over, and has been worked with
        end_phase("fleet")
        await database.run(partial(_change_tables, tables=1_000))
        await asyncio.sleep(options.seconds)
        end_phase("tables")
    return {
        "took_s": took_s,
        **{one.name: {phase: _summary(one.told, phase, ends_s) for phase in _PHASES} for one in processes},
    }, [told.block.real_s for one in processes for told in one.told]


def _summary(told: Sequence[_Told], phase: str, ends_s: dict[str, float]) -> dict[str, object]:
    """Of the blocks of one process in one phase."""
    before = _PHASES[_PHASES.index(phase) - 1] if phase != _PHASES[0] else None
    from_s = 0.0 if before is None else ends_s[before]
    blocks = [one.block for one in told if from_s < one.at_s <= ends_s[phase]]
    if not blocks:
        return {"count": 0}
    most = Counter(block.stack[:_FRAMES] for block in blocks).most_common(3)
    return {
        **summary_of([block.real_s for block in blocks]),
        "processor": summary_of([block.processor_s for block in blocks]),
        "longest": max(blocks, key=lambda block: block.processor_s).stack,
        "most_often": [list(stack) for stack, _ in most],
    }


async def main(options: argparse.Namespace) -> None:
    async with new_database() as database:
        by_process, blocks_s = await measure(database, options)
    work = {"machines": 66_500, "running": options.running, "tables": options.tables, "seconds": options.seconds}
    report("lease_loops", work, blocks_s or [0.0], _BUDGET, by_process)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure how long the loops of tiers that hold leases stand still.")
    parser.add_argument("--running", type=int, default=20_000)
    parser.add_argument("--tables", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each phase but the first")
    asyncio.run(main(parser.parse_args()))
