"""Data placement as clients see it: a folder in, tables, a plan, its moves, and the folder out again."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from data_placement.warehouse_generator import generate_warehouse
from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId, RegionId
from formats.warehouse_folder import read_warehouse, write_warehouse
from services.configuration import Configuration
from services.data_placement import planner
from services.data_placement.settings import DataSettings
from services.runtime.in_process import run_in_process
from topmast import AsyncClient
from topmast.errors import InvalidArgumentError, NotFoundError, TopmastError
from topmast.warehouses import PlacementChoices, PlacementPlan


def _fleet(regions: int) -> Fleet:
    return Fleet(
        tuple(
            Region(
                RegionId(f"region{place:02d}"),
                (
                    Cluster(
                        ClusterId(f"c{place}"),
                        (
                            Rack(
                                RackId(f"r{place}"),
                                (Machine(MachineId(f"m{place}"), GpuModel("A100"), 8, 64.0, 512.0),),
                            ),
                        ),
                    ),
                ),
            )
            for place in range(regions)
        )
    )


_EMULATED = Configuration(data=DataSettings(emulated=True))


async def _plan(client: AsyncClient, choices: PlacementChoices | None = None) -> PlacementPlan:
    result = None
    async for progress in client.data.make_plan(choices):
        result = progress.result
    assert result is not None
    return result


def test_a_warehouse_is_imported_planned_applied_and_exported(database_url: str, tmp_path: Path) -> None:
    warehouse = generate_warehouse(400, 3, np.random.default_rng(1))
    write_warehouse(tmp_path / "in", warehouse)

    async def scenario() -> None:
        async with (
            run_in_process(database_url, _fleet(3), (), tmp_path, configuration=_EMULATED) as service,
            AsyncClient(service.address) as client,
        ):
            data = client.data
            tried = await data.import_folder(tmp_path / "in", dry_run=True)
            assert (tried.tables, tried.new_tables) == (400, 400)
            assert [table async for table in data.tables()] == []
            imported = await data.import_folder(tmp_path / "in")
            assert (imported.new_tables, imported.reads) == (400, len(warehouse.jobs.tables))
            tables = [table async for table in data.tables()]
            assert [table.table for table in tables] == sorted(warehouse.tables.names)
            assert [table async for table in data.tables(limit=3)] == tables[:3]
            space = tables[200].namespace
            assert {table.namespace async for table in data.tables(namespace=space)} == {space}
            assert {table.home async for table in data.tables(region="region01")} == {"region01"}
            plan = await _plan(client)
            assert (plan.state, plan.problem) == ("ready", "")
            assert plan.figures["tables"] == 400
            assert plan.all_moves > 0
            assert len(plan.moves) == min(100, plan.all_moves)
            moved = plan.moves[0]
            explained = await data.explain(moved.table)
            assert explained.proposed[0] == moved
            assert explained.all_readers >= len(explained.readers) > 0
            applied = await data.apply_plan()
            assert (applied.plan, applied.moves, applied.passed_over) == (plan.plan, plan.all_moves, 0)
            assert await data.apply_plan(plan.plan) == applied, "the first answer may have been lost"
            assert await data.apply_plan() == applied
            assert len(await data.moves(limit=1_000)) == applied.moves
            shown = plan.figures["communities"]
            assert isinstance(shown, list)
            assert explained.community is not None
            assert explained.community.plan == plan.plan
            assert explained.community.tables >= 2
            assert f"community {explained.community.name}," in moved.reason
            assert explained.community.sentence in {one["sentence"] for one in shown} | {explained.community.sentence}
            assert sum(explained.community.after.values()) == pytest.approx(1.0)
            assert {move.table for move in (await data.explain(moved.table)).moves} == {moved.table}
            await data.export_folder(tmp_path / "out")

    asyncio.run(scenario())
    again = read_warehouse(tmp_path / "out")
    assert sorted(again.tables.names) == sorted(warehouse.tables.names)
    assert again.tables.size_bytes.sum() == warehouse.tables.size_bytes.sum()
    assert (again.jobs.count, len(again.jobs.tables)) == (warehouse.jobs.count, len(warehouse.jobs.tables))


def test_what_makes_no_sense_is_refused_with_its_field(database_url: str, tmp_path: Path) -> None:
    warehouse = generate_warehouse(60, 3, np.random.default_rng(1))
    write_warehouse(tmp_path / "in", warehouse)

    async def scenario() -> None:
        async with (
            run_in_process(database_url, _fleet(2), (), tmp_path) as service,
            AsyncClient(service.address) as client,
        ):
            data = client.data
            with pytest.raises(InvalidArgumentError, match="the fleet has no region 'region02'"):
                await data.import_folder(tmp_path / "in")
            assert [table async for table in data.tables()] == []
            with pytest.raises(NotFoundError, match="there is no table 'nothing'"):
                await data.explain("nothing")
            with pytest.raises(NotFoundError, match=r"there is no region 'mars'; known: region00, region01"):
                assert [table async for table in data.tables(region="mars")]
            assert [table async for table in data.tables(region="region01")] == []
            with pytest.raises(InvalidArgumentError, match=r"namespace.* has a NUL character"):
                assert [table async for table in data.tables(namespace="a\0b")]
            with pytest.raises(InvalidArgumentError, match=r"table.* has a NUL character"):
                await data.explain("a\0b")
            with pytest.raises(InvalidArgumentError, match=r"state.* has a NUL character"):
                await data.moves(state="a\0b")
            with pytest.raises(TopmastError, match=r"solver.* must be one of hill_climbing"):
                await _plan(client, PlacementChoices(solver="guess"))
            with pytest.raises(NotFoundError, match=r"there is no plan; topmast data plan --live makes one"):
                await data.apply_plan()
            assert (await _plan(client)).all_moves == 0, "regions without a declared storage have room for everything"
            ready = await data.plan()
            failed = await _plan(client, PlacementChoices(spare_gpu_shares={"mars": 0.5}))
            assert failed.problem == (
                "the plan's settings: spare_gpu_shares[0].region: there is no region mars; known: region00, region01"
            )
            assert (await data.plan()).plan == ready.plan < failed.plan, "what cannot be made takes no plan's place"
            nothing_moves = (
                f"plan {ready.plan} would move nothing: scheduler.yaml says neither where regions store tables"
                r" \(data.regions\) nor that copies are emulated \(data.emulated: true\)"
            )
            with pytest.raises(TopmastError, match=nothing_moves):
                await data.apply_plan()
            assert (await data.plan()).state == "ready"
            with pytest.raises(TopmastError, match=f"plan {failed.plan} could not be made"):
                await data.apply_plan(failed.plan)
            with pytest.raises(TopmastError, match=r"links\[0\].bytes_per_day"):
                await data.declare_capacity(link_bytes_per_day={("region00", "region01"): -1.0})
            with pytest.raises(TopmastError, match=r"regions\[0\].region"):
                await data.declare_capacity({"mars": 5})
            await data.declare_capacity({"region00": 5}, {("region00", "region01"): 0.0})

    asyncio.run(scenario())


def test_a_plan_is_made_each_day_and_applied_by_itself_where_that_is_set(database_url: str, tmp_path: Path) -> None:
    write_warehouse(tmp_path / "in", generate_warehouse(60, 3, np.random.default_rng(1)))
    configuration = Configuration(data=DataSettings(daily_at="02:30", apply="automatic", emulated=True))

    async def scenario() -> PlacementPlan:
        running = run_in_process(
            database_url, _fleet(3), (), tmp_path, configuration=configuration, clock_speed=10_000.0
        )
        async with running as service, AsyncClient(service.address) as client:
            await client.data.import_folder(tmp_path / "in")
            async with asyncio.timeout(60.0):
                while True:
                    try:
                        plan = await client.data.plan()
                    except NotFoundError:
                        plan = None
                    if plan is not None and plan.state == "applied":
                        return plan
                    await asyncio.sleep(0.1)

    plan = asyncio.run(scenario())
    assert plan.applied_s is not None
    assert plan.asked_s % 86_400.0 >= 2.5 * 3600.0


def test_a_plan_that_is_not_ready_in_time_is_ended_and_the_next_one_is_made(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_warehouse(tmp_path / "in", generate_warehouse(60, 3, np.random.default_rng(1)))
    monkeypatch.setattr(planner, "LONGEST_PLAN_REAL_S", 0.001)

    async def scenario() -> None:
        running = run_in_process(database_url, _fleet(3), (), tmp_path)
        async with running as service, AsyncClient(service.address) as client:
            await client.data.import_folder(tmp_path / "in")
            plan = await _plan(client)
            assert (plan.state, plan.all_moves) == ("failed", 0)
            assert plan.problem == "it was not ready after 0.001 s, and was ended; set a time limit for the solver"
            plan = await _plan(client, PlacementChoices(time_limit_s=30.0))
            assert (plan.state, plan.problem) == ("ready", "")
            with pytest.raises(InvalidArgumentError, match=r"settings\.time_limit_s"):
                await _plan(client, PlacementChoices(time_limit_s=1e9))

    asyncio.run(scenario())
