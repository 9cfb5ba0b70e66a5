"""The bound is below every legal placement, whatever the warehouse; and says something where hardware tears jobs apart."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_placement.objective.goals import V1, V2, Goals
from data_placement.objective.placement_state import state_of, total_cost
from data_placement.objective.problem import PlacementProblem, problem_of
from data_placement.plan_choices import PlanChoices, plan_by_choices
from data_placement.plan_document import figures_document
from data_placement.solvers import lower_bound as bounds
from data_placement.solvers.lower_bound import lower_bound
from data_placement.solvers.plan import MoveLimits, Start, undisturbed
from domain.warehouse import Warehouse
from tests.data_placement.warehouses import small_warehouse
from tests.examples import examples

_CPU = 1.0 + 1e-9


def _start(warehouse: Warehouse) -> Start:
    return Start(warehouse.tables.home, warehouse.tables.replicas)


def _best(problem: PlacementProblem, start: Start, most_bytes: float) -> float:
    """The lowest cost of all placements that make no limit worse and copy no more than so much."""
    before = state_of(problem, start.home)
    costs = []
    for homes in itertools.product(range(problem.regions), repeat=len(start.home)):
        home = np.array(homes, np.int32)
        if problem.table_bytes[home != start.home].sum() > most_bytes:
            continue
        state = state_of(problem, home)
        if (state.stored > np.maximum(problem.storage_supply, before.stored)).any():
            continue
        if (state.cpu > np.maximum(problem.cpu_supply, before.cpu) * _CPU).any():
            continue
        if state.sums[1] < min(problem.home_least, before.sums[1]) * (1.0 - 1e-9):
            continue
        costs.append(total_cost(state))
    return min(costs)


@settings(deadline=None, max_examples=examples(25))
@given(
    st.integers(0, 10_000),
    st.sampled_from([V1, V2, Goals(home_training_share=0.0)]),
    st.sampled_from([0.0, 15.0, float("inf")]),
    st.booleans(),
)
def test_never_above_the_best_of_all_placements(seed: int, goals: Goals, most_bytes: float, roomy: bool) -> None:
    warehouse = small_warehouse(seed, tables=5, jobs=7, roomy=roomy)
    problem, start = problem_of(warehouse, goals), _start(warehouse)
    limits = MoveLimits(total_bytes=most_bytes)
    best = _best(problem, start, most_bytes)
    found = lower_bound(problem, start, limits, 20.0, undisturbed)
    assert found.bound is not None
    assert found.relaxation is not None
    assert found.relaxation <= best + 1e-6
    assert found.bound <= best + 1e-9
    assert found.bound >= found.relaxation - 2e-6 * max(1.0, found.relaxation)


def test_branching_proves_more_than_the_relaxation() -> None:
    warehouse = small_warehouse(4, tables=5, jobs=9)
    problem, start = problem_of(warehouse, V2), _start(warehouse)
    found = lower_bound(problem, start, MoveLimits(), 20.0, undisturbed)
    assert found.bound is not None
    assert found.relaxation is not None
    best = _best(problem, start, float("inf"))
    assert best - found.bound < 0.5 * (best - found.relaxation)


def test_a_warehouse_too_large_gets_none_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_RELAXED_VARIABLES", 10)
    warehouse = small_warehouse(4)
    found = plan_by_choices(warehouse, PlanChoices(bound=True), np.random.default_rng(1))
    assert found.solution.bound is None
    assert any("variables are more than the relaxation" in remark for remark in found.solution.remarks)


def test_no_time_gives_no_bound_and_the_reason() -> None:
    warehouse = small_warehouse(4, tables=200, jobs=300)
    found = lower_bound(problem_of(warehouse, V2), _start(warehouse), MoveLimits(), 0.0, undisturbed)
    assert (found.bound, found.relaxation) == (None, None)
    assert "was not solved within 0 s" in found.remark


@pytest.mark.parametrize("solver", ["hill_climbing", "joint", "milp"])
def test_the_figures_of_a_plan_have_bound_and_gap(solver: str) -> None:
    warehouse = small_warehouse(6, tables=6, jobs=8)
    choices = PlanChoices(solver=solver, bound=True, time_limit_s=20.0)
    figures = figures_document(
        warehouse, plan_by_choices(warehouse, choices, np.random.default_rng(1)), choices, 1.0, 1.0
    )
    bound, gap, objective = figures["bound"], figures["gap"], figures["objective"]
    assert isinstance(bound, float)
    assert isinstance(gap, float)
    assert isinstance(objective, dict)
    after = objective["after"]["total"]
    assert bound <= after
    assert gap == pytest.approx((after - bound) / after)
    unknown = replace(choices, bound=False, solver="hill_climbing")
    found = plan_by_choices(warehouse, unknown, np.random.default_rng(1))
    without = figures_document(warehouse, found, unknown, 1.0, 1.0)
    assert (without["bound"], without["gap"]) == (None, None)
