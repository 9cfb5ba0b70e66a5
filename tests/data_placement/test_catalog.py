"""The catalog: which inputs a region lacks, and what a change makes of it."""

import pytest

from data_placement.catalog import Catalog, CatalogChange
from domain.identifiers import RegionId, TableId
from domain.table import Table
from domain.workload import TableInput

EAST, WEST, NORTH = RegionId("east"), RegionId("west"), RegionId("north")
CLICKS, VIEWS = TableId("clicks"), TableId("views")


def catalog() -> Catalog:
    return Catalog([Table(CLICKS, 10**12, home=EAST, replicas=(WEST,)), Table(VIEWS, 10**9, home=WEST)])


def test_a_replica_is_enough_unless_the_input_must_be_fresh() -> None:
    assert catalog().missing_tables(WEST, [TableInput(CLICKS)]) == ()
    assert catalog().missing_tables(WEST, [TableInput(CLICKS, fresh=True)]) == (CLICKS,)
    assert catalog().missing_tables(EAST, [TableInput(CLICKS, fresh=True)]) == ()


def test_every_missing_table_is_named_once_in_the_order_of_the_inputs() -> None:
    inputs = [TableInput(VIEWS), TableInput(CLICKS), TableInput(VIEWS, fresh=True)]
    assert catalog().missing_tables(NORTH, inputs) == (VIEWS, CLICKS)
    assert catalog().missing_tables(EAST, inputs) == (VIEWS,)


def test_a_workload_without_inputs_misses_nothing() -> None:
    assert catalog().missing_tables(NORTH, []) == ()


def test_a_table_that_nobody_registered_is_held_nowhere() -> None:
    unknown = TableInput(TableId("unknown"))
    assert catalog().regions_holding(unknown) == ()
    assert catalog().missing_tables(EAST, [unknown]) == (TableId("unknown"),)


def test_regions_holding_an_input_come_home_first() -> None:
    assert catalog().regions_holding(TableInput(CLICKS)) == (EAST, WEST)
    assert catalog().regions_holding(TableInput(CLICKS, fresh=True)) == (EAST,)


def test_a_recorded_move_replaces_what_was_known() -> None:
    known = catalog()
    known.record(Table(VIEWS, 10**9, home=NORTH, replicas=(NORTH, EAST)))
    assert known.regions_holding(TableInput(VIEWS)) == (NORTH, EAST)
    assert known.missing_tables(WEST, [TableInput(VIEWS)]) == (VIEWS,)


def test_a_forgotten_table_is_held_nowhere() -> None:
    known = catalog()
    known.forget(VIEWS)
    known.forget(VIEWS)
    assert known.table(VIEWS) is None
    assert known.missing_tables(WEST, [TableInput(VIEWS)]) == (VIEWS,)


def test_a_change_is_carried_out_once_and_only_where_it_begins() -> None:
    known = Catalog([Table(CLICKS, 10**12, home=EAST), Table(VIEWS, 10**9, home=WEST)], revision=3)
    change = CatalogChange(2, 5, (Table(CLICKS, 10**12, home=NORTH),), (VIEWS,))
    known.apply(change)
    assert (list(known), known.revision) == ([Table(CLICKS, 10**12, home=NORTH)], 5)
    known.record(Table(VIEWS, 1, home=EAST))
    known.apply(change)
    assert (set(known.names), len(known)) == ({CLICKS, VIEWS}, 2)
    with pytest.raises(ValueError, match="begins at 6"):
        known.apply(CatalogChange(6, 7, (), (CLICKS,)))
    assert (set(known.names), known.revision) == ({CLICKS, VIEWS}, 5)
    with pytest.raises(ValueError, match="from revision 3 to 2"):
        CatalogChange(3, 2)
