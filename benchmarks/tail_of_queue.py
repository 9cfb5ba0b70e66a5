"""How long a workload that has room waits behind a long queue that has none: ``python -m benchmarks.tail_of_queue``.

A whole service (`topmast up`: Ray actors, embedded PostgreSQL) with emulated execution on real time. All GPUs of one model
are taken; many workloads of many shapes wait for them, and more are submitted all the time, so that scan passes never
end. Now and then one is submitted, at the worst priority, for a model that is idle: timed is until it has started.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.measurement import report
from benchmarks.service_world import many_machines, many_tenants
from domain.fleet import Fleet
from domain.identifiers import GpuModel, JobName, TenantId
from domain.resources import TaskResources
from domain.tenant import LOWEST_PRIORITY, Tenant
from domain.workload import Emulated, JobSpecification, WorkloadSpecification
from formats.fleet_file import dump_fleet
from formats.tenants_file import dump_tenants
from services.database.embedded import EmbeddedLayout
from services.database.engine import Database
from services.runtime.executor_kind import ExecutorKind
from services.runtime.host_options import HostOptions
from services.runtime.local import down, up
from services.runtime.tier_place import TierProcesses
from services.security.home_tokens import home_token
from services.wire.workloads import specification_to_proto
from topmast import Client

BUDGET = "<= 5 s with 100,000 pending that cannot start and 10 submissions per second"
BUSY, IDLE = GpuModel("H100"), GpuModel("A100")
_BATCH = 1_000
_LAST = TenantId("last")
_PROBE = "probe"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pending", type=int, default=100_000, help="workloads that cannot start")
    parser.add_argument("--shapes", type=int, default=200, help="kinds of what they ask for")
    parser.add_argument("--tenants", type=int, default=500)
    parser.add_argument(
        "--per-s", type=float, default=10.0, help="further ones that cannot start, submitted in a second"
    )
    parser.add_argument("--settle-s", type=float, default=60.0, help="from the last of the backlog to the first probe")
    parser.add_argument("--probes", type=int, default=20, help="workloads that can start")
    parser.add_argument("--between-s", type=float, default=3.0, help="from one of them to the next")
    arguments = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="topmast-benchmark-"))
    try:
        measure(home, arguments)
    finally:
        down(home)
        shutil.rmtree(home, ignore_errors=True)


def measure(home: Path, arguments: argparse.Namespace) -> None:
    """Brings the service up in `home`, fills its queue, and times the probes."""
    service = up(_options(home, arguments))
    with Client(service.address, token=home_token(home)) as client:
        submit_all(client, [_filling(number) for number in range(3)])
        for first in range(0, arguments.pending, _BATCH):
            numbers = range(first, min(first + _BATCH, arguments.pending))
            submit_all(client, [_waiting(number, arguments) for number in numbers])
        began = time.monotonic()
        submitted = 0
        probes_at = [arguments.settle_s + probe * arguments.between_s for probe in range(arguments.probes)]
        end_s = probes_at[-1] + 10.0
        while (passed_s := time.monotonic() - began) < end_s:
            while submitted < passed_s * arguments.per_s:
                submit_all(client, [_waiting(arguments.pending + submitted, arguments)])
                submitted += 1
            while probes_at and probes_at[0] <= passed_s:
                probes_at.pop(0)
                submit_all(client, [one_task(_PROBE, _LAST, TaskResources(gpus=1, gpu_model=IDLE), 2.0)])
            time.sleep(0.02)
        queued = client.queue(limit=1).queued
    waited_s, rounds, passes = asyncio.run(waits_of(EmbeddedLayout.of(home).url(), _PROBE))
    report(
        "tail_of_queue",
        {
            "pending": arguments.pending,
            "shapes": arguments.shapes,
            "tenants": arguments.tenants,
            "submitted_per_s": arguments.per_s,
            "regions": 3,
        },
        waited_s,
        BUDGET,
        {
            "probes": arguments.probes,
            "never_started": arguments.probes - len(waited_s),
            "queued_at_the_end": queued,
            "auction_rounds": rounds,
            "scan_passes": passes,
            "durations": "from submission to start, of the workloads that have room",
        },
    )


def _options(home: Path, arguments: argparse.Namespace) -> HostOptions:
    tenants = (
        *many_tenants(arguments.tenants, gpus_each=64),
        Tenant(_LAST, LOWEST_PRIORITY - 1, many_tenants(1, gpus_each=64)[0].quota),
    )
    (home / "fleet.yaml").write_text(dump_fleet(half_busy_fleet()), encoding="utf-8")
    (home / "tenants.yaml").write_text(dump_tenants(tenants), encoding="utf-8")
    return HostOptions(
        home=home,
        port=0,
        fleet_file=home / "fleet.yaml",
        tenants_file=home / "tenants.yaml",
        executor=ExecutorKind.EMULATED,
        tiers=TierProcesses.SEPARATE,
    )


def half_busy_fleet() -> Fleet:
    """Three regions; half of their racks have the model that everybody waits for."""
    regions = []
    for region in many_machines(3, 2, 40).regions:
        busy, idle = region.clusters
        racks = tuple(
            replace(rack, machines=tuple(replace(machine, gpu_model=BUSY) for machine in rack.machines))
            for rack in busy.racks
        )
        regions.append(replace(region, clusters=(replace(busy, racks=racks), idle)))
    return Fleet(tuple(regions))


def _filling(number: int) -> WorkloadSpecification:
    """Takes all of a region's busy model, at the best priority, for longer than the benchmark lasts."""
    job = JobSpecification(JobName("main"), 40, TaskResources(gpus=8, gpu_model=BUSY), Emulated(1e6))
    return WorkloadSpecification(f"filling-{number}", TenantId("tenant-0000"), (job,))


def _waiting(number: int, arguments: argparse.Namespace) -> WorkloadSpecification:
    """Of one of so many shapes; no two neighbours are alike."""
    shape = number % arguments.shapes
    resources = TaskResources(gpus=1 + shape % 8, gpu_model=BUSY, cpus=float(1 + shape // 8))
    tenant = TenantId(f"tenant-{1 + number % (arguments.tenants - 1):04}")
    return one_task(f"waiting-{number}", tenant, resources, 600.0)


def one_task(name: str, tenant: TenantId, resources: TaskResources, duration_s: float) -> WorkloadSpecification:
    """An emulated workload of one task."""
    return WorkloadSpecification(name, tenant, (JobSpecification(JobName("main"), 1, resources, Emulated(duration_s)),))


def submit_all(client: Client, specifications: list[WorkloadSpecification]) -> None:
    """In one call."""
    client.submit_many([specification_to_proto(one) for one in specifications])


async def waits_of(url: str, name: str) -> tuple[list[float], int, int]:
    """How long each workload of that name waited, by submission, and how many rounds and passes there were."""
    async with Database(url) as database, database.transaction() as connection:
        cursor = await connection.execute(
            """SELECT e.t - w.submitted_s FROM events e JOIN workloads w USING (workload)
                WHERE e.event = 'started' AND w.name = %s ORDER BY w.submitted_s""",
            (name,),
        )
        waits = [float(row[0]) for row in await cursor.fetchall()]
        cursor = await connection.execute(
            "SELECT max(round), (SELECT max(scan_pass) FROM scan_passes) FROM auction_rounds"
        )
        row = await cursor.fetchone()
    return waits, *((0, 0) if row is None else (int(row[0]), int(row[1])))


if __name__ == "__main__":
    main()
