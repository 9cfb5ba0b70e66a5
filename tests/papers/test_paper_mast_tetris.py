"""Where tables are: what the MAST paper says of Tetris (§3, §5.3, §5.6), sentence by sentence.

How the state keeps the formula of Fig. 4 is tested in tests/data_placement; here is what the sentences promise.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from data_placement.objective.goals import V1, V2, Goals, School
from data_placement.objective.placement_state import (
    AT_HOME,
    READS,
    PlacementState,
    evaluate,
    scratch_of,
    state_of,
    total_cost,
)
from data_placement.objective.problem import PlacementProblem, problem_of
from data_placement.placement_plan import plan_placement
from data_placement.replicas import ReplicaPolicy, plan_replicas
from data_placement.solvers.hill_climbing import HillClimbing
from data_placement.solvers.joint import Joint
from data_placement.solvers.late_acceptance import LateAcceptance
from data_placement.solvers.mixed_integer import MixedInteger
from data_placement.solvers.plan import MoveLimits, PlacementTask, Solver, Start
from data_placement.solvers.single_moves import SingleMoves
from data_placement.warehouse_generator import generate_warehouse
from domain.warehouse import Jobs, Regions, Tables, Warehouse
from simulator.inputs.warehouse_day import FIRST_TIME, catalog_of, day_of, fleet_of
from tests.data_placement.warehouses import small_warehouse


def warehouse_of(homes: list[int], reads: list[list[int]], supply: list[list[float]], hours: list[float]) -> Warehouse:
    """Tables of 10 bytes, training jobs of the highest priority on one model per row of `supply` (job j needs model j % rows)."""
    regions, models, jobs = len(supply[0]), len(supply), len(reads)
    return Warehouse(
        Regions(
            names=tuple(f"r{place}" for place in range(regions)),
            storage_bytes=np.full(regions, 1e6),
            gpu_models=tuple(f"g{place}" for place in range(models)),
            gpu_hours=np.array(supply),
        ),
        Tables(
            [f"t{place}" for place in range(len(homes))],
            np.full(len(homes), 10),
            np.array(homes, np.int32),
            np.zeros(len(homes), np.int64),
        ),
        Jobs(
            names=[f"j{place}" for place in range(jobs)],
            training=np.ones(jobs, np.bool_),
            gpu_model=np.arange(jobs, dtype=np.int32) % models,
            priority=np.zeros(jobs, np.int32),
            priorities=(0,),
            gpu_hours=np.array(hours),
            cpu_hours=np.zeros(jobs),
            application=np.full(jobs, -1, np.int32),
            weight=np.ones(jobs),
            table_start=np.concatenate([[0], np.cumsum([len(each) for each in reads])]),
            tables=np.concatenate(reads).astype(np.int32),
        ),
    )


def task_of(warehouse: Warehouse, goals: Goals, limits: MoveLimits | None = None) -> PlacementTask:
    start = Start(warehouse.tables.home, warehouse.tables.replicas)
    problem = problem_of(warehouse, goals)
    return PlacementTask(problem, start, np.random.default_rng(1), limits or MoveLimits())


FREE = Goals(home_training_share=0.0)


def test_a_training_job_with_tables_in_two_regions_reads_them_all_across_regions() -> None:
    """ "If its home region R(job_j) is NULL, Expression 1 will assume that all of these tables are accessed across regions." (§3.3)"""
    warehouse = warehouse_of([0, 1], [[0, 1]], [[10.0, 10.0]], [5.0])
    state = state_of(problem_of(warehouse, FREE), warehouse.tables.home)
    assert state.job_region[0] == -1
    assert state.sums[READS] == pytest.approx(FREE.cross_region_reads)


def test_overload_is_penalised_more_severely_than_underload() -> None:
    """ "Our current implementation more severely penalizes overload." (§3.2), V2 against V1 (§5.6)."""
    warehouse = warehouse_of([0, 0], [[0], [1]], [[10.0, 10.0]], [10.0, 10.0])
    for goals, ratio in ((V1, 1.0), (V2, 2.0)):
        state = state_of(problem_of(warehouse, goals), warehouse.tables.home)
        assert state.gpu_cell_cost[0, 0] / state.gpu_cell_cost[0, 1] == pytest.approx(ratio, rel=1e-3)


def test_hard_constraints_on_gpus_leave_nothing_to_do_where_demand_exceeds_supply() -> None:
    """ "Imposing hard constraints [on GPUs] often renders the problem unsolvable due to the scarcity of GPUs." (§3.2)"""
    warehouse = warehouse_of([0, 0, 0], [[0], [1], [2]], [[10.0, 8.0]], [10.0, 10.0, 10.0])
    soft = HillClimbing().solve(task_of(warehouse, FREE))
    hard = HillClimbing().solve(task_of(warehouse, replace(FREE, gpu=School.HARD_QUOTA)))
    assert len(soft.moves.table) > 0
    assert len(hard.moves.table) == 0


def test_moves_come_in_the_order_of_their_gains_until_the_quota_is_used_up() -> None:
    """ "... starting from the table with the highest move gain ... until either the queue becomes empty or a daily move
    quota is reached." (§3.4)"""
    warehouse = warehouse_of([0] * 4, [[0], [1], [2], [3]], [[10.0, 90.0]], [1.0, 9.0, 4.0, 30.0])
    everything = SingleMoves(rounds=1).solve(task_of(warehouse, FREE)).moves
    assert everything.table[0] == 3
    some = SingleMoves(rounds=1).solve(task_of(warehouse, FREE, MoveLimits(total_bytes=20.0))).moves
    assert some.bytes.sum() == 20.0
    np.testing.assert_array_equal(some.table, everything.table[:2])
    blocked = MoveLimits(link_bytes=np.zeros((2, 2)))
    for solver in (SingleMoves(), HillClimbing()):
        assert len(solver.solve(task_of(warehouse, FREE, blocked)).moves.table) == 0


