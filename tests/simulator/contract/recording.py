"""Records the fixture of the contract test anew, from a run of the live service: `python -m tests.simulator.contract.recording`.

All tiers run in this process, on a PostgreSQL of their own, with emulated execution on a compressed clock. About a minute.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import numpy as np

from domain.identifiers import ANY_GPU_MODEL, GpuModel, JobName, TableId, TenantId
from domain.resources import TaskResources
from domain.tenant import Tenant
from domain.workload import Emulated, JobSpecification, TableInput, WorkloadSpecification
from formats.fleet_file import FleetFile, read_fleet_file
from formats.tenants_file import read_tenants
from services.configuration import Configuration, ScanConfiguration
from services.database import migrations_runner
from services.database.embedded import start_embedded, stop_embedded
from services.database.engine import Database
from services.runtime.in_process import run_in_process
from services.wire.workloads import specification_to_proto
from simulator.validate import validate
from tests.simulator.contract.recorded_run import CREDIT, EVENTS, FLEET, INSTANTS, TENANTS
from topmast import AsyncClient, Event
from topmast.v1 import regional_scheduler_pb2, regional_scheduler_pb2_grpc

SEED = 20260107
WORKLOADS = 170
CLOCK_SPEED = 60.0
BETWEEN_SUBMISSIONS_REAL_S = 0.3
DRAINED = ("east", "east-a-r01-m02")
DRAIN_AFTER, UNDRAIN_AFTER = 60, 110
"""After so many submissions the machine is drained, and gets work again."""
CONFIGURATION = Configuration(
    scan=ScanConfiguration(period_real_s=2.0, debounce_real_s=0.1, fair_share=CREDIT.fair_share)
)


async def record(database_url: str, home: Path) -> None:
    """Runs the service once and writes down what it told."""
    described, tenants = read_fleet_file(FLEET), read_tenants(TENANTS)
    rng = np.random.default_rng(SEED)
    async with (
        run_in_process(
            database_url,
            described.fleet,
            tenants,
            home,
            configuration=CONFIGURATION,
            clock_speed=CLOCK_SPEED,
            tables=described.tables,
        ) as service,
        Database(database_url) as database,
        AsyncClient(service.address) as client,
    ):
        await _submit(client, rng)
        events = await _until_all_ended(client)
        service.raise_if_broken()
        instants = await _instants(database)
    _write(events, instants, described, tenants)


async def _submit(client: AsyncClient, rng: np.random.Generator) -> None:
    for number in range(WORKLOADS):
        if number == DRAIN_AFTER:
            async with _scheduler(client, DRAINED[0]) as scheduler:
                await scheduler.DrainMachine(regional_scheduler_pb2.DrainMachineRequest(machine=DRAINED[1]))
        if number == UNDRAIN_AFTER:
            async with _scheduler(client, DRAINED[0]) as scheduler:
                await scheduler.UndrainMachine(regional_scheduler_pb2.UndrainMachineRequest(machine=DRAINED[1]))
        await client.submit_many([specification_to_proto(workload(number, rng))])
        await asyncio.sleep(float(rng.exponential(BETWEEN_SUBMISSIONS_REAL_S)))


@asynccontextmanager
async def _scheduler(
    client: AsyncClient, region: str
) -> AsyncIterator[regional_scheduler_pb2_grpc.RegionalSchedulerAsyncStub]:
    status = await client.status()
    (address,) = (tier.address for tier in status.tiers if (tier.tier, tier.name) == ("regional", region))
    async with grpc.aio.insecure_channel(address) as channel:
        yield regional_scheduler_pb2_grpc.RegionalSchedulerStub(channel)


def workload(number: int, rng: np.random.Generator) -> WorkloadSpecification:
    """One of a mix: mostly small, some gangs, some with tables, some of two jobs; most important ones are rare."""
    tenant = TenantId(str(rng.choice(["ranking", "vision", "research", "playground"], p=[0.2, 0.25, 0.4, 0.15])))
    work = Emulated(float(rng.uniform(200.0, 700.0)), 60.0)
    model = GpuModel(str(rng.choice([ANY_GPU_MODEL, "A100", "V100"], p=[0.4, 0.35, 0.25])))
    gpus, tasks = ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (4, 3))[int(rng.choice(6, p=[0.2, 0.2, 0.2, 0.2, 0.1, 0.1]))]
    jobs = [JobSpecification(JobName("main"), tasks, TaskResources(gpus=gpus, gpu_model=model), work)]
    draw = rng.random()
    if draw < 0.08:
        resources = TaskResources(gpus=0, gpu_model=ANY_GPU_MODEL, cpus=16.0, memory_gib=32.0)
        jobs.append(JobSpecification(JobName("readers"), 3, resources, work))
    table = TableId(str(rng.choice(["clicks", "images"])))
    tables: tuple[TableInput, ...] = ()
    if 0.08 <= draw < 0.25 and model != "A100":
        tables = (TableInput(table, fresh=bool(rng.random() < 0.3)),)
    if number == WORKLOADS // 2:
        # Only the north has this table.
        jobs = [JobSpecification(JobName("main"), 1, TaskResources(gpus=1), work)]
        tables = (TableInput(TableId("speech")),)
    return WorkloadSpecification(f"w{number}", tenant, tuple(jobs), tables)


async def _until_all_ended(client: AsyncClient) -> list[Event]:
    events: list[Event] = []
    ended: set[str] = set()
    async for event in client.events(follow=True):
        events.append(event)
        if event.event in ("completed", "cancelled") or (event.event == "failed" and event.details.get("final")):
            ended.add(event.workload or "")
        if len(ended) == WORKLOADS:
            break
    return events


async def _instants(database: Database) -> list[dict[str, float | int | str]]:
    """When scan passes looked at the queue, and when rounds were opened."""
    async with database.transaction() as connection:
        cursor = await connection.execute("SELECT scan_pass, now_s FROM scan_passes ORDER BY scan_pass")
        passes = [{"instant": "scan_pass", "number": row[0], "t": row[1]} for row in await cursor.fetchall()]
        cursor = await connection.execute("SELECT round, scan_pass, now_s FROM auction_rounds ORDER BY round")
        rounds = [
            {"instant": "round", "number": row[0], "scan_pass": row[1], "t": row[2]} for row in await cursor.fetchall()
        ]
    return [*passes, *rounds]


def _write(
    events: Sequence[Event],
    instants: Sequence[dict[str, float | int | str]],
    described: FleetFile,
    tenants: Sequence[Tenant],
) -> None:
    records = [event.as_json() for event in events]
    report = validate(records, described.fleet, tenants, tables=described.tables, complete=True)
    if report.violations:
        raise RuntimeError(f"the run is not fit to be a fixture: {report.shown[0]}")
    # No name and no time in the header: the same run gives the same bytes.
    EVENTS.write_bytes(gzip.compress("".join(json.dumps(record) + "\n" for record in records).encode(), mtime=0))
    INSTANTS.write_bytes(gzip.compress("".join(json.dumps(instant) + "\n" for instant in instants).encode(), mtime=0))
    counts = {kind: report.events_by_kind[kind] for kind in sorted(report.events_by_kind)}
    print(f"{len(records)} events, {EVENTS.stat().st_size} bytes: {counts}")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="topmast-recording-") as folder:
        home = Path(folder)
        url = start_embedded(home, settings=["fsync=off"], stop_with_us=True)
        try:
            migrations_runner.upgrade(url)
            asyncio.run(record(url, home))
        finally:
            stop_embedded(home)


if __name__ == "__main__":
    main()
