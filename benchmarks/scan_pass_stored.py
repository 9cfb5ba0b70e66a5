"""The scan pass as the service makes it: ``python -m benchmarks.scan_pass_stored [--pending N] [--changed SHARE]``.

On an embedded PostgreSQL that flushes every commit to disk: load the live attempts, the tenants and their use, and what has changed of
the queue since the pass before; decide; write the tuples that changed, with their events. Before each pass the stored tuples of the given share of
the queue are put wrong, so that exactly those must be written. The first pass, which writes every tuple, is measured
apart.
"""

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.measurement import report
from benchmarks.scan_pass import StoredQueue, make_world
from domain.identifiers import WorkloadId
from global_scheduler.scan_settings import ScanSettings
from services.clock import SystemClock
from services.database import lease_store, migrations_runner, tenant_store
from services.database.connection import AnyConnection
from services.database.embedded import start_embedded, stop_embedded
from services.database.engine import Database
from services.database.lease_store import GLOBAL_LEASE, Lease
from services.global_scheduler.kept_queue import KeptQueue
from services.global_scheduler.scan_decision import decide, load_snapshot
from services.global_scheduler.scan_record import record_ranks

_NOW_S: Final = 1_700_000_000.0
_REPETITIONS: Final = 20
_BUDGET: Final = "scan pass, stored: 100,000 pending, 5 % of tuples changed: <= 0.5 s"
_SETTINGS: Final = ScanSettings()


@dataclass
class Timings:
    """Seconds of each pass, as a whole and by part."""

    whole_s: list[float] = field(default_factory=list)
    load_s: list[float] = field(default_factory=list)
    decide_s: list[float] = field(default_factory=list)
    write_s: list[float] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)

    def parts(self) -> dict[str, float]:
        """The median of each part."""
        return {
            f"{name}_p50_s": float(np.median(durations_s))
            for name, durations_s in (("load", self.load_s), ("decide", self.decide_s), ("write", self.write_s))
        }


async def one_pass(database: Database, lease: Lease, kept: KeptQueue, timings: Timings) -> None:
    """What the scan loop does, but for the re-classifications: those are of attempts, not of the queue."""
    started_s = time.perf_counter()
    snapshot = await database.run(partial(load_snapshot, now=_NOW_S, settings=_SETTINGS, kept=kept), snapshot=True)
    loaded_s = time.perf_counter()
    decision = decide(snapshot, _SETTINGS)
    decided_s = time.perf_counter()
    await database.run(partial(record_ranks, lease=lease, decision=decision, clock=SystemClock(), reclassified=0))
    written_s = time.perf_counter()
    timings.whole_s.append(written_s - started_s)
    timings.load_s.append(loaded_s - started_s)
    timings.decide_s.append(decided_s - loaded_s)
    timings.write_s.append(written_s - decided_s)
    timings.changed.append(len(decision.plan.changed))


