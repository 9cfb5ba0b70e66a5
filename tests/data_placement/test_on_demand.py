"""Which tables are copied where for workloads that wait for data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from hypothesis import given, settings
from hypothesis import strategies as st

from data_placement.catalog import Catalog
from data_placement.expected_waits import MEAN_RUN_S, expected_wait_s, expected_waits_s
from data_placement.links import Links
from data_placement.migrations.life_cycle import MigrationState
from data_placement.migrations.migration import Migration
from data_placement.on_demand import (
    AwaitingWorkload,
    Choice,
    Chosen,
    DataSurroundings,
    NotChosen,
    PossibleRegion,
    choose_copies,
    on_the_way,
    wanted_by,
)
from domain.identifiers import RegionId, TableId, WorkloadId
from domain.table import Table
from domain.workload import TableInput
from tests.examples import examples

A, B, C = map(RegionId, "abc")
LINKS = Links({(A, B): 10.0, (A, C): 20.0, (C, B): 10.0, (B, C): 10.0}, 0.0)
TABLES = [Table(TableId("t"), 1_000, A), Table(TableId("u"), 500, B)]


def around(
    *migrations: Migration, free: dict[RegionId, float] | None = None, tables: list[Table] | None = None
) -> DataSurroundings:
    catalog = Catalog(TABLES if tables is None else tables)
    return DataSurroundings(
        100.0, catalog.table, catalog.regions_holding, (A, B, C), LINKS, free or {}, on_the_way(migrations)
    )


def awaiting(
    name: str, *tables: str, fresh: bool = False, waits: Mapping[str, float] = MappingProxyType({})
) -> AwaitingWorkload:
    """`waits`: the regions that could run it, and after how many seconds."""
    inputs = tuple(TableInput(TableId(table), fresh) for table in tables)
    possible = tuple(PossibleRegion(RegionId(region), wait_s) for region, wait_s in waits.items())
    return AwaitingWorkload(WorkloadId(name), 1, inputs, possible)


def test_the_region_where_it_starts_first() -> None:
    (choice,) = choose_copies([awaiting("w", "t", waits={"b": 0.0, "c": 0.0})], around())
    assert isinstance(choice, Chosen)
    assert (choice.region, choice.start_in_s) == (C, 50.0)
    assert [(copy.table, copy.target, copy.deadline_s) for copy in choice.copies] == [("t", C, 100.0 + 3_600.0)]
    (choice,) = choose_copies([awaiting("w", "t", waits={"b": 0.0, "c": 60.0})], around())
    assert isinstance(choice, Chosen)
    assert choice.region == B


def test_where_copies_have_just_failed_none_is_made_again() -> None:
    broken = replace(around(), refused=lambda table, region: f"{table} to {region} failed" if region == C else "")
    (choice,) = choose_copies([awaiting("w", "t", waits={"b": 0.0, "c": 0.0})], broken)
    assert isinstance(choice, Chosen)
    assert choice.region == B
    (choice,) = choose_copies([awaiting("w", "t", waits={"c": 0.0})], broken)
    assert isinstance(choice, NotChosen)
    assert choice.reason == "t to c failed"


def test_a_copy_that_is_too_old_is_copied_anew_from_one_that_has_everything() -> None:
    table = Table(TableId("t"), 1_000, A, (B, C), ((B, 9.0), (C, 90.0)))
    inputs = (TableInput(table.table, max_age_s=60.0),)
    waiting = AwaitingWorkload(WorkloadId("w"), 1, inputs, (PossibleRegion(C),))
    (choice,) = choose_copies([waiting], around(tables=[table]))
    assert isinstance(choice, Chosen)
    assert (choice.tables, choice.start_in_s) == ((table.table,), 50.0)
    waiting = replace(waiting, regions=(PossibleRegion(B), PossibleRegion(C)))
    (choice,) = choose_copies([waiting], around(tables=[table]))
    assert isinstance(choice, Chosen)
    assert (choice.region, choice.copies) == (B, ())


def test_one_copy_serves_all_that_wait_for_it() -> None:
    first, second = choose_copies(
        [awaiting("v", "t", waits={"c": 0.0}), awaiting("w", "t", waits={"b": 0.0, "c": 40.0})], around()
    )
    assert isinstance(first, Chosen)
    assert isinstance(second, Chosen)
    assert second.region == C
    assert second.tables == (TableId("t"),)
    assert not second.copies
    assert wanted_by([first, second]) == {("t", C)}


def test_ten_thousand_that_wait_for_one_table_get_one_copy_and_cost_no_more_each_than_a_few() -> None:
    """The route is searched once for each region, and what is asked of the catalog grows with their number alone."""
    asked: list[TableId] = []
    there = around()

    def counted(table: TableId) -> Table | None:
        asked.append(table)
        return there.table(table)

    def choices_of(count: int) -> list[Choice]:
        asked.clear()
        waiting = [awaiting(f"w{place:05d}", "t", waits={"b": 0.0, "c": 0.0}) for place in range(count)]
        return choose_copies(waiting, replace(there, table=counted))

    few, asked_by_few = choices_of(10), len(asked)
    many, asked_by_many = choices_of(10_000), len(asked)
    for choices in (few, many):
        assert all(isinstance(choice, Chosen) and choice.region == C for choice in choices)
        assert sum(len(choice.copies) for choice in choices if isinstance(choice, Chosen)) == 1
        assert wanted_by(choices) == {("t", C)}
    assert asked_by_many == 1_000 * asked_by_few


def test_a_choice_stays_once_its_copies_are_under_way() -> None:
    under_way = Migration(1, TableId("t"), 1_000, B, None, on_demand=True, state=MigrationState.COPYING)
    (choice,) = choose_copies([awaiting("w", "t", waits={"b": 0.0, "c": 0.0})], around(under_way))
    assert isinstance(choice, Chosen)
    assert (choice.region, choice.copies) == (B, ())


def test_why_nothing_is_copied() -> None:
    cases = {
        "table x is not in the catalog": awaiting("w", "x", waits={"b": 0.0}),
        "no region could run it, wherever its tables were": awaiting("w", "t"),
        "t must be fresh, and its home is a, not b": awaiting("w", "t", fresh=True, waits={"b": 0.0}),
        "no link with any bandwidth leads from b to a": awaiting("w", "u", waits={"a": 0.0}),
    }
    for reason, workload in cases.items():
        assert choose_copies([workload], around()) == [NotChosen(WorkloadId("w"), reason)]
    (choice,) = choose_copies([awaiting("w", "t", waits={"b": 0.0})], around(free={B: 999.0}))
    assert choice == NotChosen(WorkloadId("w"), "b has no room for 1000 bytes more")


def test_planned_copies_keep_their_room() -> None:
    planned = Migration(1, TableId("u"), 500, C, None)
    (choice,) = choose_copies([awaiting("w", "t", waits={"c": 0.0})], around(planned, free={C: 1_200.0}))
    assert isinstance(choice, NotChosen)


def test_how_long_hardware_is_waited_for() -> None:
    assert expected_wait_s(5.0, 10.0, 100.0) == 0.0
    assert expected_wait_s(15.0, 10.0, 100.0) == 50.0
    assert expected_wait_s(1.0, 0.0, 100.0) == math.inf
    assert expected_wait_s(0.0, 0.0, 100.0) == 0.0


def test_what_waits_for_room_counts_in_equal_parts_where_it_could_run() -> None:
    waits = expected_waits_s({A: 8, B: 8, C: 0}, {A: 8, C: 1}, [((A, B), 8), ((B,), 8), ((), 8)])
    assert waits == {A: 0.5 * MEAN_RUN_S, B: 0.5 * MEAN_RUN_S, C: math.inf}


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_never_a_worse_region_or_more_than_there_is_room_for(data: st.DataObject) -> None:
    """A workload alone against all regions, and several together against the room that there is."""
    tables = [
        Table(TableId(f"t{index}"), data.draw(st.integers(0, 900)), data.draw(st.sampled_from((A, B, C))))
        for index in range(3)
    ]
    free = {region: data.draw(st.integers(0, 2_000)) * 1.0 for region in (B, C)}
    there = around(free=free, tables=tables)
    waiting = [
        awaiting(
            f"w{index}",
            *sorted(data.draw(st.sets(st.sampled_from(["t0", "t1", "t2"]), min_size=1))),
            waits={region: data.draw(st.integers(0, 50)) * 1.0 for region in "abc" if data.draw(st.booleans())},
        )
        for index in range(3)
    ]
    alone = choose_copies(waiting[:1], there)[0]
    single = [
        choose_copies([AwaitingWorkload(waiting[0].workload, 1, waiting[0].inputs, (possible,))], there)[0]
        for possible in waiting[0].regions
    ]
    starts = [choice.start_in_s for choice in single if isinstance(choice, Chosen) and choice.copies]
    if isinstance(alone, Chosen) and alone.copies:
        assert alone.start_in_s == min(starts)
    choices = choose_copies(waiting, there)
    assert choices == choose_copies(waiting, there)
    copies = list(itertools.chain.from_iterable(each.copies for each in choices if isinstance(each, Chosen)))
    assert len({(copy.table, copy.target) for copy in copies}) == len(copies)
    for region, left in free.items():
        assert sum(copy.size_bytes for copy in copies if copy.target == region) <= left


def test_ten_thousand_workloads_want_one_copy() -> None:
    """Looked at a few hundred at a time, whatever has become of the copy in between."""
    waiting = [awaiting(f"w{number}", "t", waits={"b": number % 3, "c": number % 5}) for number in range(10_000)]
    choices = choose_copies(waiting, around())
    first, *others = [each for each in choices if isinstance(each, Chosen)]
    assert len(others) == 9_999
    assert len(first.copies) == 1
    assert {(each.region, each.copies) for each in others} == {(first.region, ())}
    under_way = Migration(1, TableId("t"), 1_000, first.region, None, on_demand=True)
    for begin in range(0, 10_000, 500):
        for state in (MigrationState.PLANNED, MigrationState.COPYING, MigrationState.FAILED, MigrationState.VERIFYING):
            found = choose_copies(waiting[begin : begin + 500], around(replace(under_way, state=state)))
            assert wanted_by(found) == {(TableId("t"), first.region)}
            assert not any(each.copies for each in found if isinstance(each, Chosen))
