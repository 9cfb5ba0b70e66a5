"""The catalog of a running service, with many tables: ``python -m benchmarks.live_catalog [--tables N] [--plan]``.

A generated warehouse with the published statistics (seed 1) is imported through gRPC, imported once more, which changes
nothing, and with ``--plan`` a plan of it is made, by hill climbing. Wall times of the client, the server in the same process
and on an embedded PostgreSQL with its usual settings; the peak memory of the processes that import and plan.
"""

import argparse
import asyncio
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.measurement import report
from data_placement.warehouse_generator import generate_warehouse
from domain.fleet import Fleet, Region
from domain.identifiers import RegionId
from formats.warehouse_folder import write_warehouse
from services.configuration import Configuration
from services.data_placement.settings import DataSettings
from services.database import fleet_store
from services.database.embedded import EmbeddedLayout, start_embedded, stop_embedded
from services.database.engine import Database
from services.database.migrations_runner import upgrade
from services.database.server_processes import find_server_processes
from services.runtime.in_process import InProcessService
from topmast import AsyncClient
from topmast.errors import UnavailableError
from topmast.warehouses import PlacementPlan

SEED = 1
BUDGET = "import of 1,000,000 tables < 60 s; a plan of them <= 5 min, <= 4 GiB"
_LOOK_EVERY_S = 0.1


def main() -> None:
    """Generates, imports twice, and plans where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1_000_000)
    parser.add_argument("--regions", type=int, default=20)
    parser.add_argument("--plan", action="store_true", help="also make a plan")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="topmast-benchmark-") as folder:
        home = Path(folder)
        warehouse = generate_warehouse(arguments.tables, arguments.regions, np.random.default_rng(SEED))
        write_warehouse(home / "warehouse", warehouse)
        fleet = Fleet(tuple(Region(RegionId(name), ()) for name in warehouse.regions.names))
        del warehouse
        url = start_embedded(home, stop_with_us=True)
        try:
            upgrade(url)
            asyncio.run(measure(url, home, fleet, arguments))
        finally:
            stop_embedded(home)


async def measure(url: str, home: Path, fleet: Fleet, arguments: argparse.Namespace) -> None:
    """A line of JSON for each of them."""
    async with Database(url) as database:
        await database.run(lambda connection: fleet_store.apply_fleet(connection, fleet))
    work = {"tables": arguments.tables, "regions": arguments.regions, "seed": SEED}
    service = InProcessService(
        url, fleet, home, Configuration(data=DataSettings(emulated=True)).without_authentication()
    )
    await service.start("global")
    try:
        async with AsyncClient(service.address) as client:
            await _until_ready(client)
            for name in ("import", "import_again"):
                watch = _Watch(home)
                done = await client.data.import_folder(home / "warehouse")
                counts = {"new_tables": done.new_tables, "changed_tables": done.changed_tables, "reads": done.reads}
                report(f"live_catalog_{name}", work, [watch.wall_s()], BUDGET, counts | watch.surroundings())
            if arguments.plan:
                watch = _Watch(home)
                plan = await _planned(client)
                found = {
                    "moves": plan.all_moves,
                    "problem": plan.problem,
                    "plan_rss_mib": plan.figures.get("peak_rss_mib"),
                }
                report("live_catalog_plan", work, [watch.wall_s()], BUDGET, found | watch.surroundings())
    finally:
        await service.stop_all()


async def _until_ready(client: AsyncClient) -> None:
    while True:
        try:
            async for _ in client.data.tables(limit=1):
                pass
        except UnavailableError:
            await asyncio.sleep(_LOOK_EVERY_S)
        else:
            return


async def _planned(client: AsyncClient) -> PlacementPlan:
    result = None
    async for progress in client.data.make_plan():
        result = progress.result
    if result is None:
        raise RuntimeError("a plan was asked for, and none came")
    return result


class _Watch:
    """What has passed since it was made."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._begun_s, self._ours_s, self._database_s = (
            time.monotonic(),
            _our_processor_s(),
            _database_processor_s(home),
        )

    def wall_s(self) -> float:
        return time.monotonic() - self._begun_s

    def surroundings(self) -> dict[str, object]:
        database_s = _database_processor_s(self._home) - self._database_s
        children_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        return {
            "processor_s": round(_our_processor_s() - self._ours_s + database_s, 1),
            "database_processor_s": round(database_s, 1),
            "child_rss_mib": round(children_kib / 1024, 1),
            "load_average": round(os.getloadavg()[0], 1),
        }


def _our_processor_s() -> float:
    """Of this process, and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _database_processor_s(home: Path) -> float:
    """Of the processes of the server, and of those of them that have ended."""
    processes = find_server_processes(EmbeddedLayout.of(home).data)
    return float(sum(sum(process.cpu_times()[:4]) for process in processes))


if __name__ == "__main__":
    main()
