import numpy as np

from data_placement.communities import communities_of, sampled_graph
from data_placement.objective.goals import V2
from data_placement.objective.problem import problem_of
from data_placement.warehouse_generator import generate_warehouse
from tests.data_placement.warehouses import small_warehouse


def test_communities_are_the_teams_that_read_their_tables_together() -> None:
    warehouse = generate_warehouse(3_000, 5, np.random.default_rng(1))
    team = np.array([int(name[4:7]) for name in warehouse.tables.names])
    community = communities_of(problem_of(warehouse, V2), 1)
    largest = np.flatnonzero(community == 0)
    assert np.bincount(team[largest]).max() > 0.7 * len(largest)
    sizes = np.bincount(community[community >= 0])
    assert len(sizes) > 2
    assert (np.diff(sizes) <= 0).all()


def test_a_table_that_is_read_with_no_other_is_in_no_community() -> None:
    problem = problem_of(small_warehouse(3, tables=30, jobs=8), V2)
    community = communities_of(problem, 1)
    together = np.zeros(30, np.bool_)
    for job in range(8):
        tables = problem.tables[problem.table_start[job] : problem.table_start[job + 1]]
        together[tables] |= len(tables) > 1
    np.testing.assert_array_equal(community >= 0, together)
    np.testing.assert_array_equal(community, communities_of(problem, 1))


def test_never_two_edges_of_one_weight() -> None:
    """Where a table is drawn to two communities alike, rounding decides, and networkx goes back and forth without an end."""
    problem = problem_of(generate_warehouse(3_000, 5, np.random.default_rng(1)), V2)
    alike = problem._replace(gpu_hours=np.zeros_like(problem.gpu_hours))
    graph = sampled_graph(alike)
    weights = [graph.edges[edge]["weight"] for edge in graph.edges]
    assert len(weights) > 100
    assert len(set(weights)) == len(weights)


def test_without_jobs_there_is_no_community() -> None:
    problem = problem_of(small_warehouse(3, tables=5, jobs=1), V2)
    lonely = problem._replace(table_start=np.zeros(2, np.int64), tables=problem.tables[:0])
    assert (communities_of(lonely, 1) == -1).all()
