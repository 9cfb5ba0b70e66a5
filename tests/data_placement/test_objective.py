from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_placement.objective.goals import V1, V2, Goals, School
from data_placement.objective.group_moves import evaluate_group, group_scratch_of
from data_placement.objective.placement_state import AT_HOME, READS, evaluate, move, scratch_of, state_of, total_cost
from data_placement.objective.problem import problem_of
from tests.data_placement.plain_objective import inferred_region, plain_terms
from tests.data_placement.warehouses import small_warehouse


@pytest.mark.parametrize("goals", [V1, V2, Goals(overload_unit_gpu_hours=25.0, priority_weights={0: 3.0})])
@pytest.mark.parametrize("seed", range(12))
def test_the_state_has_the_terms_of_the_formula(seed: int, goals: Goals) -> None:
    warehouse = small_warehouse(seed)
    state = state_of(problem_of(warehouse, goals), warehouse.tables.home)
    home = [int(region) for region in warehouse.tables.home]
    reads, gpu, storage = plain_terms(warehouse, goals, home)
    assert state.sums[READS] == pytest.approx(reads, abs=1e-12)
    assert state.gpu_cell_cost.sum() == pytest.approx(gpu, rel=1e-9, abs=1e-12)
    assert state.storage_cell_cost.sum() == pytest.approx(storage, rel=1e-9, abs=1e-12)
    inferred = [inferred_region(warehouse, home, job) for job in range(warehouse.jobs.count)]
    assert [None if region < 0 else int(region) for region in state.job_region] == inferred


@given(
    st.integers(0, 10_000),
    st.sampled_from([V1, V2]),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 3)), min_size=1, max_size=25),
)
def test_never_is_a_move_worth_something_else_than_the_difference(
    seed: int, goals: Goals, moves: list[tuple[int, int]]
) -> None:
    warehouse = small_warehouse(seed, tables=12, jobs=14, regions=4)
    problem = problem_of(warehouse, goals)
    state, scratch = state_of(problem, warehouse.tables.home), scratch_of(problem)
    for table, target in moves:
        if state.home[table] == target:
            continue
        before = total_cost(state_of(problem, state.home))
        change = evaluate(problem, state, scratch, table, target)
        move(problem, state, scratch, table, target)
        anew = state_of(problem, state.home)
        assert change.reads + change.gpu + change.storage == pytest.approx(total_cost(anew) - before, abs=1e-9)
        for name, kept, made in zip(state._fields, state, anew, strict=True):
            np.testing.assert_allclose(np.asarray(kept), np.asarray(made), rtol=1e-9, atol=1e-9, err_msg=name)


@given(
    st.integers(0, 10_000),
    st.sampled_from([V1, V2]),
    st.dictionaries(st.integers(0, 11), st.integers(0, 3), min_size=1, max_size=8),
)
def test_never_is_a_group_worth_something_else_than_its_moves_together(
    seed: int, goals: Goals, moves: dict[int, int]
) -> None:
    warehouse = small_warehouse(seed, tables=12, jobs=14, regions=4)
    problem = problem_of(warehouse, replace(goals, storage=School.SOFT_BALANCE))
    state, scratch = state_of(problem, warehouse.tables.home), scratch_of(problem)
    tables, targets = np.array(list(moves), np.int32), np.array(list(moves.values()), np.int32)
    home = state.home.copy()
    home[tables] = targets
    after = state_of(problem, home)
    change = evaluate_group(problem, state, scratch, group_scratch_of(problem), tables, targets)
    assert change.reads + change.gpu + change.storage == pytest.approx(total_cost(after) - total_cost(state), abs=1e-9)
    assert change.at_home == pytest.approx(after.sums[AT_HOME] - state.sums[AT_HOME], abs=1e-9)
    table, target = tables[0], targets[0]
    if state.home[table] != target:
        group = group_scratch_of(problem)
        alone = evaluate_group(problem, state, scratch, group, tables[:1], targets[:1])
        assert alone == pytest.approx(evaluate(problem, state, scratch, table, target), abs=1e-12)
        assert not any(
            np.asarray(column).any() for column in (group.slot_of_job, group.tables, group.bytes, group.stored)
        )


def test_without_overload_the_sigmoid_is_a_half() -> None:
    """ "Without overload, Expression 8 is a constant, sigmoid(0) = 0.5." (MAST §3.3)"""
    warehouse = small_warehouse(3)
    plenty = 1e6 * (1.0 + np.arange(6.0).reshape(2, 3))
    object.__setattr__(warehouse.regions, "gpu_hours", plenty)
    halved = state_of(problem_of(warehouse, V2), warehouse.tables.home).gpu_cell_cost.sum()
    whole = state_of(problem_of(warehouse, V1), warehouse.tables.home).gpu_cell_cost.sum()
    assert whole > 0
    assert halved == pytest.approx(whole / 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cross_region_reads", -1.0),
        ("gpu_balance", float("nan")),
        ("home_training_share", 1.5),
        ("overload_unit_gpu_hours", 0.0),
    ],
)
def test_goals_that_make_no_sense_name_the_field(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        Goals(**{field: value})  # type: ignore[arg-type]  # the names are the fields'
