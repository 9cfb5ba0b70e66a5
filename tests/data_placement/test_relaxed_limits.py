from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_placement.objective.goals import V1, V2, Goals, School
from data_placement.objective.group_moves import GroupScratch, group_scratch_of
from data_placement.objective.placement_state import AT_HOME, PlacementState, Scratch, scratch_of, state_of, total_cost
from data_placement.objective.problem import PlacementProblem, problem_of
from data_placement.objective.relaxed_limits import RelaxedLimits, price_beyond, relaxed_limits, within
from data_placement.solvers.chain_moves import weightiest_groups
from data_placement.solvers.copying import copying_budget
from data_placement.solvers.forced_moves import force_group, more_trials, no_trials
from data_placement.solvers.gathering import room_for
from data_placement.solvers.plan import MoveLimits, Start
from domain.warehouse import Indices
from kernels.compiled import compiled
from tests.data_placement.warehouses import small_warehouse

PRICE = 7.0


@compiled
def priced(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    group: GroupScratch,
    limits: RelaxedLimits,
    tables: Indices,
    targets: Indices,
) -> float:
    return price_beyond(problem, state, scratch, group, limits, tables, targets, len(tables))


@compiled
def is_within(state: PlacementState, limits: RelaxedLimits) -> bool:
    return within(state, limits)


def plain_cost(state: PlacementState, limits: RelaxedLimits) -> float:
    """The objective and what exceeding costs, of a state as a whole."""
    over_storage = np.maximum(0.0, state.stored - limits.storage).sum() * limits.storage_price
    over_cpu = (np.maximum(0.0, state.cpu - limits.cpu).sum(axis=1) * limits.cpu_price).sum()
    over_gpu = (np.maximum(0.0, state.demand.sum(axis=1) - limits.gpu).sum(axis=1) * limits.gpu_price).sum()
    under_home = max(0.0, limits.home_least - float(state.sums[AT_HOME])) * limits.home_price
    return total_cost(state) + float(over_storage + over_cpu + over_gpu) + under_home


@given(st.integers(0, 10_000), st.sampled_from([V1, V2]), st.booleans(), st.integers(1, 6))
def test_the_price_of_a_group_beyond_limits_is_what_the_whole_costs_more(
    seed: int, goals: Goals, gpu_limited: bool, length: int
) -> None:
    chosen = replace(goals, gpu=School.HARD_QUOTA if gpu_limited else School.SOFT_BALANCE)
    problem = problem_of(small_warehouse(seed, tables=10, jobs=12), chosen)
    rng = np.random.default_rng(seed)
    home = rng.integers(0, 3, 10).astype(np.int32)
    state, scratch, group = state_of(problem, home), scratch_of(problem), group_scratch_of(problem)
    limits = relaxed_limits(problem, state_of(problem, rng.integers(0, 3, 10).astype(np.int32)), PRICE)
    for _ in range(3):
        tables = rng.choice(10, length, replace=False).astype(np.int32)
        targets = rng.integers(0, 3, length).astype(np.int32)
        after = home.copy()
        after[tables] = targets
        more = plain_cost(state_of(problem, after), limits) - plain_cost(state, limits)
        assert priced(problem, state, scratch, group, limits, tables, targets) == pytest.approx(
            more, rel=1e-9, abs=1e-9
        )
        beyond = plain_cost(state_of(problem, after), limits) - total_cost(state_of(problem, after))
        assert is_within(state_of(problem, after), limits) == (beyond < 1e-9)


@example(931, 11.0)  # All that is at home leaves: what sums keep of it is rounding.
@given(st.integers(0, 10_000), st.floats(0.0, 80.0))
def test_never_does_a_forced_move_leave_something_worse_or_less_legal(seed: int, quota: float) -> None:
    warehouse = small_warehouse(seed, tables=10, jobs=12)
    problem = problem_of(warehouse, V2)
    home = warehouse.tables.home
    budget = copying_budget(problem, Start(home, warehouse.tables.replicas), MoveLimits(quota))
    state, groups, trials = state_of(problem, home), weightiest_groups(problem), no_trials()
    scratch, group, room = scratch_of(problem), group_scratch_of(problem), room_for(groups)
    homes, held = state.home.copy(), np.zeros(10, np.bool_)
    while more_trials(trials, groups):
        limits = relaxed_limits(problem, state, PRICE)
        before = total_cost(state)
        force_group(problem, state, scratch, group, budget, limits, groups, room, homes, held, trials)
        fresh = state_of(problem, state.home)
        assert total_cost(fresh) <= before + 1e-12
        assert is_within(fresh, limits)
        assert budget.total[0] >= -1e-9
        np.testing.assert_array_equal(homes, state.home)
        assert not held.any()
    assert trials.tried[0] - trials.gained[0] == len(groups.order)
