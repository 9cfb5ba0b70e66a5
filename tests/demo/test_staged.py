"""What the demo stages acts in every run: its fleet, its configuration and its warehouse, on all tiers in one process."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from domain.table import Table
from services.configuration import load_configuration
from services.database.engine import Database
from services.database.sensitivity_store import store_profiles
from services.demo.mechanisms import mechanisms_of
from services.demo.stage import Stage, make_stage
from services.demo.staged_workloads import all_staged
from services.demo.warehouse import FAR_TABLE, WarehousePlan, checked_copies
from services.runtime.in_process import run_in_process
from simulator.validate import validate
from topmast import Client

CLOCK_SPEED = 400.0
PATIENCE_REAL_S = 240.0
"""A guard against hangs, not a measure of speed."""
LOOK_EVERY_REAL_S = 0.2

pytestmark = pytest.mark.live


class Play:
    """The staged part of a run, on a service in this process."""

    def __init__(self, client: Client, stage: Stage) -> None:
        self.client = client
        self.stage = stage
        self.staged = all_staged(client, CLOCK_SPEED)
        self.plan = WarehousePlan(client.address)

    def begin(self) -> None:
        self.client.data.import_folder(self.stage.warehouse.catalog)

    def go_on(self) -> None:
        """Until it is over."""
        deadline_s = time.monotonic() + PATIENCE_REAL_S
        while not self.over():
            assert time.monotonic() < deadline_s, self.client.status()
            time.sleep(LOOK_EVERY_REAL_S)

    def over(self) -> bool:
        """Submits what is due; whether all has ended, and no table is on its way."""
        for each in self.staged:
            each.step()
        if not all(each.done for each in self.staged):
            return False
        self.plan.begin()
        ended = self.client.status().workloads.get("COMPLETED", 0)
        moving = any(move.ended_s is None for move in self.client.data.moves(limit=200))
        return self.plan.applied is not None and not moving and ended == sum(each.total for each in self.staged)

    def check(self) -> None:
        log = [event.as_json() for event in self.client.events()]
        acted = mechanisms_of(log)
        assert {
            "jobs moved together",
            "CPUs retuned",
            "tables moved",
            "cells bound",
            "machines lent",
        } <= acted.keys(), acted
        tables: tuple[Table, ...] = self.stage.warehouse.tables
        report = validate(
            log, self.stage.fleet, self.stage.tenants, tables=tables, complete=True, profiles=self.stage.profiles
        )
        assert report.violations == 0, str(report)
        # The reader waited for its copy; the plan moved other tables besides.
        kinds = [(str(event["event"]), event.get("table"), event.get("on_demand")) for event in log]
        copied = kinds.index(("table_moved", FAR_TABLE, True))
        assert kinds.index(("awaiting_data", None, None)) < copied
        assert any(kind == "table_moved" and not on_demand for kind, _, on_demand in kinds)
        moved = [int(str(event["bytes"])) for event in log if event["event"] == "table_moved"]
        found = checked_copies(self.stage.warehouse, self.stage.storage, self.client.data.tables(), moved)
        assert (found.wrong, found.moves, found.bytes > 0) == ((), len(moved), True)
        copies = sum(len(table.regions) for table in tables)
        assert found.files > copies, "there are more copies than in the beginning"


def test_jobs_move_together_cpus_are_retuned_cells_bound_and_tables_moved(database_url: str, tmp_path: Path) -> None:
    stage = make_stage(tmp_path)
    configuration = load_configuration(stage.configuration_file)

    async def run() -> None:
        async with (
            run_in_process(
                database_url,
                stage.fleet,
                stage.tenants,
                tmp_path,
                configuration=configuration,
                clock_speed=CLOCK_SPEED,
                tables=stage.warehouse.tables,
            ) as service,
            Database(database_url) as database,
        ):
            async with database.transaction() as connection:
                await store_profiles(connection, stage.profiles)
            with Client(service.address) as client:
                play = Play(client, stage)
                await asyncio.to_thread(play.begin)
                await asyncio.to_thread(play.go_on)
                await asyncio.to_thread(play.check)

    asyncio.run(run())
