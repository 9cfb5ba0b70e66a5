"""The data directory: which inputs a region lacks."""

from data_placement.directory import DataDirectory
from domain.fleet import Table
from domain.identifiers import RegionId, TableId
from domain.workload import TableInput

EAST, WEST, NORTH = RegionId("east"), RegionId("west"), RegionId("north")
CLICKS, VIEWS = TableId("clicks"), TableId("views")


def directory() -> DataDirectory:
    return DataDirectory([Table(CLICKS, 10**12, home=EAST, replicas=(WEST,)), Table(VIEWS, 10**9, home=WEST)])


def test_a_replica_is_enough_unless_the_input_must_be_fresh() -> None:
    assert directory().missing_tables(WEST, [TableInput(CLICKS)]) == ()
    assert directory().missing_tables(WEST, [TableInput(CLICKS, fresh=True)]) == (CLICKS,)
    assert directory().missing_tables(EAST, [TableInput(CLICKS, fresh=True)]) == ()


def test_every_missing_table_is_named_once_in_the_order_of_the_inputs() -> None:
    inputs = [TableInput(VIEWS), TableInput(CLICKS), TableInput(VIEWS, fresh=True)]
    assert directory().missing_tables(NORTH, inputs) == (VIEWS, CLICKS)
    assert directory().missing_tables(EAST, inputs) == (VIEWS,)


def test_a_workload_without_inputs_misses_nothing() -> None:
    assert directory().missing_tables(NORTH, []) == ()


def test_a_table_that_nobody_registered_is_held_nowhere() -> None:
    unknown = TableInput(TableId("unknown"))
    assert directory().regions_holding(unknown) == ()
    assert directory().missing_tables(EAST, [unknown]) == (TableId("unknown"),)


def test_regions_holding_an_input_come_home_first() -> None:
    assert directory().regions_holding(TableInput(CLICKS)) == (EAST, WEST)
    assert directory().regions_holding(TableInput(CLICKS, fresh=True)) == (EAST,)


def test_a_recorded_move_replaces_what_was_known() -> None:
    known = directory()
    known.record(Table(VIEWS, 10**9, home=NORTH, replicas=(NORTH, EAST)))
    assert known.regions_holding(TableInput(VIEWS)) == (NORTH, EAST)
    assert known.missing_tables(WEST, [TableInput(VIEWS)]) == (VIEWS,)


def test_a_forgotten_table_is_held_nowhere() -> None:
    known = directory()
    known.forget(VIEWS)
    known.forget(VIEWS)
    assert known.table(VIEWS) is None
    assert known.missing_tables(WEST, [TableInput(VIEWS)]) == (VIEWS,)
