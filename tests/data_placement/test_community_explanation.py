"""Communities are described as their tables, jobs and homes are, and every table's sentence names its own."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data_placement.community_explanation import Communities, describe_communities
from data_placement.plan_choices import PlanChoices, plan_by_choices
from data_placement.plan_document import figures_document, proposed_moves
from data_placement.warehouse_generator import generate_warehouse
from domain.warehouse import Indices, Warehouse
from tests.data_placement.warehouses import small_warehouse
from tests.examples import examples


def _bound_one_by_one(warehouse: Warehouse, label: Indices, number: int) -> list[int]:
    jobs = warehouse.jobs
    bound = [
        job
        for job in range(jobs.count)
        if (label[jobs.tables[jobs.table_start[job] : jobs.table_start[job + 1]]] == number).sum() >= 2
    ]
    return sorted(bound, key=lambda job: (-jobs.gpu_hours[job], job))


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(0, 10_000), st.lists(st.integers(-1, 3), min_size=12, max_size=12), st.data())
def test_never_differs_from_what_counting_one_by_one_says(seed: int, numbers: list[int], data: st.DataObject) -> None:
    warehouse = small_warehouse(seed, tables=12, jobs=8)
    # Numbers from 0 without gaps, as communities have them.
    present = sorted({number for number in numbers if number >= 0})
    label = np.array([present.index(number) if number >= 0 else -1 for number in numbers], np.int32)
    regions = warehouse.regions.count
    after = np.array(data.draw(st.lists(st.integers(0, regions - 1), min_size=12, max_size=12)), np.int32)
    found = describe_communities(warehouse, label, after)
    assert len(found.described) == len(present)
    assert len({community.name for community in found.described}) == len(found.described)
    for number, community in enumerate(found.described):
        own = np.flatnonzero(label == number)
        assert community.tables == len(own)
        assert community.bytes == int(warehouse.tables.size_bytes[own].sum())
        largest = sorted(own.tolist(), key=lambda table: (-warehouse.tables.size_bytes[table], table))[:5]
        assert community.largest_tables == tuple(warehouse.tables.names[table] for table in largest)
        bound = _bound_one_by_one(warehouse, label, number)
        assert community.jobs == len(bound)
        assert community.strongest_jobs == tuple(warehouse.jobs.names[job] for job in bound[:3])
        for shares, home in ((community.before, warehouse.tables.home), (community.after, after)):
            assert {share.region for share in shares} == {warehouse.regions.names[place] for place in home[own]}
            assert abs(sum(share.share for share in shares) - 1.0) < 1e-9
            assert [share.share for share in shares] == sorted([share.share for share in shares], reverse=True)
        assert community.name in community.sentence
    for table in range(12):
        community_of_table = found.of(table)
        assert (community_of_table is None) == (label[table] < 0)


def test_tables_without_bytes_are_somewhere_too() -> None:
    warehouse = small_warehouse(3, tables=6, jobs=4)
    empty = replace(warehouse, tables=replace(warehouse.tables, size_bytes=np.zeros(6, np.int64)))
    found = describe_communities(empty, np.zeros(6, np.int32))
    assert found.described[0].bytes == 0
    assert abs(sum(share.share for share in found.described[0].before) - 1.0) < 1e-9
    assert found.clause(0)


def test_nothing_belongs_together_where_nobody_reads() -> None:
    nothing = Communities()
    assert (nothing.of(5), nothing.clause(5)) == (None, "")


def test_a_plan_names_the_communities_of_what_it_moves_and_always_the_same() -> None:
    warehouse = generate_warehouse(600, 4, np.random.default_rng(2))
    choices = PlanChoices()
    found = plan_by_choices(warehouse, choices, np.random.default_rng(1))
    again = plan_by_choices(warehouse, choices, np.random.default_rng(1))
    assert found.communities.described == again.communities.described
    names = {community.name for community in found.communities.described}
    moves = list(proposed_moves(warehouse, found))
    named = [move for move in moves if " of community " in move.reason]
    assert named
    place = {name: table for table, name in enumerate(warehouse.tables.names)}
    for move in named:
        community = found.communities.of(place[move.table])
        assert community is not None
        assert community.name in names
        assert f"one of the {community.tables:,} tables of community {community.name}, " in move.reason
    figures = figures_document(warehouse, found, choices, 1.0, 1.0)
    shown = figures["communities"]
    assert isinstance(shown, list)
    assert [one["name"] for one in shown] == [one.name for one in found.communities.described[:10]]


def test_a_search_explains_its_plan_by_the_communities_that_seeded_it() -> None:
    warehouse = generate_warehouse(100, 3, np.random.default_rng(2))
    found = plan_by_choices(
        warehouse, PlanChoices(solver="late_acceptance", time_limit_s=0.5), np.random.default_rng(1)
    )
    assert found.solution.communities is not None
    np.testing.assert_array_equal(found.communities.of_table, found.solution.communities)
