"""How many workloads a second go from the queue into execution, through gRPC and PostgreSQL, with a long queue behind.

A whole service (`topmast up`: Ray actors, embedded PostgreSQL) with emulated execution on real time. A backlog is
submitted in batches; then starts and ends are counted in the event log, second by second. The fleet turns over faster
than the budget asks, so that the scheduler is what limits. With `--delay-ms` the database is far
away from all tiers, and they are from each other.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from benchmarks.delayed_network import DelayedNetwork
from benchmarks.far_tiers import move_tiers_apart
from benchmarks.measurement import report
from benchmarks.service_world import many_machines, many_tenants, small_workload
from formats.fleet_file import dump_fleet
from formats.tenants_file import dump_tenants
from services.database.embedded import EmbeddedLayout, start_embedded, stop_embedded
from services.database.engine import Database
from services.runtime.executor_kind import ExecutorKind
from services.runtime.host_options import HostOptions
from services.runtime.local import down, up
from services.runtime.tier_place import TierProcesses
from services.security.home_tokens import home_token
from services.wire.workloads import specification_to_proto
from topmast import Client

BUDGET = ">= 500 workloads/s sustained, 1,000 tenants, 50,000 pending; >= 200/s with 70 ms"
_BATCH = 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pending", type=int, default=50_000, help="queue length while measuring")
    parser.add_argument("--tenants", type=int, default=1_000)
    parser.add_argument("--machines", type=int, default=200, help="8-GPU machines in each of the 6 clusters")
    parser.add_argument("--shapes", type=int, default=1, help="kinds of what they ask for, in turn")
    parser.add_argument("--duration-s", type=float, default=10.0, help="of each workload")
    parser.add_argument("--measure-s", type=float, default=40.0)
    parser.add_argument("--window", type=int, default=256, help="lots per auction round")
    parser.add_argument(
        "--delay-ms", type=float, default=0.0, help="of a round trip from any tier to the database, and between any two"
    )
    arguments = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="topmast-benchmark-"))
    try:
        measure(home, arguments)
    finally:
        down(home)
        shutil.rmtree(home, ignore_errors=True)


def measure(home: Path, arguments: argparse.Namespace) -> None:
    """Brings the service up in `home`, fills its queue, and counts."""
    with ExitStack() as stack:
        near_url, far_url, network = EmbeddedLayout.of(home).url(), None, None
        if arguments.delay_ms > 0.0:
            network = stack.enter_context(DelayedNetwork(arguments.delay_ms / 1000.0))
            near_url, far_url = stack.enter_context(_far_database(home / "far", network))
        service = up(_options(home, arguments, far_url))
        stack.callback(down, home)
        if network is not None:
            asyncio.run(move_tiers_apart(near_url, network))
        _fill_and_count(service.address, home_token(home), near_url, arguments)


def _fill_and_count(address: str, token: str | None, database_url: str, arguments: argparse.Namespace) -> None:
    with Client(address, token=token) as client:
        began = time.monotonic()
        submitted = _submit(client, arguments, 0, arguments.pending)
        submitting_s = time.monotonic() - began
        settled_s = time.time() + arguments.duration_s
        end_s = settled_s + arguments.measure_s
        while time.time() < end_s:
            # The queue is kept as long as it was: for what has started, more is submitted.
            missing = arguments.pending - client.queue(limit=1).queued
            submitted = _submit(client, arguments, submitted, min(_BATCH, max(0, missing)))
            time.sleep(0.2)
        queued = client.queue(limit=1).queued
    starts, latencies = asyncio.run(_count(database_url, settled_s, end_s))
    per_second = [starts[second] for second in range(int(arguments.measure_s))]
    report(
        "submit_to_started",
        {
            "pending": arguments.pending,
            "tenants": arguments.tenants,
            "gpus": 6 * 8 * arguments.machines,
            "shapes": arguments.shapes,
            "window": arguments.window,
            "workload_s": arguments.duration_s,
            "delay_ms": arguments.delay_ms,
        },
        latencies,
        BUDGET,
        {
            "started_per_s": sum(per_second) / arguments.measure_s,
            "started_per_s_worst_second": min(per_second),
            "started_per_s_best_second": max(per_second),
            "submitted_while_filling_per_s": arguments.pending / submitting_s,
            "queued_at_the_end": queued,
            "durations": "from submission to start, of the workloads that started while measuring",
        },
    )


@contextmanager
def _far_database(home: Path, network: DelayedNetwork) -> Iterator[tuple[str, str]]:
    """A database of its own in `home`: its URL from here, and that by which it is far away."""
    near_url = start_embedded(home, stop_with_us=True)
    try:
        parameters = conninfo_to_dict(near_url)
        socket = Path(str(parameters["host"])) / f".s.PGSQL.{parameters['port']}"
        port = network.way_to({"database": str(socket)})["database"]
        server = f"{parameters['user']}@127.0.0.1:{port}/{parameters['dbname']}"
        yield near_url, f"postgresql://{server}?sslmode=disable&gssencmode=disable"
    finally:
        stop_embedded(home)


def _options(home: Path, arguments: argparse.Namespace, database_url: str | None) -> HostOptions:
    """A service in `home`, with its files."""
    (home / "fleet.yaml").write_text(dump_fleet(many_machines(3, 2, arguments.machines)), encoding="utf-8")
    (home / "tenants.yaml").write_text(dump_tenants(many_tenants(arguments.tenants, gpus_each=64)), encoding="utf-8")
    (home / "topmast.yaml").write_text(f"auction: {{window: {arguments.window}}}\n", encoding="utf-8")
    return HostOptions(
        home=home,
        port=0,
        database_url=database_url,
        fleet_file=home / "fleet.yaml",
        tenants_file=home / "tenants.yaml",
        configuration_file=home / "topmast.yaml",
        executor=ExecutorKind.EMULATED,
        tiers=TierProcesses.SEPARATE,
    )


def _submit(client: Client, arguments: argparse.Namespace, first: int, count: int) -> int:
    """Submits so many more, in batches; returns the number of the next one."""
    for start in range(first, first + count, _BATCH):
        batch = range(start, min(start + _BATCH, first + count))
        client.submit_many(
            [
                specification_to_proto(
                    small_workload(number, arguments.tenants, arguments.duration_s, arguments.shapes)
                )
                for number in batch
            ]
        )
    return first + count


async def _count(url: str, from_s: float, to_s: float) -> tuple[Counter[int], list[float]]:
    """Starts by second, and how long each of these workloads had waited."""
    async with Database(url) as database, database.transaction() as connection:
        cursor = await connection.execute(
            """SELECT e.t, w.submitted_s FROM events e JOIN workloads w USING (workload)
                WHERE e.event = 'started' AND e.t >= %s AND e.t < %s""",
            (from_s, to_s),
        )
        rows = await cursor.fetchall()
    return Counter(int(t - from_s) for t, _ in rows), [t - submitted_s for t, submitted_s in rows]


if __name__ == "__main__":
    main()
