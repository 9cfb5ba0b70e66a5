import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_placement.objective.goals import V2
from data_placement.objective.placement_state import state_of
from data_placement.objective.problem import problem_of
from data_placement.placement_plan import plan_placement
from data_placement.replicas import ReplicaPolicy, collocated_hours, plan_replicas
from data_placement.solvers.hill_climbing import HillClimbing
from data_placement.solvers.plan import MoveLimits
from data_placement.warehouse_generator import generate_warehouse
from tests.data_placement.warehouses import small_warehouse


@given(st.integers(0, 10_000), st.floats(0.0, 1.0))
def test_never_do_copies_exceed_storage_or_lie_in_the_home(seed: int, hot: float) -> None:
    warehouse = small_warehouse(seed, tables=10, jobs=12)
    problem = problem_of(warehouse, V2)
    state = state_of(problem, warehouse.tables.home)
    planned = plan_replicas(warehouse, problem, state, ReplicaPolicy(hot_storage_share=hot))
    for region in range(3):
        copies = (planned.masks >> region & 1) > 0
        assert not (copies & (state.home == region)).any()
        stored = state.stored[region] + problem.table_bytes[copies].sum()
        assert stored <= max(problem.storage_supply[region], state.stored[region]) * (1 + 1e-12)


def test_with_room_every_table_has_a_copy_elsewhere_and_every_job_a_region() -> None:
    warehouse = small_warehouse(11, tables=12, jobs=14, roomy=True)
    problem = problem_of(warehouse, V2)
    state = state_of(problem, warehouse.tables.home)
    before = collocated_hours(problem, state.home, warehouse.tables.replicas)
    planned = plan_replicas(warehouse, problem, state, ReplicaPolicy())
    assert (planned.masks != 0).all()
    assert planned.without_disaster_copy == 0
    assert planned.jobs_without_region == 0
    wanted = problem.gpu_hours[problem.high].sum()
    assert before < wanted
    assert collocated_hours(problem, state.home, planned.masks) == wanted


def test_a_job_that_no_region_could_run_gets_its_tables_together_where_its_gpus_are() -> None:
    """ "For the remaining ones, Tetris creates additional replicas of the tables accessed by them." (MAST §3.5)"""
    warehouse = small_warehouse(11, tables=12, jobs=14, roomy=True)
    problem = problem_of(warehouse, V2)
    state = state_of(problem, warehouse.tables.home)
    planned = plan_replicas(warehouse, problem, state, ReplicaPolicy(against_disasters=False, hot_storage_share=0.0))
    mended = np.flatnonzero(problem.training & (state.job_region < 0))
    assert len(mended) > 0
    for job in mended:
        supply = problem.gpu_supply[problem.gpu_model[job]]
        tables = problem.tables[problem.table_start[job] : problem.table_start[job + 1]]
        region = int(planned.job_region[job])
        held = (state.home[tables] == region) | ((planned.masks[tables] >> region & 1) > 0)
        assert held.all()
        assert supply[region] > 0


def test_a_plan_balances_a_generated_warehouse() -> None:
    warehouse = generate_warehouse(2_000, 6, np.random.default_rng(1))
    rng = np.random.default_rng(1)
    made = plan_placement(warehouse, V2, HillClimbing(), MoveLimits(), ReplicaPolicy(), rng)
    assert made.after.total < made.before.total / 2
    assert made.after.overload < made.before.overload
    assert made.after.collocation_rate > made.before.collocation_rate
    assert made.after.home_training_rate >= min(0.93, made.before.home_training_rate) - 1e-9
    untouched = plan_placement(warehouse, V2, None, MoveLimits(), ReplicaPolicy(), rng)
    assert untouched.after == untouched.before or untouched.after.total == untouched.before.total


def test_a_generated_warehouse_has_the_published_sharing() -> None:
    """ "At the P50, P90, and P99 percentiles, a data partition is shared by 3, 17, and 45 distinct workloads." (§2)"""
    warehouse = generate_warehouse(30_000, 10, np.random.default_rng(1))
    readers = np.diff(warehouse.readers()[0])
    shared = np.percentile(readers[readers > 0], [50, 90, 99])
    np.testing.assert_allclose(shared, [3, 17, 45], rtol=0.2)
    sizes = np.percentile(warehouse.tables.size_bytes, [50, 90, 99])
    np.testing.assert_allclose(sizes, [565e6, 103e9, 7.5e12], rtol=0.2)
