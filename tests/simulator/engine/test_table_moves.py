"""Tables move while a simulation runs, as they do in the service."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_placement.catalog import Catalog
from data_placement.links import Links
from domain.fleet import Fleet
from domain.identifiers import GpuModel, RegionId, TableId
from domain.table import Table
from domain.table_partitions import TablePartition, TablePartitions
from formats.problems import FormatError
from formats.trace import TraceRow
from simulator.engine.simulation_input import SimulationInput, check_input
from simulator.inputs.table_moves import TableMoveAt, TableMovesInput, read_table_moves
from simulator.policies.registry import policies
from simulator.results.figures import figures_of
from simulator.results.table_figures import TableFigures
from tests.examples import examples
from tests.simulator.engine.checked_run import V100, CheckedRun, checked_run, machine, region, row, unlimited
from tests.simulator.engine.small_worlds import TABLES, SmallWorld, small_worlds

A100 = GpuModel("A100")
EAST, WEST = RegionId("east"), RegionId("west")
FLEET = Fleet((region("east", [machine("e0", 8, V100)]), region("west", [machine("w0", 8, A100)])))
CLICKS = Table(TableId("clicks"), 1_000, EAST)
SLOW = Links({(EAST, WEST): 10.0, (WEST, EAST): 10.0}, 0.0)
MAST = policies()["mast"]


def reads_clicks(name: str, submit_s: float, duration_s: float, model: GpuModel) -> TraceRow:
    return replace(row(name, submit_s, duration_s), tables=(CLICKS.table,), gpu_model=model)


def run(rows: list[TraceRow], moves: TableMovesInput | None, policy: str = "fifo") -> CheckedRun:
    return checked_run(policies()[policy], rows, FLEET, tables=[CLICKS], table_moves=moves)


def moved(run: CheckedRun) -> list[tuple[object, object, object, object]]:
    events = [event for event in run.log if event["event"] == "table_moved"]
    return [(event["t"], event["region"], event["home"], event["replicas"]) for event in events]


def test_a_workload_gets_the_table_that_it_waits_for() -> None:
    rows = [reads_clicks("w", 50.0, 30.0, A100), row("last", 0.0, 5.0)]
    assert "w" not in {name for name, start_s in run(rows, None).starts().items() if start_s >= 0}
    found = run(rows, TableMovesInput(links=SLOW, on_demand=True))
    assert moved(found) == [(150.0, "west", "east", ["west"])]
    assert found.starts()["w"] == 150.0
    assert [event["on_demand"] for event in found.log if event["event"] == "table_moved"] == [True]
    tables = figures_of(found.record).tables
    assert tables == TableFigures(readers=1, moves=1, moved_bytes=1_000, waited=1, waited_share=1.0, waited_s=100.0)
    never = figures_of(run(rows, None).record).tables
    assert never is not None
    assert (never.moves, never.waited) == (0, 1)
    assert never.waited_s == run(rows, None).record.ended_s - 50.0
    assert figures_of(run(rows[1:], None).record).tables is None


def test_a_table_is_not_copied_to_where_others_wait_for_room() -> None:
    fleet = Fleet(tuple(region(name, [machine(f"{name}0", 8, V100)]) for name in ("east", "west")))
    fleet = Fleet((*fleet.regions, region("north", [machine("n0", 8, A100)])))
    north = RegionId("north")
    tables = [
        Table(CLICKS.table, 1_000, north),
        *(Table(TableId(name), 1, RegionId(name)) for name in ("east", "west")),
    ]
    rows = [
        replace(row(name, submit_s, duration_s), tables=(TableId(table),), gpu_model=V100, gpus=8)
        for name, table, submit_s, duration_s in (
            ("e1", "east", 0.0, 1_000.0),
            ("w1", "west", 0.0, 1_000.0),
            ("e2", "east", 1.0, 10.0),
            ("reader", "clicks", 5.0, 10.0),
        )
    ]
    links = Links({(north, EAST): 10.0, (north, WEST): 10.0}, 0.0)
    found = checked_run(
        policies()["fifo"], rows, fleet, tables=tables, table_moves=TableMovesInput(links=links, on_demand=True)
    )
    assert moved(found) == [(105.0, "west", "north", ["west"])]


def test_requested_moves_happen_at_their_time() -> None:
    rows = [reads_clicks("early", 0.0, 10.0, V100), reads_clicks("late", 400.0, 10.0, A100)]
    found = run(rows, TableMovesInput([TableMoveAt(200.0, CLICKS.table, WEST)], SLOW))
    assert moved(found) == [(300.0, "west", "west", [])]
    assert found.starts() == {"early": 0.0, "late": 400.0}
    # After the move the east has no copy any more: who needs its hardware waits, and another move helps.
    rows.append(reads_clicks("again", 500.0, 10.0, V100))
    found = run(rows, TableMovesInput([TableMoveAt(200.0, CLICKS.table, WEST)], SLOW, on_demand=True))
    assert found.starts()["again"] == 600.0


def test_the_old_copy_stays_while_it_is_read() -> None:
    """The region has room for the table once: it comes back only when what reads it there has ended."""
    rows = [reads_clicks("long", 0.0, 1_000.0, V100), row("last", 0.0, 4_000.0)]
    back = [TableMoveAt(0.0, CLICKS.table, WEST), TableMoveAt(150.0, CLICKS.table, EAST)]
    found = run(rows, TableMovesInput(back, SLOW, {EAST: 1_000.0}))
    (first, *_), (second, *_) = moved(found)
    assert first == 100.0
    assert 1_000.0 <= float(str(second)) <= 1_000.0 + 300.0 + 100.0


def test_two_copies_share_a_link_and_deadlines_go_first() -> None:
    other = Table(TableId("images"), 1_000, EAST)
    moves = [TableMoveAt(0.0, CLICKS.table, WEST, False), TableMoveAt(0.0, other.table, WEST, False, 0, 500.0)]
    rows = [row("last", 0.0, 1_000.0)]
    found = checked_run(
        MAST, rows, FLEET, tables=[CLICKS, other], table_moves=TableMovesInput(moves, SLOW, background_share=0.1)
    )
    times = {event["table"]: event["t"] for event in found.log if event["event"] == "table_moved"}
    assert times == {"images": pytest.approx(1_000 / 9.0), "clicks": pytest.approx(200.0)}


def test_the_rest_of_a_copy_of_partitions_is_all_that_comes_after_it() -> None:
    parts = {CLICKS.table: TablePartitions((TablePartition("new", 300), TablePartition("old", 700)))}
    newest = TableMoveAt(0.0, CLICKS.table, WEST, False, newest_partitions=1)
    rows = [reads_clicks("w", 200.0, 30.0, A100), row("last", 0.0, 5.0)]
    given = TableMovesInput([newest], SLOW, {WEST: 1_000.0}, on_demand=True, partitions=parts)
    found = run(rows, given)
    assert moved(found) == [(30.0, "west", "east", []), (270.0, "west", "east", ["west"])]
    events = [event for event in found.log if event["event"] == "table_moved"]
    assert [(event["bytes"], event.get("newest_partitions")) for event in events] == [(300, 1), (700, None)]
    assert found.starts()["w"] == 270.0


def test_what_is_requested_too_is_made_although_nobody_waits_for_it_any_more() -> None:
    """North is busy at first, and then the better place to wait for."""
    north = RegionId("north")
    fleet = Fleet((*FLEET.regions, region("north", [machine("n0", 8, A100)])))
    tables = [CLICKS, Table(TableId("images"), 1, north)]
    links = Links({(EAST, WEST): 1.0, (EAST, north): 2.0}, 0.0)
    busy = [
        replace(row(name, 0.0, 5.0), tables=(TableId("images"),), gpu_model=A100, gpus=8) for name in ("one", "next")
    ]
    rows = [*busy, reads_clicks("w", 1.0, 30.0, A100), row("last", 0.0, 3_000.0)]

    def copies(*requested: TableMoveAt) -> list[object]:
        given = TableMovesInput(list(requested), links, on_demand=True)
        found = checked_run(policies()["fifo"], rows, fleet, tables=tables, table_moves=given)
        return [event["region"] for event in found.log if event["event"] == "table_moved"]

    faster = TableMoveAt(20.0, CLICKS.table, north, False)
    assert copies(faster) == ["north"]
    assert copies(TableMoveAt(10.0, CLICKS.table, WEST, False), faster) == ["west", "north"]


def test_a_part_of_a_table_is_copied_where_nothing_is_known_of_its_partitions(tmp_path: Path) -> None:
    file = tmp_path / "moves.csv"
    file.write_text("table,target,kind,newest_share\nclicks,west,copy,0.3\n")
    rows = [reads_clicks("w", 200.0, 30.0, A100), row("last", 0.0, 5.0)]
    found = run(rows, TableMovesInput(read_table_moves(file), SLOW, {WEST: 1_000.0}, on_demand=True))
    assert moved(found) == [(30.0, "west", "east", []), (270.0, "west", "east", ["west"])]
    events = [event for event in found.log if event["event"] == "table_moved"]
    assert [(event["bytes"], event.get("newest_partitions")) for event in events] == [(300, 1), (700, None)]


def test_parts_of_tables_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "moves.csv"
    file.write_text(
        "table,target,kind,newest_share,newest_partitions\nclicks,west,home,0.5,\nclicks,west,copy,0,\n"
        "clicks,west,copy,1.5,\nclicks,west,copy,0.5,2\n"
    )
    with pytest.raises(FormatError) as refused:
        read_table_moves(file)
    sentence = "newest_share must be more than 0 and at most 1, of a copy; a home has all partitions"
    assert [f"{problem.field}: {problem.description}" for problem in refused.value.problems] == [
        *(f"line {number}: {sentence}" for number in (2, 3, 4)),
        "line 5: newest_share and newest_partitions say the same; leave one of them empty",
    ]
    rows = [row("w", 0.0, 1.0)]
    moves = TableMovesInput([TableMoveAt(0.0, CLICKS.table, WEST, False, newest_partitions=2)])
    whole = SimulationInput("t", rows, FLEET, unlimited(rows), catalog=Catalog([CLICKS]), table_moves=moves)
    with pytest.raises(FormatError, match="nothing is known of the partitions of clicks; say newest_share"):
        check_input(whole, whole.arrivals())


def test_the_quota_of_the_day_holds() -> None:
    other = Table(TableId("images"), 1_000, EAST)
    moves = [TableMoveAt(0.0, each.table, WEST, False) for each in (CLICKS, other)]
    rows = [row("last", 0.0, 200_000.0)]
    found = checked_run(
        MAST, rows, FLEET, tables=[CLICKS, other], table_moves=TableMovesInput(moves, SLOW, bytes_per_day=1_500.0)
    )
    assert [t for t, *_ in moved(found)] == [100.0, 86_400.0 + 100.0]


def test_an_input_may_be_run_twice() -> None:
    rows = [reads_clicks("w", 0.0, 30.0, A100)]
    moves = TableMovesInput(links=SLOW, on_demand=True)
    assert run(rows, moves).log == run(rows, moves).log


def test_moves_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "moves.csv"
    file.write_text("table,source,target,bytes,kind,t_s\nclicks,east,west,1000,copy,5\nclicks,west,east,1000,,\n")
    assert read_table_moves(file) == (
        TableMoveAt(5.0, CLICKS.table, WEST, False),
        TableMoveAt(0.0, CLICKS.table, EAST, True),
    )
    file.write_text(
        "table,target,kind,t_s\nclicks,,home,\nclicks,west,both,\nclicks,west,home,-1\nclicks,west,home,x\n"
    )
    with pytest.raises(FormatError) as refused:
        read_table_moves(file)
    assert [f"{problem.field}: {problem.description}" for problem in refused.value.problems] == [
        "line 2: target must not be empty",
        "line 3: kind is 'both'; it must be home, home_keeping_copy or copy",
        "line 4: t_s is -1; it must be 0 or more",
        "line 5: t_s is 'x'; it must be a number",
    ]
    file.write_text("target\nwest\n")
    with pytest.raises(FormatError, match="table: is missing"):
        read_table_moves(file)
    rows = [row("w", 0.0, 1.0)]
    for move, sentence in (
        (TableMoveAt(0.0, CLICKS.table, WEST), "clicks does not exist"),
        (TableMoveAt(0.0, CLICKS.table, RegionId("north")), "clicks does not exist"),
    ):
        whole = SimulationInput("t", rows, FLEET, unlimited(rows), table_moves=TableMovesInput([move]))
        with pytest.raises(FormatError, match=sentence):
            check_input(whole, whole.arrivals())


@settings(max_examples=examples(40), deadline=None)
@given(small_worlds(failing=False), st.sampled_from(["mast", "fifo"]), st.data())
def test_never_runs_a_workload_where_its_tables_are_not(world: SmallWorld, policy: str, data: st.DataObject) -> None:
    """The validator follows the moves: see `checked_run`."""
    regions = [each.region for each in world.fleet.regions]
    moves = [
        TableMoveAt(
            data.draw(st.integers(0, 1_000)) * 1.0,
            TableId(data.draw(st.sampled_from(TABLES))),
            data.draw(st.sampled_from(regions)),
            data.draw(st.booleans()),
        )
        for _ in range(data.draw(st.integers(0, 4)))
    ]
    rates = Links(otherwise_bytes_per_s=data.draw(st.sampled_from([0.0, 0.002, 0.1])))
    given_moves = TableMovesInput(moves, rates, on_demand=data.draw(st.booleans()))
    chosen = policies()[policy]
    checked_run(
        chosen,
        world.rows,
        world.fleet,
        world.tenants if chosen.scans else None,
        world.settings,
        tables=world.tables,
        table_moves=given_moves,
    )