def test_the_gain_is_computed_anew_before_each_move() -> None:
    """ "Before moving a table, it recalculates its best region because moving tables in prior iterations may have changed the
    cost of moving this table." (§3.4)"""
    warehouse = warehouse_of([0, 0], [[0], [1]], [[10.0, 10.0]], [10.0, 10.0])
    problem = problem_of(warehouse, FREE)
    state, scratch = state_of(problem, warehouse.tables.home), scratch_of(problem)
    both_gain = [evaluate(problem, state, scratch, table, 1).gpu < 0 for table in (0, 1)]
    assert both_gain == [True, True]
    assert len(SingleMoves(rounds=1).solve(task_of(warehouse, FREE)).moves.table) == 1


def test_single_moves_leave_a_job_torn_that_moves_of_jobs_bring_together() -> None:
    """ "Otherwise, Tetris sets R(job_j) to NULL temporarily, and will fix it at a later stage by replicating tables." (§3.3)"""
    warehouse = warehouse_of([0, 1, 2], [[0, 1, 2]], [[10.0, 10.0, 10.0]], [5.0])
    goals = replace(FREE, gpu_balance=1.0, storage_balance=0.0)
    problem = problem_of(warehouse, goals)
    assert state_of(problem, SingleMoves().solve(task_of(warehouse, goals)).home).job_region[0] == -1
    for solver in (HillClimbing(), LateAcceptance()):
        assert state_of(problem, solver.solve(task_of(warehouse, goals)).home).job_region[0] >= 0
    plan = plan_placement(warehouse, goals, SingleMoves(), MoveLimits(), ReplicaPolicy(), np.random.default_rng(1))
    assert plan.replicas.jobs_without_region == 0


def test_a_table_for_two_models_that_no_region_has_both_of_is_copied() -> None:
    """ "Tetris may set R(table_i) to be a region that has GPU_1 to run job_1 and then create a replica of the table in a region
    that has GPU_2 to run job_2." (§3.5)"""
    warehouse = warehouse_of([0], [[0], [0]], [[10.0, 0.0], [0.0, 10.0]], [5.0, 5.0])
    problem = problem_of(warehouse, FREE)
    policy = ReplicaPolicy(against_disasters=False, hot_storage_share=0.0)
    planned = plan_replicas(warehouse, problem, state_of(problem, warehouse.tables.home), policy)
    assert planned.masks.tolist() == [0b10]
    assert planned.job_region.tolist() == [0, 1]


SOLVERS: list[Solver] = [SingleMoves(), HillClimbing(), LateAcceptance(fewest_steps=5_000), MixedInteger()]


