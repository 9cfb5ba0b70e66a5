"""Tiresias §3.2.2 and §3.2.3, sentence by sentence: attained service in two dimensions, and its discretised queues."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from global_scheduler.knowledge import Knowledge, KnownWork, PolicyView
from global_scheduler.levels.attained_service import AttainedService
from simulator.baselines.las import LAS
from tests.simulator.engine.checked_run import checked_run, one_region, row

QUEUES = AttainedService((100.0, 1_000.0))
"""K = 3."""


def view(attained_gpu_s: list[float], started_s: list[float], gpus: list[int], now: float) -> PolicyView:
    zeros = np.zeros(len(gpus))
    known = KnownWork(
        np.array(gpus, np.float64), zeros, zeros, np.array(attained_gpu_s), np.array(started_s), zeros, zeros
    )
    return PolicyView(known, now)


def test_attained_service_is_gpus_times_time() -> None:
    """The attained service of a job is calculated based on the number of GPUs it uses (W_j) and the amount of time it
    has been running so far (t_j) (§3.2.2)."""
    level, until_s = QUEUES.running_levels(view([0.0, 0.0], [0.0, 0.0], [1, 4], 50.0))
    assert level.tolist() == [0, 1]
    assert until_s.tolist() == [100.0, 250.0]


def test_no_duration_is_known() -> None:
    """2DAS schedules DL jobs without relying on their exact durations (§3.2.2)."""
    assert LAS.levels is not None
    assert (LAS.levels.needs, LAS.ordering.needs) == (Knowledge.LIVE, Knowledge.LIVE)


def test_all_jobs_start_with_the_highest_priority() -> None:
    """All jobs start with the highest priority, and their priorities decrease as they receive more service (§3.2.2)."""
    assert QUEUES.queued_levels(view([0.0], [np.nan], [8], 1e6)).tolist() == [0]
    levels = [int(QUEUES.running_levels(view([0.0], [0.0], [1], at)).level[0]) for at in (0.0, 99.0, 100.0, 5_000.0)]
    assert levels == [0, 0, 1, 2]


@given(st.floats(0.0, 5_000.0))
def test_the_ith_queue_contains_jobs_of_attained_service_within_its_bounds(attained_gpu_s: float) -> None:
    """The i-th queue contains jobs of attained service values within [Q_i^lo, Q_i^hi) (§3.2.3)."""
    bounds = [0.0, 100.0, 1_000.0, np.inf]
    level = int(QUEUES.queued_levels(view([attained_gpu_s], [np.nan], [1], 0.0))[0])
    assert bounds[level] - 1e-4 <= attained_gpu_s < bounds[level + 1]


def test_a_job_is_demoted_when_its_value_crosses_the_threshold() -> None:
    """A job is demoted to Q_i+1 from Q_i, when its (W_J t_J) value crosses queue threshold Q_i^hi (§3.2.3). It counts
    over all its attempts: what was received before an eviction is not forgotten."""
    rows = [row("old", 0.0, 5_000.0, 2), row("new", 10.0, 600.0, 2), row("newer", 1_700.0, 600.0, 2)]
    result = checked_run(LAS, rows, one_region(1, 2))
    assert result.starts() == {"old": 0.0, "new": 1_600.0, "newer": 2_200.0}, "old waits at the worse level meanwhile"


def test_continuous_priorities_would_preempt_again_and_again() -> None:
    """Using continuous priorities can lead to a sequence of preemptions and subsequent resumptions for all jobs
    (§3.2.3). Here: three jobs that share a machine are preempted once at most, at the threshold."""
    rows = [row(f"j{number}", float(number), 4_000.0, 1) for number in range(3)]
    result = checked_run(LAS, rows, one_region(1, 1))
    attempts = np.bincount(result.record.attempts.workload)
    assert attempts.max() <= 2


@pytest.mark.parametrize("gpus", [1, 4])
def test_jobs_in_the_same_queue_are_first_in_first_out_without_blocking(gpus: int) -> None:
    """Jobs in the same queue are scheduled in a FIFO order [...] without any risk of HOL blocking [...] high-priority
    jobs without enough GPUs must be skipped over (§3.2.3). The order here is that of submission, not of the start."""
    rows = [
        row("runs", 0.0, 100.0, 3),
        row("wide", 1.0, 10.0, 4),
        row("first", 2.0, 10.0, 1),
        row("next", 3.0, 10.0, gpus),
    ]
    starts = checked_run(LAS, rows, one_region(1, 4)).starts()
    assert starts["first"] == 2.0
    assert starts["wide"] == 100.0
    assert starts["next"] == (12.0 if gpus == 1 else 110.0)
