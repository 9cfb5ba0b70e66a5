"""A policy is defined once: of columns and of single workloads it says the same, to the bit."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from global_scheduler.arithmetic import COLUMNS, PLAIN, Arithmetic, Floats
from global_scheduler.knowledge import KnownWork, OracleWork
from global_scheduler.levels import LEVELS
from global_scheduler.levels.attained_service import AttainedService
from global_scheduler.levels.policy import LevelPolicy
from global_scheduler.levels.remaining_service import RemainingService
from global_scheduler.levels.time_slice import TimeSlice
from global_scheduler.ordering import ORDERINGS
from global_scheduler.ordering.policy import OrderingPolicy, QueueView
from global_scheduler.service_distribution import ServiceDistribution, ServiceInForce

POLICIES: tuple[LevelPolicy, ...] = (
    *LEVELS.values(),
    AttainedService((100.0, 1000.0, 3200.0), promote_knob=2.0, starve_limit_s=100.0),
    RemainingService(first_bucket_gpu_s=0.1, bucket_factor=1.1),
    TimeSlice(slice_s=0.1),
)
SECONDS = st.floats(0.0, 2e9)
SERVICE = ServiceDistribution([50.0, 100.0, 100.0, 3200.0, 5_000.0, 1e6])


@dataclass(frozen=True)
class Facts:
    """One workload."""

    gpus: float
    submitted_s: float
    queued_since_s: float
    attained_gpu_s: float
    started_s: float
    attained_s: float
    first_started_s: float
    left_s: float
    credit: float


@dataclass(frozen=True)
class One:
    """One workload at one moment, as `OrderingInput`."""

    known: Facts
    now: float
    arithmetic: Arithmetic[float] = PLAIN

    @property
    def credit(self) -> float:
        return self.known.credit

    def remaining_s(self, policy: str) -> float:
        return self.known.left_s

    def constant(self, number: float) -> float:
        return number

    def gittins_index(self, attained_gpu_s: float, quantum_gpu_s: float) -> float:
        return SERVICE.index_of(attained_gpu_s, quantum_gpu_s)


FACTS = st.builds(
    Facts,
    gpus=st.integers(0, 1024).map(float),
    submitted_s=SECONDS,
    queued_since_s=SECONDS,
    attained_gpu_s=st.one_of(st.floats(0.0, 1e12), st.sampled_from([0.0, 100.0, 3200.0 - 1e-5, 3200.0])),
    started_s=SECONDS,
    attained_s=SECONDS,
    first_started_s=st.one_of(SECONDS, st.just(math.inf)),
    left_s=st.one_of(st.floats(0.0, 1e9), st.sampled_from([0.0, 60.0, 120.0 + 1e-5, 0.5])),
    credit=st.floats(-1e9, 1e9),
)
QUEUES = st.lists(FACTS, max_size=8)
RAN_S = st.one_of(st.floats(0.0, 1e6), st.sampled_from([0.0, 0.1, 60.0]))


def columns(queue: Sequence[Facts], now: float) -> QueueView:
    def column(of: Callable[[Facts], float]) -> Floats:
        return np.array([of(facts) for facts in queue], np.float64)

    known = KnownWork(
        column(lambda facts: facts.gpus),
        column(lambda facts: facts.submitted_s),
        column(lambda facts: facts.queued_since_s),
        column(lambda facts: facts.attained_gpu_s),
        column(lambda facts: facts.started_s),
        column(lambda facts: facts.attained_s),
        column(lambda facts: facts.first_started_s),
    )
    oracle = OracleWork(column(lambda facts: facts.left_s))
    return QueueView(known, now, oracle, ServiceInForce((SERVICE,)), credit=column(lambda facts: facts.credit))


@pytest.mark.parametrize("policy", ORDERINGS.values(), ids=list(ORDERINGS))
@given(queue=QUEUES, now=SECONDS)
def test_never_do_columns_and_one_workload_get_different_credits(
    policy: OrderingPolicy, queue: list[Facts], now: float
) -> None:
    together = policy.ordering_credit(columns(queue, now)).tolist()
    assert together == [policy.ordering_credit(One(facts, now)) for facts in queue]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@given(queue=QUEUES, now=SECONDS)
def test_never_do_columns_and_one_workload_wait_at_different_levels(
    policy: LevelPolicy, queue: list[Facts], now: float
) -> None:
    together = policy.queued_levels(columns(queue, now)).tolist()
    assert together == [policy.queued_levels(One(facts, now)) for facts in queue]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@given(queue=QUEUES, ran_s=RAN_S)
def test_never_do_columns_and_one_workload_run_at_different_levels_or_cross_at_different_times(
    policy: LevelPolicy, queue: list[Facts], ran_s: float
) -> None:
    now = max((facts.started_s for facts in queue), default=0.0) + ran_s
    together = policy.running_levels(columns(queue, now))
    alone = [policy.running_levels(One(facts, now)) for facts in queue]
    assert together.level.tolist() == [running.level for running in alone]
    assert together.until_s.tolist() == [running.until_s for running in alone]
    # At the very crossing too.
    for facts, running in zip(queue, alone, strict=True):
        if not math.isinf(running.until_s):
            crossed = policy.running_levels(columns([facts], running.until_s))
            assert crossed.level.tolist() == [policy.running_levels(One(facts, running.until_s)).level]


@given(st.lists(st.floats(-1e9, 1e9), max_size=6), st.lists(st.floats(-1e9, 1e9), max_size=6).map(sorted))
def test_never_do_the_two_arithmetics_differ(numbers: list[float], bounds: list[float]) -> None:
    column = np.array(numbers, np.float64)
    table = (*bounds, math.inf)
    assert COLUMNS.ceiling(column).tolist() == [PLAIN.ceiling(number) for number in numbers]
    assert COLUMNS.larger(column, 1.0).tolist() == [PLAIN.larger(number, 1.0) for number in numbers]
    assert COLUMNS.choose(column > 0, column, -1.0).tolist() == [PLAIN.choose(n > 0, n, -1.0) for n in numbers]
    left, right = COLUMNS.position(bounds, column, "left"), COLUMNS.position(bounds, column, "right")
    assert left.tolist() == [PLAIN.position(bounds, number, "left") for number in numbers]
    assert right.tolist() == [PLAIN.position(bounds, number, "right") for number in numbers]
    assert COLUMNS.pick(table, right).tolist() == [PLAIN.pick(table, position) for position in right.tolist()]
