"""How long the workloads of a tenant wait while another one floods the queue: ``python -m benchmarks.flood``.

A whole service (`topmast up`: embedded PostgreSQL, tiers as processes) with emulated execution on real time. A tenant submits one
workload after the other, each of which has room: timed is until it has started. First alone; then after another tenant has
submitted 50,000 that can never start, for all GPUs of their model are taken.
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
from benchmarks.tail_of_queue import BUSY, IDLE, half_busy_fleet, one_task, submit_all, waits_of
from domain.identifiers import ANY_GPU_MODEL, JobName, TenantId
from domain.resources import Quota, TaskResources
from domain.tenant import Tenant
from domain.tenant_limits import NO_LIMITS, TenantLimits
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
from topmast import Client

BUDGET = "p99 with 50,000 blocked workloads of another tenant <= 2x of that without them"
_BATCH = 1_000
_FLOODS, _STEADY = TenantId("floods"), TenantId("steady")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocked", type=int, default=50_000, help="workloads that cannot start")
    parser.add_argument("--shapes", type=int, default=8, help="kinds of what they ask for")
    parser.add_argument("--max-running", type=int, default=None, help="the limit of the tenant that floods; none")
    parser.add_argument("--probes", type=int, default=60, help="workloads that can start, before and after")
    parser.add_argument("--between-s", type=float, default=1.0, help="from one of them to the next")
    parser.add_argument("--settle-s", type=float, default=15.0, help="from the flood to the first probe behind it")
    arguments = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="topmast-benchmark-"))
    try:
        measure(home, arguments)
    finally:
        down(home)
        shutil.rmtree(home, ignore_errors=True)


def measure(home: Path, arguments: argparse.Namespace) -> None:
    """Brings the service up in `home`, and times the probes."""
    service = up(_options(home, arguments))
    with Client(service.address, token=home_token(home)) as client:
        submit_all(client, [_filling(number) for number in range(3)])
        time.sleep(arguments.settle_s)
        _probe(client, "alone", arguments)
        began = time.monotonic()
        for first in range(0, arguments.blocked, _BATCH):
            submit_all(client, [_blocked(number, arguments) for number in range(first, first + _BATCH)])
        flood_s = time.monotonic() - began
        time.sleep(arguments.settle_s)
        _probe(client, "beside", arguments)
        time.sleep(arguments.settle_s)
        queued = client.queue(limit=1).queued
    url = EmbeddedLayout.of(home).url()
    for name in ("alone", "beside"):
        waited_s, rounds, passes = asyncio.run(waits_of(url, name))
        report(
            f"flood_{name}",
            {"blocked": arguments.blocked, "shapes": arguments.shapes, "max_running": arguments.max_running},
            waited_s,
            BUDGET,
            {
                "probes": arguments.probes,
                "never_started": arguments.probes - len(waited_s),
                "queued_at_the_end": queued,
                "flood_took_s": round(flood_s, 1),
                "auction_rounds": rounds,
                "scan_passes": passes,
                "durations": "from submission to start",
                "stages_p50_s": asyncio.run(_stages(url, name)),
            },
        )


async def _stages(url: str, name: str) -> dict[str, float]:
    """Where the waits of workloads of that name were spent, in the middle of all: until a scan pass had ranked it, a region had won
    and dispatched it, it had started."""
    stages = ("submitted", "ranked", "dispatched", "started")
    async with Database(url) as database, database.transaction() as connection:
        cursor = await connection.execute(
            """SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ranked - submitted),
                      percentile_cont(0.5) WITHIN GROUP (ORDER BY dispatched - ranked),
                      percentile_cont(0.5) WITHIN GROUP (ORDER BY started - dispatched)
                 FROM (SELECT min(e.t) FILTER (WHERE e.event = 'submitted') AS submitted,
                              min(e.t) FILTER (WHERE e.event = 'ranked') AS ranked,
                              min(e.t) FILTER (WHERE e.event = 'dispatched') AS dispatched,
                              min(e.t) FILTER (WHERE e.event = 'started') AS started
                         FROM events e JOIN workloads w USING (workload) WHERE w.name = %s GROUP BY e.workload) AS lives""",
            (name,),
        )
        row = await cursor.fetchone()
    return dict(zip(stages[1:], [round(float(part or 0.0), 3) for part in row or ()], strict=False))


def _probe(client: Client, name: str, arguments: argparse.Namespace) -> None:
    began = time.monotonic()
    for probe in range(arguments.probes):
        time.sleep(max(0.0, began + probe * arguments.between_s - time.monotonic()))
        submit_all(client, [one_task(name, _STEADY, TaskResources(gpus=1, gpu_model=IDLE), 2.0)])


def _options(home: Path, arguments: argparse.Namespace) -> HostOptions:
    quota = Quota.of({ANY_GPU_MODEL: 1_000_000})
    limits = NO_LIMITS if arguments.max_running is None else TenantLimits(max_running=arguments.max_running)
    tenants = (Tenant(_FLOODS, 2, quota, limits=limits), Tenant(_STEADY, 2, quota))
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


def _filling(number: int) -> WorkloadSpecification:
    """Takes all of a region's busy model for longer than the benchmark lasts."""
    job = JobSpecification(JobName("main"), 40, TaskResources(gpus=8, gpu_model=BUSY), Emulated(1e6))
    return replace(one_task(f"filling-{number}", _STEADY, TaskResources(gpus=8, gpu_model=BUSY), 1e6), jobs=(job,))


def _blocked(number: int, arguments: argparse.Namespace) -> WorkloadSpecification:
    resources = TaskResources(gpus=8, gpu_model=BUSY, cpus=float(1 + number % arguments.shapes))
    return one_task("blocked", _FLOODS, resources, 600.0)


if __name__ == "__main__":
    main()