async def fill(connection: AnyConnection, world: StoredQueue) -> None:
    """Tenants, queued workloads and live attempts of the world."""
    await tenant_store.apply_tenants(connection, world.tenants)
    pending, running = world.pending, world.running
    async with connection.cursor() as cursor:
        names: Sequence[WorkloadId] = [*pending.workloads, *running.workloads]
        owners = [*pending.tenants, *running.tenants]
        await cursor.execute(
            """INSERT INTO workloads (workload, tenant, name, specification, gpus, emulated, state, submitted_s)
               SELECT workload, tenant, workload, '', 0, true, state, 0
                 FROM unnest(%s::text[], %s::text[], %s::text[]) AS u (workload, tenant, state)""",
            (names, owners, ["PENDING"] * len(pending.workloads) + ["RUNNING"] * len(running.workloads)),
        )
        async with cursor.copy(
            "COPY queue_entries (workload, tenant, submitted_s, gpu_model, gpus, cpus, more_gpus) FROM STDIN"
        ) as copy:
            gpus, cpus = np.asarray(pending.gpus).tolist(), np.asarray(pending.cpus).tolist()
            submitted_s = np.asarray(pending.submitted_s).tolist()
            for row, workload in enumerate(pending.workloads):
                more = '{"T4": 4}' if pending.more_gpus[row] else None
                await copy.write_row(
                    (
                        workload,
                        pending.tenants[row],
                        submitted_s[row],
                        pending.gpu_model[row],
                        gpus[row],
                        cpus[row],
                        more,
                    )
                )
        await cursor.execute(
            """INSERT INTO attempts (workload, attempt, tenant, region, state, priority, level, within_quota, gpus, cpus,
                                     charges, dispatched_s, progress_at_start, progress, checkpoint_progress)
               SELECT workload, 1, tenant, 'east', 'RUNNING', 6, 0, within_quota, 8, 0, '{"H100": 8}', started_s, 0, 0, 0
                 FROM unnest(%s::text[], %s::text[], %s::bool[], %s::float8[])
                   AS u (workload, tenant, within_quota, started_s)""",
            (
                list(running.workloads),
                list(running.tenants),
                np.asarray(running.within_quota).tolist(),
                np.asarray(running.started_s).tolist(),
            ),
        )


async def put_wrong(connection: AnyConnection, workloads: NDArray[np.str_]) -> None:
    """Another standing than the pass gave them, so that it must give it again."""
    await connection.execute(
        "UPDATE queue_entries SET priority = (priority + 1) %% 7 WHERE workload = ANY(%s)", (workloads.tolist(),)
    )


async def measure(database: Database, pending: int, changed_share: float) -> None:
    """The first pass, then those with a share of changes."""
    generator = np.random.default_rng(1)
    world = make_world(pending, generator)
    await database.run(partial(fill, world=world))
    lease = await database.run(partial(_acquire, duration_s=3600.0))
    work = {"pending": pending, "tenants": len(world.tenants), "running": len(world.running.workloads), "seed": 1}
    first, kept = Timings(), KeptQueue()
    await one_pass(database, lease, kept, first)
    _require(first.changed == [pending], f"the first pass changed {first.changed} entries, not all {pending}")
    report("scan_pass_stored_first", work | {"changed": pending}, first.whole_s, "none of its own", first.parts())

    names = np.array(world.pending.workloads)
    wanted = round(pending * changed_share)
    timings = Timings()
    for repetition in range(_REPETITIONS + 1):
        if repetition == 1:
            timings = Timings()  # the one before warmed everything up
        await database.run(partial(put_wrong, workloads=generator.choice(names, wanted, replace=False)))
        await one_pass(database, lease, kept, timings)
    _require(set(timings.changed) == {wanted}, f"passes changed {timings.changed} entries, not {wanted} each")
    report("scan_pass_stored", work | {"changed": wanted}, timings.whole_s, _BUDGET, timings.parts())


async def _acquire(connection: AnyConnection, duration_s: float) -> Lease:
    lease = await lease_store.acquire(connection, GLOBAL_LEASE, "benchmark", "nowhere:0", 0, duration_s)
    if lease is None:
        raise RuntimeError("another process holds the lease in a new database")
    return lease


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise RuntimeError(f"not the work that was meant: {sentence}")


@asynccontextmanager
async def new_database() -> AsyncIterator[Database]:
    """A fresh embedded server with all tables, and with the settings of production."""
    home = Path(tempfile.mkdtemp(prefix="topmast-benchmark-"))
    try:
        url = start_embedded(home, stop_with_us=True)
        migrations_runner.upgrade(url)
        async with Database(url) as database:
            yield database
    finally:
        stop_embedded(home)
        shutil.rmtree(home)


async def main(pending: int, changed_share: float) -> None:
    async with new_database() as database:
        await measure(database, pending, changed_share)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure the scan pass from the database and back.")
    parser.add_argument("--pending", type=int, default=100_000)
    parser.add_argument("--changed", type=float, default=0.05, help="the share of tuples that a pass must write")
    options = parser.parse_args()
    asyncio.run(main(options.pending, options.changed))
