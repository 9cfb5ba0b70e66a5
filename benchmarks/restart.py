"""How long it takes, after everything stopped, until the first decision: a scan pass, and a round that is closed.

All tiers end abruptly with a long queue and many live attempts in the database, and are started again in one process.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from benchmarks.measurement import report
from benchmarks.service_world import many_machines, many_tenants, small_workload
from services.configuration import AuctionConfiguration, Configuration
from services.database.embedded import start_embedded, stop_embedded
from services.database.engine import Database
from services.database.migrations_runner import upgrade
from services.runtime.in_process import run_in_process
from services.wire.workloads import specification_to_proto
from topmast import AsyncClient

BUDGET = "<= 3 s to the first decision with 100,000 pending, 10,000 running"
_BATCH = 1_000
_FOREVER_S = 1e7
_LOOK_EVERY_S = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pending", type=int, default=100_000)
    parser.add_argument("--running", type=int, default=9_600, help="filled up to whole machines")
    parser.add_argument("--restarts", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="topmast-benchmark-") as folder:
        home = Path(folder)
        url = start_embedded(home, stop_with_us=True)
        try:
            upgrade(url)
            asyncio.run(measure(url, home, arguments))
        finally:
            stop_embedded(home)


async def measure(url: str, home: Path, arguments: argparse.Namespace) -> None:
    """Fills fleet and queue, then stops and starts everything."""
    machines = max(1, round(arguments.running / 8 / 6))
    fleet, tenants = many_machines(3, 2, machines), many_tenants(500, gpus_each=32)
    running = machines * 6 * 8
    configuration = Configuration(auction=AuctionConfiguration(window=256))
    async with (
        Database(url) as database,
        run_in_process(url, fleet, tenants, home, configuration=configuration) as service,
    ):
        async with AsyncClient(service.address) as client:
            for start in range(0, arguments.pending + running, _BATCH):
                batch = range(start, min(start + _BATCH, arguments.pending + running))
                await client.submit_many(
                    [specification_to_proto(small_workload(number, len(tenants), _FOREVER_S)) for number in batch]
                )
            started = 0
            async for _ in client.events(follow=True, events=["started"]):
                started += 1
                if started == running:
                    break
        durations_s, passes_s = [], []
        for _ in range(arguments.restarts):
            await service.stop_all()
            before_pass, before_round = await _newest(database)
            began = time.monotonic()
            for name in service.tiers:
                await service.start(name)
            pass_s: float | None = None
            while True:
                newest_pass, newest_round = await _newest(database)
                if pass_s is None and newest_pass > before_pass:
                    pass_s = time.monotonic() - began
                if newest_round > before_round and pass_s is not None:
                    break
                await asyncio.sleep(_LOOK_EVERY_S)
            durations_s.append(time.monotonic() - began)
            passes_s.append(pass_s)
        report(
            "restart",
            {"pending": arguments.pending, "running": running, "tiers": len(service.tiers)},
            durations_s,
            BUDGET,
            {
                "to_scan_pass_s": passes_s,
                "what": "from starting all tiers in one process to a scan pass and a closed round",
            },
        )


async def _newest(database: Database) -> tuple[int, int]:
    """The newest scan pass, and the newest closed round."""
    async with database.transaction() as connection:
        cursor = await connection.execute(
            """SELECT coalesce((SELECT max(scan_pass) FROM scan_passes), 0),
                      coalesce((SELECT max(round) FROM auction_rounds WHERE closed_at IS NOT NULL), 0)"""
        )
        row = await cursor.fetchone()
    if row is None:
        raise LookupError("the database gave no row")
    return int(row[0]), int(row[1])


if __name__ == "__main__":
    main()
