"""The scan pass with everything around it: ``python -m benchmarks.stored_scan_pass [--pending N]``.

An embedded PostgreSQL that flushes every commit to disk holds the queue, 500 tenants and 10,000 live attempts. Before
each pass one entry in twenty loses its tuple, so that the pass changes those 5 %. A pass counts use, loads the queue,
decides, and stores tuples, events and its own record. Beside it a task wakes up every millisecond; how late it is shows
for how long a pass keeps calls from being answered.
"""

import argparse
import asyncio
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.measurement import report
from domain.identifiers import ANY_GPU_MODEL, GpuModel, TenantId
from domain.resources import Quota
from domain.tenant import Tenant
from services.clock import SystemClock
from services.configuration import ScanConfiguration
from services.database import lease_store, migrations_runner, tenant_store
from services.database.connection import AnyConnection
from services.database.embedded import EmbeddedLayout, start_embedded, stop_embedded
from services.database.engine import Database
from services.global_scheduler.scan_loop import ScanLoop
from services.runtime.tier_process import forget_for_collection

_TENANTS: Final = 500
_RUNNING: Final = 10_000
_PASSES: Final = 10
_BUDGET: Final = "scan pass, stored: 100,000 pending, 5 % of tuples changed: <= 2 s"

_QUEUE: Final = """
    INSERT INTO queue_entries (workload, tenant, submitted_s, gpu_model, gpus, cpus)
    SELECT 'w' || lpad(n::text, 12, '0'), 'tenant-' || lpad((n %% %(tenants)s)::text, 3, '0'),
           %(now)s - (%(pending)s - n) * 2.0, (ARRAY['A100', 'H100', 'any'])[1 + n %% 3], 8 * (1 + n %% 8), 0
      FROM generate_series(1, %(pending)s) AS n"""

_ATTEMPTS: Final = """
    WITH running AS (
        INSERT INTO workloads (workload, tenant, name, specification, gpus, emulated, state, submitted_s, attempts)
        SELECT 'r' || lpad(n::text, 12, '0'), 'tenant-' || lpad((n %% %(tenants)s)::text, 3, '0'), 'running', '', 8,
               true, 'RUNNING', %(now)s - 86400, 1
          FROM generate_series(1, %(running)s) AS n RETURNING workload, tenant)
    INSERT INTO attempts (workload, attempt, tenant, region, state, priority, level, within_quota, gpus, cpus, charges,
                          dispatched_s, started_s, progress_at_start, progress, checkpoint_progress)
    SELECT workload, 1, tenant, 'east', 'RUNNING', 6, 0, false, 8, 96, '{"any": 8}', %(now)s - 7200, %(now)s - 7190,
           0, 0, 0 FROM running"""


async def fill(connection: AnyConnection, pending: int) -> None:
    """A queue over several days, a quota that about half of it fits into."""
    await tenant_store.apply_tenants(
        connection,
        [
            Tenant(
                TenantId(f"tenant-{number:03}"),
                number % 7,
                Quota.of({GpuModel("H100"): pending * 6 // _TENANTS, ANY_GPU_MODEL: pending * 12 // _TENANTS}),
                1.0 + number % 3,
            )
            for number in range(_TENANTS)
        ],
    )
    values = {"tenants": _TENANTS, "pending": pending, "running": _RUNNING, "now": SystemClock().now()}
    await connection.execute(_QUEUE, values)
    await connection.execute(_ATTEMPTS, values)


async def forget_some(connection: AnyConnection) -> None:
    """Every twentieth entry is as if it had just come."""
    await connection.execute("UPDATE queue_entries SET priority = NULL WHERE right(workload, 2)::int %% 20 = 7", ())


async def lateness(late_s: list[float]) -> None:
    """Notes by how much each wake-up is late."""
    while True:
        due_s = time.perf_counter() + 0.001
        await asyncio.sleep(0.001)
        late_s.append(time.perf_counter() - due_s)


async def measure(url: str, pending: int) -> None:
    async with Database(url) as database:
        await database.run(lambda connection: fill(connection, pending))
        lease = await database.run(
            lambda connection: lease_store.acquire(connection, lease_store.GLOBAL_LEASE, "benchmark", "", 1, 3600.0)
        )
        if lease is None:
            raise RuntimeError("somebody else has the lease of a new database")
        forget_for_collection()
        loop = ScanLoop(database, SystemClock(), ScanConfiguration())
        started_s = time.perf_counter()
        await loop.run_pass(lease)
        first_s = time.perf_counter() - started_s
        durations_s, late_s = [], [0.0]
        for _ in range(_PASSES):
            await database.run(forget_some)
            ticking = asyncio.create_task(lateness(late_s))
            started_s = time.perf_counter()
            await loop.run_pass(lease)
            durations_s.append(time.perf_counter() - started_s)
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)
        async with database.transaction() as connection:
            cursor = await connection.execute("SELECT min(changed), max(changed) FROM scan_passes WHERE scan_pass > 1")
            least, most = await cursor.fetchone() or (0, 0)
        report(
            "stored_scan_pass",
            {"pending": pending, "tenants": _TENANTS, "running": _RUNNING, "changed": [least, most]},
            durations_s,
            _BUDGET,
            {"first_pass_s": first_s, "longest_wait_of_others_s": max(late_s)},
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the scan pass with its database.")
    parser.add_argument("--pending", type=int, default=100_000)
    arguments = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="topmast-benchmark-"))
    try:
        start_embedded(home, stop_with_us=True)
        url = EmbeddedLayout.of(home).url("postgres")
        migrations_runner.upgrade(url)
        asyncio.run(measure(url, arguments.pending))
    finally:
        stop_embedded(home)
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
