"""What a plan of the service is made from: the catalog, and what regions really have room for."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from data_placement.plan_choices import PlanChoices
from domain.fleet import Fleet, Region
from domain.identifiers import GpuModel, RegionId, TableId
from domain.table import Table
from services.data_placement.planning import PlanRequest, make_plan
from services.database import catalog_store, fleet_store, plan_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from tests.live.world import gpu_cluster

A, B = RegionId("a"), RegionId("b")
X, Y = TableId("x"), TableId("y")
FLEET = Fleet(tuple(Region(region, (gpu_cluster(f"{region}-gpus", GpuModel("A100"), 1),)) for region in (A, B)))


@pytest.mark.parametrize(("held_bytes", "copied"), [(10, [X]), (30, [])])
def test_partitions_that_a_region_holds_alone_leave_a_plan_less_room(
    database_url: str, held_bytes: int, copied: list[TableId]
) -> None:
    """Both tables should have a copy in b: y is larger than b, and x fits beside the smaller one of y's partitions alone."""

    async def fill(connection: AnyConnection) -> int:
        await fleet_store.apply_fleet(connection, FLEET)
        await catalog_store.apply_tables(connection, (Table(X, 40, A), Table(Y, 100, A)))
        await connection.execute("INSERT INTO data_regions VALUES ('a', 1000), ('b', 60)")
        await connection.execute(
            """INSERT INTO data_partitions (data_table, partition, size_bytes, created_s)
               VALUES ('y', 'p1', %s, 1), ('y', 'p2', %s, 2)""",
            (100 - held_bytes, held_bytes),
        )
        await connection.execute("UPDATE data_tables SET last_partition_s = 2 WHERE data_table = 'y'")
        await connection.execute(
            "INSERT INTO data_partition_copies (data_table, region, partition, copied_s) VALUES ('y', 'b', 'p2', 3)"
        )
        return await plan_store.begin_plan(connection, {}, 5.0)

    async def scenario() -> None:
        async with Database(database_url) as database:
            plan = await database.run(fill)
            await asyncio.to_thread(make_plan, PlanRequest(database_url, plan, PlanChoices(), 7))
            moves = await database.run(partial(plan_store.load_moves, plan=plan, after=-1, limit=10), snapshot=True)
            stored = await database.run(partial(plan_store.load_plan, plan=plan), snapshot=True)
            assert stored is not None
            assert (stored.state, stored.problem) == (plan_store.PlanState.READY, "")
            assert [move.table for move in moves] == copied

    asyncio.run(scenario())
