import importlib
import math
import pkgutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import TenantId, WorkloadId
from global_scheduler import levels
from global_scheduler.knowledge import (
    Estimates,
    EstimateSource,
    Knowledge,
    KnownWork,
    OracleNeeded,
    OracleWork,
    PolicyView,
)
from global_scheduler.levels import LEVELS
from global_scheduler.levels.assignment import queued_levels, running_levels
from global_scheduler.levels.attained_service import AttainedService
from global_scheduler.levels.expected_end import ExpectedEnd
from global_scheduler.levels.policy import WORST_LEVEL, LevelPolicy
from global_scheduler.levels.remaining_service import RemainingService
from global_scheduler.levels.time_slice import TimeSlice
from global_scheduler.view_builder import RunningRows, known_of_running

THREE_THRESHOLDS = AttainedService((100.0, 1000.0, 3200.0))


def attempt(
    now: float,
    *,
    started_s: float = math.nan,
    gpus: int = 1,
    attained_gpu_s: float = 0.0,
    remaining_s: float | None = None,
) -> PolicyView:
    """One attempt, or one workload that waits, as a policy sees it."""
    zero = np.zeros(1)
    known = KnownWork(
        np.array([float(gpus)]), zero, zero, np.array([attained_gpu_s]), np.array([started_s]), zero, zero
    )
    return PolicyView(known, now, None if remaining_s is None else OracleWork(np.array([remaining_s])))


def running(policy: LevelPolicy, view: PolicyView) -> tuple[int, float]:
    level, until_s = policy.running_levels(view)
    return int(level[0]), float(until_s[0])


@given(st.floats(0.1, 1e7), st.integers(1, 512), st.floats(0.0, 2e9), st.floats(1.1, 10.0), st.floats(1.0, 3600.0))
def test_never_does_a_level_of_remaining_service_change_but_at_its_crossing(
    remaining_s: float, gpus: int, started_s: float, factor: float, first: float
) -> None:
    _check_crossings(RemainingService(first, factor), started_s, gpus, 0.0, remaining_s, step=-1)


@given(st.floats(0.0, 4000.0), st.integers(1, 512), st.floats(0.0, 2e9))
def test_never_does_a_level_of_attained_service_change_but_at_its_crossing(
    attained_gpu_s: float, gpus: int, started_s: float
) -> None:
    _check_crossings(THREE_THRESHOLDS, started_s, gpus, attained_gpu_s, 1e6, step=1)


def _check_crossings(
    policy: LevelPolicy, started_s: float, gpus: int, attained_gpu_s: float, remaining_s: float, step: int
) -> None:
    """From crossing to crossing: each leads to the next level, at a later time."""

    def at(now: float) -> PolicyView:
        return attempt(now, started_s=started_s, gpus=gpus, attained_gpu_s=attained_gpu_s, remaining_s=remaining_s)

    now = started_s
    level, until_s = running(policy, at(now))
    assert abs(level - int(policy.queued_levels(at(now))[0])) <= 1
    while not math.isinf(until_s):
        assert until_s > now
        assert running(policy, at(now + (until_s - now) / 3))[0] == level
        now = until_s
        following, until_s = running(policy, at(now))
        assert following == level + step
        level = following


@given(st.lists(st.tuples(st.floats(0.0, 2000.0), st.integers(0, 8)), max_size=12), st.floats(0.0, 1e9))
def test_never_does_a_level_get_better_while_attained_service_grows(
    attempts: list[tuple[float, int]], first_start_s: float
) -> None:
    level, attained_gpu_s, now = 0, 0.0, first_start_s
    for run_s, gpus in attempts:
        for share in (0.0, 0.5, 1.0):
            view = attempt(now + share * run_s, started_s=now, gpus=gpus, attained_gpu_s=attained_gpu_s)
            following = running(THREE_THRESHOLDS, view)[0]
            assert following >= level
            level = following
        attained_gpu_s += run_s * gpus
        now += run_s
        waiting = int(THREE_THRESHOLDS.queued_levels(attempt(now, attained_gpu_s=attained_gpu_s))[0])
        assert waiting in {level, level - 1}, "a requeue loses no more than the slack of a crossing"
        assert (
            waiting >= level
            or running(THREE_THRESHOLDS, attempt(now, started_s=now, gpus=max(gpus, 1), attained_gpu_s=attained_gpu_s))[
                0
            ]
            >= waiting
        )


def test_a_threshold_counts_when_it_is_reached() -> None:
    assert [int(THREE_THRESHOLDS.queued_levels(attempt(0.0, attained_gpu_s=at))[0]) for at in (0, 99.9, 100, 3200)] == [
        0, 0, 1, 3,
    ]  # fmt: skip


def test_who_takes_no_gpus_stays_at_its_level() -> None:
    assert running(THREE_THRESHOLDS, attempt(1e9, started_s=0.0, gpus=0)) == (0, math.inf)


