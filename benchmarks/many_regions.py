"""Regions of three clusters each, far from their database: ``python -m benchmarks.many_regions``.

All tiers (17 with four regions) run in one process, with emulated execution on real time and a round trip of 70 ms to PostgreSQL and between
any two. So many workloads of six shapes, at priorities 0 to 5, are submitted as fast as it goes, and run: the better ones start first, so that
few or none are evicted. At the end the invariants are recomputed from the whole event log. It fails when one is broken. One process does here what
many machines do for a fleet: the rate is what it can plan in all regions.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from benchmarks.delayed_network import DelayedNetwork
from benchmarks.far_tiers import move_tiers_apart
from benchmarks.measurement import report
from benchmarks.service_world import many_machines, many_tenants
from domain.identifiers import JobName, TenantId
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, WorkloadSpecification
from services.configuration import AuctionConfiguration, Configuration, LeaseConfiguration
from services.database.embedded import start_embedded, stop_embedded
from services.database.migrations_runner import upgrade
from services.runtime.in_process import run_in_process
from services.wire.workloads import specification_to_proto
from simulator.validation.log_checker import LogChecker
from topmast import AsyncClient

BUDGET = "20,000 workloads on 20 regions x 3 clusters with 70 ms of delay, the validator clean"
_BATCH = 500
_SHAPES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8))
"""Tasks, and GPUs of each."""
_WEIGHTS = (50, 15, 15, 12, 6, 2)
_ENDS = ("completed", "failed", "cancelled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=1_000)
    parser.add_argument("--regions", type=int, default=4)
    parser.add_argument("--clusters", type=int, default=3, help="of each region")
    parser.add_argument("--machines", type=int, default=20, help="of each cluster, of 8 GPUs")
    parser.add_argument("--tenants", type=int, default=100)
    parser.add_argument(
        "--delay-ms",
        type=float,
        default=70.0,
        help="of a round trip from any tier to the database, and between any two",
    )
    parser.add_argument("--window", type=int, default=512, help="lots per auction round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience-s", type=float, default=1_800.0, help="until all have ended")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="topmast-benchmark-") as folder:
        home = Path(folder)
        near_url = start_embedded(home, stop_with_us=True)
        try:
            upgrade(near_url)
            parameters = conninfo_to_dict(near_url)
            socket = str(Path(str(parameters["host"])) / f".s.PGSQL.{parameters['port']}")
            with DelayedNetwork(arguments.delay_ms / 1000.0) as network:
                port = network.way_to({"database": socket})["database"]
                server = f"{parameters['user']}@127.0.0.1:{port}/{parameters['dbname']}"
                far_url = f"postgresql://{server}?sslmode=disable&gssencmode=disable"
                asyncio.run(measure(near_url, far_url, network, home, arguments))
        finally:
            stop_embedded(home)


async def measure(
    near_url: str, far_url: str, network: DelayedNetwork, home: Path, arguments: argparse.Namespace
) -> None:
    """Submits, waits until all have ended, and validates the log."""
    fleet = many_machines(arguments.regions, arguments.clusters, arguments.machines)
    tenants = many_tenants(arguments.tenants, gpus_each=96)
    configuration = Configuration(
        auction=AuctionConfiguration(window=arguments.window, answer_timeout_real_s=30.0),
        # All regions plan in one process: what renews their leases has to wait for the interpreter.
        lease=LeaseConfiguration(duration_real_s=60.0, silence_real_s=60.0, lost_grace_real_s=60.0),
    )
    rng = random.Random(arguments.seed)
    checker = LogChecker(fleet, tenants)
    async with run_in_process(far_url, fleet, tenants, home, configuration=configuration) as service:
        await move_tiers_apart(near_url, network)
        began = time.monotonic()
        async with AsyncClient(service.address) as client:
            submitting = asyncio.ensure_future(_submit(client, arguments, rng))
            kinds, waits_s, regions = await asyncio.wait_for(
                _until_all_ended(client, checker, arguments.workloads), arguments.patience_s
            )
            await submitting
        took_s = time.monotonic() - began
        service.raise_if_broken()
    validation = checker.report(complete=True)
    report(
        "many_regions",
        {
            "workloads": arguments.workloads,
            "regions": arguments.regions,
            "clusters": arguments.regions * arguments.clusters,
            "gpus": arguments.regions * arguments.clusters * arguments.machines * 8,
            "delay_ms": arguments.delay_ms,
            "window": arguments.window,
            "seed": arguments.seed,
        },
        waits_s,
        BUDGET,
        {
            "took_s": round(took_s, 1),
            "ended_per_s": round(arguments.workloads / took_s, 1),
            "events": sum(kinds.values()),
            "evicted": kinds["evicted"],
            "completed": kinds["completed"],
            "regions_that_ran_something": len(regions),
            "checks": sum(validation.checks.values()),
            "violations": validation.violations,
            "durations": "from submission to the first start",
        },
    )
    if not validation.valid:
        raise SystemExit(f"{validation.violations} violations, the first of them: {validation.shown[:3]}")


async def _submit(client: AsyncClient, arguments: argparse.Namespace, rng: random.Random) -> None:
    for first in range(0, arguments.workloads, _BATCH):
        numbers = range(first, min(first + _BATCH, arguments.workloads))
        await client.submit_many(
            [specification_to_proto(_workload(number, arguments.tenants, rng)) for number in numbers]
        )


def _workload(number: int, tenants: int, rng: random.Random) -> WorkloadSpecification:
    (tasks, gpus), duration_s = rng.choices(_SHAPES, _WEIGHTS)[0], rng.uniform(5.0, 40.0)
    job = JobSpecification(JobName("main"), tasks, TaskResources(gpus=gpus), Emulated(duration_s))
    return WorkloadSpecification(f"workload-{number}", TenantId(f"tenant-{rng.randrange(tenants):04}"), (job,))


async def _until_all_ended(
    client: AsyncClient, checker: LogChecker, workloads: int
) -> tuple[Counter[str], list[float], set[str]]:
    """Has the log checked as it comes; returns the kinds of events, how long each waited, and where anything ran."""
    kinds: Counter[str] = Counter()
    submitted_s: dict[str, float] = {}
    waits_s: list[float] = []
    regions: set[str] = set()
    ended = 0
    async for event in client.events(follow=True):
        kinds[event.event] += 1
        checker.feed(sum(kinds.values()), event.as_json())
        name = event.workload or ""
        if event.event == "submitted":
            submitted_s[name] = event.t
        elif event.event == "started":
            regions.add(event.region or "")
            if name in submitted_s:
                waits_s.append(event.t - submitted_s.pop(name))
        ended += event.event in _ENDS and bool(event.details.get("final", True))
        if ended == workloads:
            return kinds, waits_s, regions
    raise RuntimeError("the service ended its event log")


if __name__ == "__main__":
    main()