@pytest.mark.parametrize("seed", range(4))
def test_never_is_a_solver_better_than_the_best_of_all_assignments(seed: int) -> None:
    warehouse = small_warehouse(100 + seed, tables=5, jobs=7)
    task = task_of(warehouse, V2)
    before = state_of(task.problem, warehouse.tables.home)
    states = [state_of(task.problem, np.array(home, np.int32)) for home in itertools.product(range(3), repeat=5)]
    best = min(total_cost(state) for state in states if no_worse(task.problem, before, state))
    for solver in SOLVERS:
        found = state_of(task.problem, solver.solve(replace(task, rng=np.random.default_rng(1))).home)
        assert no_worse(task.problem, before, found)
        assert best - 1e-9 <= total_cost(found) <= total_cost(before) + 1e-9


def no_worse(problem: PlacementProblem, before: PlacementState, after: PlacementState) -> bool:
    """Whether every limit holds, or is exceeded by no more than before."""
    storage = np.maximum(problem.storage_supply, before.stored * (1 + 1e-9))
    cpu = np.maximum(problem.cpu_supply, before.cpu * (1 + 1e-9))
    at_home = min(problem.home_least, before.sums[AT_HOME]) * (1 - 1e-9)
    return bool((after.stored <= storage).all() and (after.cpu <= cpu).all() and after.sums[AT_HOME] >= at_home)


@pytest.mark.parametrize("seed", range(2))
def test_homes_and_copies_decided_together_keep_all_limits(seed: int) -> None:
    """ "We plan to explore whether there exists an efficient formulation that can simultaneously determine the optimal number
    of replicas and the home region for each table." (§6)"""
    warehouse = generate_warehouse(600, 4, np.random.default_rng(seed))
    policy = ReplicaPolicy(against_disasters=False, hot_storage_share=0.0)
    apart, together = (
        plan_placement(warehouse, V2, solver, MoveLimits(), policy, np.random.default_rng(1))
        for solver in (HillClimbing(), Joint())
    )
    for plan in (apart, together):
        problem = problem_of(warehouse, V2)
        copies = (plan.replicas.masks[:, None] >> np.arange(4) & 1) > 0
        stored = np.bincount(plan.solution.home, weights=problem.table_bytes, minlength=4)
        stored += (copies * problem.table_bytes[:, None]).sum(axis=0)
        assert (stored <= problem.storage_supply * (1 + 1e-9)).all()
        assert not copies[np.arange(600), plan.solution.home].any()
        for job in np.flatnonzero(plan.replicas.job_region >= 0):
            if not problem.training[job] or problem.gpu_model[job] < 0:
                continue
            region = plan.replicas.job_region[job]
            tables = problem.tables[problem.table_start[job] : problem.table_start[job + 1]]
            assert (copies[tables, region] | (plan.solution.home[tables] == region)).all()
        assert plan.after.overload <= plan.before.overload + 1e-9
    assert together.after.home_training_rate >= min(0.93, together.before.home_training_rate) - 1e-9


def test_a_day_has_the_published_share_of_first_time_workloads_and_few_wait_with_a_plan() -> None:
    """ "About 30% of the workloads are recurring, while the remaining are first-time workloads." (§5.1) "The
    non-collocation rate is usually below 0.1%." (§5.3)"""
    warehouse = generate_warehouse(400, 3, np.random.default_rng(1))
    rows = day_of(warehouse, np.random.default_rng(1))
    first = [row for row in rows if row.workload_id.startswith(FIRST_TIME)]
    assert len(first) / len(rows) == pytest.approx(0.7, abs=0.01)
    plan = plan_placement(warehouse, V2, HillClimbing(), MoveLimits(), ReplicaPolicy(), np.random.default_rng(1))
    catalog = catalog_of(warehouse, plan.solution.home, plan.replicas.masks)
    having: dict[str, set[str]] = {}
    for region in fleet_of(warehouse).regions:
        for machine in region.machines():
            having.setdefault(str(machine.gpu_model), set()).add(str(region.region))
    waiting = 0
    for row in rows:
        held = [
            {str(region) for region in table.regions}
            for name in row.tables
            if (table := catalog.table(name)) is not None
        ]
        waiting += not any(all(region in each for each in held) for region in sorted(having[row.gpu_model]))
    assert waiting / len(rows) < 0.01