def test_expected_ends_are_seconds() -> None:
    policy = ExpectedEnd()
    assert int(policy.queued_levels(attempt(100.0, remaining_s=49.5))[0]) == 150
    assert running(policy, attempt(120.0, started_s=100.0, remaining_s=49.5)) == (150, math.inf)


def test_estimates_stand_in_for_the_oracle_and_say_where_they_come_from() -> None:
    policy = RemainingService(60.0, 2.0)
    with pytest.raises(OracleNeeded, match="remaining_service needs to know how long workloads will run"):
        policy.queued_levels(attempt(0.0))
    bare = attempt(0.0).known
    estimates = Estimates(np.array([119.0]), np.array([EstimateSource.DECLARED], np.int8))
    known = KnownWork(
        bare.gpus,
        bare.submitted_s,
        bare.queued_since_s,
        bare.attained_gpu_s,
        bare.started_s,
        bare.attained_s,
        bare.first_started_s,
        estimates,
    )
    assert policy.queued_levels(PolicyView(known, 0.0)).tolist() == [1]


def changed(now: float, changed_s: float, gpus: int, attained_gpu_s: float, remaining_s: float = 0.0) -> PolicyView:
    """An attempt that runs since 0, holds so many GPUs since then, and had received so much before: as it is loaded."""
    zero, tenant = np.zeros(1), TenantId("t")
    rows = RunningRows(
        [WorkloadId("w")], [1], [tenant], zero, [1], [0], [True], [False], [{}], [gpus], zero, zero, [attained_gpu_s],
        Estimates(np.array([remaining_s]), np.array([EstimateSource.DECLARED], np.int8)), [changed_s],
    )  # fmt: skip
    return PolicyView(known_of_running(rows), now)


def test_a_resize_neither_renews_a_time_slice_nor_what_is_left() -> None:
    """What is counted since the start goes on, and service is counted by the GPUs that were held when."""
    assert running(TimeSlice(60.0), changed(61.0, 59.0, 1, 59.0)) == (1, math.inf)
    assert running(RemainingService(60.0, 2.0), changed(950.0, 900.0, 1, 900.0, 1000.0)) == (0, math.inf)
    assert running(AttainedService((1000.0,)), changed(300.0, 100.0, 4, 100.0)) == (0, 325.0)
    assert running(AttainedService((1000.0,)), changed(326.0, 100.0, 4, 100.0)) == (1, math.inf)


@pytest.mark.parametrize("thresholds", [(), (0.0,), (-1.0, 1.0), (5.0, 5.0), (9.0, 3.0)])
def test_thresholds_must_ascend(thresholds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="thresholds_gpu_s must be"):
        AttainedService(thresholds)


def test_other_parameters_must_make_sense() -> None:
    with pytest.raises(ValueError, match="slice_s must be more than 0"):
        TimeSlice(0.0)
    with pytest.raises(ValueError, match="bucket_factor must be more than 1"):
        RemainingService(1.0, 1.0)
    with pytest.raises(ValueError, match="first_bucket_gpu_s must be more than 0"):
        RemainingService(0.0)


def test_each_priority_has_its_own_levels() -> None:
    known = KnownWork(
        np.ones(4),
        np.zeros(4),
        np.zeros(4),
        np.full(4, 150.0),
        np.array([math.nan, 0.0, 0.0, 0.0]),
        np.zeros(4),
        np.zeros(4),
    )
    view = PolicyView(known, 900.0)
    policies = [None, THREE_THRESHOLDS, TimeSlice(1000.0), None, None, None, None]
    priority = np.array([1, 1, 2, 0], np.int8)
    assert queued_levels(policies, priority, view).tolist() == [1, 1, 0, 0]
    level, next_change_s = running_levels(policies, priority, view)
    assert level.tolist() == [1, 2, 0, 0], "the first one is being set up: it has received nothing in this attempt"
    assert next_change_s == 1000.0


def test_a_level_that_is_none_is_refused() -> None:
    view = attempt(1e9, remaining_s=5.0)
    with pytest.raises(ValueError, match=f"the level policy expected_end gave levels .* from 0 to {WORST_LEVEL}"):
        queued_levels([ExpectedEnd()] * 7, np.zeros(1, np.int8), view)


def test_every_policy_is_one_file_that_says_what_it_does_and_is_registered_under_its_name() -> None:
    modules = {info.name for info in pkgutil.iter_modules(levels.__path__)} - {"policy", "assignment"}
    assert modules == set(LEVELS)
    for name, policy in LEVELS.items():
        assert policy.name == name
        assert policy.needs in Knowledge
        text = importlib.import_module(f"global_scheduler.levels.{name}").__doc__ or ""
        for heading in ("Rule: ", "Invariant: ", "Ignores: ", "§"):
            assert heading in text, f"{name} does not say {heading}"
