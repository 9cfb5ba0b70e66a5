"""Tables move while the service runs: real files between folders, for workloads that wait for them and by plan."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from data_placement.migrations.life_cycle import MigrationState
from data_placement.migrations.migration import Migration
from domain.identifiers import RegionId, TableId
from domain.table import Table
from domain.workload import Emulated, TableInput
from formats.data_section import DataRegionSection
from services.configuration import Configuration
from services.data_placement import migration_store, on_demand_look
from services.data_placement.migration_store import WantedMigration
from services.data_placement.movers.region_folders import OWN_PREFIX
from services.data_placement.settings import DataSettings
from services.database import catalog_store
from services.database.channels import DATA_CHANNEL
from services.database.connection import AnyConnection
from tests.live.running import CONFIGURATION, PATIENCE_REAL_S, LiveRun, in_live_service
from tests.live.world import EAST, FLEET, RANKING, SPEECH, TABLES, V100, WEST, one_job

pytestmark = pytest.mark.live

CONTENTS = {f"part-{number}": bytes([number]) * 500_000 for number in range(4)}
SIZE = sum(map(len, CONTENTS.values()))
SMALL_TABLES = tuple(replace(table, size_bytes=SIZE) for table in TABLES)
_SHORT = Emulated(60.0, 60.0)


def with_storage(folder: Path) -> Configuration:
    """Speech is in the east, as files."""
    speech = folder / "east" / SPEECH
    speech.mkdir(parents=True)
    for name, content in CONTENTS.items():
        (speech / name).write_bytes(content)
    regions = {region: DataRegionSection(storage=f"file://{folder / region}") for region in ("east", "west")}
    return CONFIGURATION.model_copy(update={"data": DataSettings(regions=regions)})


def files_of(folder: Path, region: str) -> dict[str, bytes]:
    table = folder / region / SPEECH
    paths = [path for path in table.iterdir() if not path.name.startswith(OWN_PREFIX)] if table.exists() else []
    return {path.name: path.read_bytes() for path in sorted(paths)}


async def apply(run: LiveRun, links: dict[tuple[RegionId, RegionId], float] | None = None) -> None:
    """Tables of the size of their files; links of so many bytes a day."""

    async def declare(connection: AnyConnection) -> None:
        await catalog_store.apply_tables(connection, SMALL_TABLES)
        for (source, target), rate in sorted((links or {}).items()):
            await connection.execute("INSERT INTO data_links VALUES (%s, %s, %s)", (source, target, rate))

    await run.database.run(declare)


async def table(run: LiveRun) -> Table | None:
    return (await run.database.run(catalog_store.load_catalog)).table(SPEECH)


async def until(run: LiveRun, is_so: Callable[[list[Migration]], bool]) -> None:
    """Looks at the migrations that have not ended, whenever there is news of them."""
    async with asyncio.timeout(PATIENCE_REAL_S), run.database.listen(DATA_CHANNEL) as subscription:
        while not is_so(await run.database.run(migration_store.load_active)):
            await subscription.wait(0.5)


def none_is_left(migrations: list[Migration]) -> bool:
    return not migrations


def test_a_workload_whose_table_is_in_the_wrong_region_gets_it(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        await apply(run)
        wanted = replace(one_job("w", RANKING, _SHORT, model=V100), tables=(TableInput(SPEECH),))
        first, second = await run.submit([wanted, replace(wanted, name="v")])
        await run.follow()
        kinds = [(event.event, event.workload) for event in run.events]
        assert kinds.index(("awaiting_data", first)) < kinds.index(("table_moved", None))
        assert kinds.index(("table_moved", None)) < kinds.index(("started", first))
        # One copy serves both.
        assert run.count("table_moved") == 1
        assert run.count("table_moved", table=SPEECH, source=EAST, on_demand=True, bytes=SIZE) == 1
        assert {event.region for event in run.events if event.event == "started"} == {WEST}
        assert {event.workload for event in run.events if event.event == "completed"} == {first, second}
        run.check(tables=SMALL_TABLES)
        assert await table(run) == Table(SPEECH, SIZE, EAST, (WEST,))
        assert files_of(tmp_path, "west") == files_of(tmp_path, "east") == CONTENTS

    in_live_service(database_url, tmp_path / "home", scenario, configuration=with_storage(tmp_path))


def test_a_workload_that_reads_the_newest_partitions_gets_those(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        await apply(run)

        async def partition(connection: AnyConnection) -> None:
            for number, (name, content) in enumerate(CONTENTS.items()):
                checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
                await connection.execute(
                    "INSERT INTO data_partitions VALUES (%s, %s, %s, %s, %s)",
                    (SPEECH, name, len(content), checksum, float(number)),
                )
            await connection.execute(
                "UPDATE data_tables SET last_partition_s = 3, from_fleet = false WHERE data_table = %s", (SPEECH,)
            )
            # No room for more than the table.
            room = SIZE * (1 + sum(WEST in each.regions for each in SMALL_TABLES))
            await connection.execute("INSERT INTO data_regions VALUES ('west', %s)", (room,))

        await run.database.run(partition)
        reads = replace(one_job("some", RANKING, _SHORT, model=V100), tables=(TableInput(SPEECH, newest_partitions=2),))
        (some,) = await run.submit([reads])
        await run.until_event("completed", some)
        newest = dict(list(CONTENTS.items())[2:])
        assert files_of(tmp_path, "west") == newest
        assert await table(run) == Table(SPEECH, SIZE, EAST, newest_held=((WEST, 2),))
        assert run.count("table_moved", table=SPEECH, bytes=SIZE // 2, newest_partitions=2) == 1
        (fewer,) = await run.submit([replace(reads, name="fewer", tables=(TableInput(SPEECH, newest_partitions=1),))])
        await run.until_event("completed", fewer)
        assert run.count("table_moved") == 1
        # Who reads all of it gets the rest.
        (everything,) = await run.submit([replace(reads, name="all", tables=(TableInput(SPEECH),))])
        await run.until_event("completed", everything)
        assert ("awaiting_data", everything) in {(event.event, event.workload) for event in run.events}
        assert run.count("table_moved", table=SPEECH, bytes=SIZE // 2, replicas=[WEST]) == 1
        assert files_of(tmp_path, "west") == files_of(tmp_path, "east") == CONTENTS
        assert await table(run) == Table(SPEECH, SIZE, EAST, (WEST,))
        run.check(tables=SMALL_TABLES)

    in_live_service(database_url, tmp_path / "home", scenario, configuration=with_storage(tmp_path))


def test_workloads_that_get_nothing_hold_up_nobody_behind_them(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_demand_look, "MOST_AWAITING", 1)

    async def scenario(run: LiveRun) -> None:
        await apply(run)
        wanted = replace(one_job("w", RANKING, _SHORT, model=V100), tables=(TableInput(SPEECH),))
        # Its home has no such GPUs, and no copy helps.
        (never,) = await run.submit([replace(wanted, name="never", tables=(TableInput(SPEECH, fresh=True),))])
        await run.until_event("awaiting_data", never)
        (name,) = await run.submit([wanted])
        await run.until_event("completed", name)
        await run.client.cancel(never)
        await run.follow()
        assert run.count("table_moved") == 1
        run.check(tables=SMALL_TABLES)

    in_live_service(database_url, tmp_path / "home", scenario, configuration=with_storage(tmp_path))


def test_a_copy_that_nobody_waits_for_any_more_is_given_up(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        await apply(run, {(EAST, WEST): 1.0})
        wanted = replace(one_job("w", RANKING, _SHORT, model=V100), tables=(TableInput(SPEECH),))
        (name,) = await run.submit([wanted])
        await run.until_event("awaiting_data", name)
        await until(run, lambda migrations: any(each.state is MigrationState.COPYING for each in migrations))
        await run.client.cancel(name)
        await until(run, none_is_left)
        await run.follow()
        assert run.count("table_moved") == 0
        assert files_of(tmp_path, "west") == {}
        assert await table(run) == Table(SPEECH, SIZE, EAST)

    in_live_service(database_url, tmp_path / "home", scenario, configuration=with_storage(tmp_path))


def test_a_table_moves_when_nothing_reads_its_old_copy_any_more(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        await apply(run)
        reads = replace(one_job("w", RANKING, Emulated(1e6, 60.0)), tables=(TableInput(SPEECH),))
        (name,) = await run.submit([reads])
        await run.until_event("started", name)
        await run.database.run(
            partial(migration_store.enqueue, wanted=[WantedMigration(TableId(SPEECH), WEST, EAST)], now=0.0)
        )
        await run.follow(until=lambda event: event.event == "table_moved")
        await until(run, lambda migrations: any("still read the copy there" in each.reason for each in migrations))
        assert files_of(tmp_path, "east") == files_of(tmp_path, "west") == CONTENTS
        await run.client.cancel(name)
        await until(run, none_is_left)
        assert files_of(tmp_path, "east") == {}
        assert files_of(tmp_path, "west") == CONTENTS
        assert await table(run) == Table(SPEECH, SIZE, WEST)
        (after,) = await run.submit([replace(reads, name="v", jobs=one_job("v", RANKING, _SHORT).jobs)])
        await run.follow()
        assert {event.region for event in run.events if (event.event, event.workload) == ("started", after)} == {WEST}
        run.check(fleet=FLEET, tables=SMALL_TABLES)

    in_live_service(database_url, tmp_path / "home", scenario, configuration=with_storage(tmp_path))
