from dataclasses import replace

import numpy as np
import pytest
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
from domain.warehouse import Jobs, Tables
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


def test_a_job_is_copied_for_where_the_least_is_lacking_if_there_are_gpus_to_spare() -> None:
    """Job 0 reads a large table of region 0 and a small one of region 1: the small one is copied, though region 2 is idle."""
    warehouse = replace(
        small_warehouse(1, tables=2, jobs=1, roomy=True),
        tables=Tables(["large", "small"], np.array([1000, 1]), np.array([0, 1], np.int32), np.zeros(2, np.int64)),
        jobs=Jobs(
            names=["train"],
            training=np.array([True]),
            gpu_model=np.zeros(1, np.int32),
            priority=np.zeros(1, np.int32),
            priorities=(0, 1),
            gpu_hours=np.array([10.0]),
            cpu_hours=np.zeros(1),
            application=np.full(1, -1, np.int32),
            weight=np.ones(1),
            table_start=np.array([0, 2]),
            tables=np.array([0, 1], np.int32),
        ),
    )
    policy = ReplicaPolicy(against_disasters=False, hot_storage_share=0.0)
    for hours, region in ((20.0, 0), (5.0, 2)):
        supply = np.array([[hours, 0.0, 100.0], [0.0, 0.0, 0.0]])
        supplied = replace(warehouse, regions=replace(warehouse.regions, gpu_hours=supply))
        problem = problem_of(supplied, V2)
        planned = plan_replicas(supplied, problem, state_of(problem, warehouse.tables.home), policy)
        assert planned.job_region[0] == region


def test_a_hot_table_that_is_too_large_for_the_quota_holds_back_no_others() -> None:
    warehouse = small_warehouse(11, tables=12, jobs=14, roomy=True)
    sizes = warehouse.tables.size_bytes.copy()
    readers = np.diff(warehouse.readers()[0])
    sizes[np.argmax(readers)] = 400_000_000
    warehouse = replace(warehouse, tables=replace(warehouse.tables, size_bytes=sizes))
    problem = problem_of(warehouse, V2)
    state = state_of(problem, warehouse.tables.home)
    planned = plan_replicas(warehouse, problem, state, ReplicaPolicy(for_jobs=False, against_disasters=False))
    assert planned.bytes_of_hot_tables > 0.0
    assert planned.masks[np.argmax(readers)] == 0


def test_partitions_alone_serve_the_jobs_in_less_storage() -> None:
    """ "Instead of replicating the whole table, Tetris can be configured to only replicate the partitions needed." (§3.5)"""
    warehouse = small_warehouse(11, tables=12, jobs=14, roomy=True)
    shares = np.random.default_rng(1).uniform(0.1, 0.6, len(warehouse.jobs.tables))
    warehouse = replace(warehouse, jobs=replace(warehouse.jobs, newest_share=shares))
    problem = problem_of(warehouse, V2)
    state = state_of(problem, warehouse.tables.home)
    policy = ReplicaPolicy(against_disasters=False, hot_storage_share=0.0)
    whole = plan_replicas(warehouse, problem, state, policy)
    some = plan_replicas(warehouse, problem, state, replace(policy, partitions=True))
    assert some.jobs_without_region == whole.jobs_without_region == 0
    assert 0.0 < some.bytes_for_jobs < 0.7 * whole.bytes_for_jobs
    assert some.parts is not None
    stored = (some.parts.held * problem.table_bytes[:, None]).sum()
    assert stored == pytest.approx(some.bytes_for_jobs)
    for job in np.flatnonzero(problem.training & (state.job_region < 0)):
        region = int(some.job_region[job])
        for pair in range(problem.table_start[job], problem.table_start[job + 1]):
            table = problem.tables[pair]
            assert state.home[table] == region or some.parts.held[table, region] >= shares[pair]
    everything = plan_replicas(warehouse, problem, state, ReplicaPolicy(partitions=True))
    assert (everything.masks != 0).all()
    assert everything.parts is not None
    held = (everything.masks[:, None] >> np.arange(3) & 1) > 0
    assert not (held & (everything.parts.held > 0)).any()


def test_a_disaster_copy_avoids_regions_that_fail_together_and_prefers_spare_gpus() -> None:
    """ "... takes into account factors such as the probability of correlated regional failures and the availability of
    hardware to handle increased load after a disaster." (§3.5)"""
    warehouse = small_warehouse(11, tables=12, jobs=14, roomy=True)
    supply = np.array([[100.0, 0.0, 500.0], [100.0, 0.0, 500.0]])
    warehouse = replace(warehouse, regions=replace(warehouse.regions, gpu_hours=supply))
    problem = problem_of(warehouse, V2)
    state = state_of(problem, np.zeros(12, np.int32))
    policy = ReplicaPolicy(for_jobs=False, hot_storage_share=0.0)
    trained = np.unique(problem.tables[np.repeat(problem.training, np.diff(problem.table_start))])
    ready = plan_replicas(warehouse, problem, state, policy).masks
    assert (ready[trained] == 0b100).all()
    together = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    apart = plan_replicas(warehouse, problem, state, replace(policy, correlated_failures=together)).masks
    assert (apart == 0b010).all()
    with pytest.raises(ValueError, match="correlated_failures"):
        ReplicaPolicy(correlated_failures=together * 2)


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
