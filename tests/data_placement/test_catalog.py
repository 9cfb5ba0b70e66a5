"""The catalog: which inputs a region lacks."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from data_placement.catalog import Catalog
from domain.identifiers import RegionId, TableId
from domain.table import NO_NAMESPACE, Table, namespace_of
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


def test_a_copy_that_is_too_far_behind_does_not_do() -> None:
    behind = Table(CLICKS, 10**12, home=EAST, replicas=(NORTH, WEST), lags_s=((NORTH, 3600.0), (WEST, inf)))
    known = Catalog([behind])
    assert known.regions_holding(TableInput(CLICKS)) == (EAST, NORTH, WEST)
    assert known.regions_holding(TableInput(CLICKS, max_age_s=3600.0)) == (EAST, NORTH)
    assert known.regions_holding(TableInput(CLICKS, max_age_s=0.0)) == (EAST,)
    assert known.table(CLICKS) == behind
    known.record(Table(CLICKS, 10**12, home=EAST, replicas=(NORTH, WEST)))
    assert known.regions_holding(TableInput(CLICKS, max_age_s=0.0)) == (EAST, NORTH, WEST)


def test_the_namespace_of_a_table_is_what_stands_before_the_first_dot() -> None:
    assert namespace_of(TableId("ads.clicks.daily")) == "ads"
    assert namespace_of(CLICKS) == NO_NAMESPACE


_REGIONS = st.sampled_from((EAST, WEST, NORTH))
_STEPS = st.lists(
    st.tuples(
        st.sampled_from([TableId(f"t{number}") for number in range(6)]),
        st.none() | st.tuples(_REGIONS, st.lists(_REGIONS, max_size=3), st.dictionaries(_REGIONS, st.floats(1, 9))),
    ),
    max_size=30,
)


@given(steps=_STEPS, bound_s=st.none() | st.floats(0, 10))
def test_never_answers_otherwise_than_the_tables_themselves(
    steps: list[tuple[TableId, tuple[RegionId, list[RegionId], dict[RegionId, float]] | None]], bound_s: float | None
) -> None:
    """Whatever was recorded, replaced and forgotten, in whichever order."""
    known, tables = Catalog(), dict[TableId, Table]()
    for name, placed in steps:
        if placed is None:
            known.forget(name)
            tables.pop(name, None)
        else:
            home, replicas, lags = placed
            tables[name] = Table(name, len(lags), home, tuple(replicas), tuple(sorted(lags.items())))
            known.record(tables[name])
    assert list(known) == [tables[name] for name in sorted(tables)]
    assert (len(known), sorted(known.names)) == (len(tables), sorted(tables))
    for name in {name for name, _ in steps}:
        table = tables.get(name)
        assert (name in known.names) is (table is not None)
        assert known.table(name) == table
        assert known.regions_holding(TableInput(name)) == (() if table is None else table.regions)
        assert known.regions_holding(TableInput(name, fresh=True)) == (() if table is None else (table.home,))
        within = () if table is None else table.regions if bound_s is None else table.regions_within(bound_s)
        assert known.regions_holding(TableInput(name, max_age_s=bound_s)) == within
