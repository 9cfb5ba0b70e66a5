"""Tiresias §3.1, §5.1, §5.2 and §5.3, sentence by sentence: the policies that it compares with, and what they are like."""

from __future__ import annotations

import numpy as np
import pytest

from formats.trace import TraceRow
from global_scheduler.levels.attained_service import AttainedService
from simulator.baselines.las import LAS
from simulator.policies.registry import policies
from simulator.results.run_record import AttemptEnd
from tests.simulator.engine.checked_run import CheckedRun, checked_run, one_region, row

MACHINES = 5


def run(policy: str, rows: list[TraceRow], machines: int = MACHINES) -> CheckedRun:
    """On machines of four GPUs, without any overhead, as in §5.3."""
    return checked_run(policies()[policy], rows, one_region(machines, 4))


def heavy_tailed(seed: int, count: int = 150) -> list[TraceRow]:
    """Like §2.1 and the sample of its simulator: most jobs small and short, a few large or very long."""
    rng = np.random.default_rng(seed)
    arrivals_s = np.cumsum(rng.exponential(150.0, count))
    gpus = rng.choice([1, 2, 4, 8], size=count, p=[0.5, 0.16, 0.17, 0.17])
    durations_s = rng.lognormal(5.8, 1.7, count)
    return [
        row(f"j{number:03}", float(arrivals_s[number]), float(min(durations_s[number], 60_000.0)), int(gpus[number]))
        for number in range(count)
    ]


def test_one_must_employ_preemption_to_avoid_head_of_line_blocking() -> None:
    """One must employ preemption to avoid head-of-line (HOL) blocking of smaller/shorter jobs by the larger/longer
    ones (§3.1)."""
    rows = [row("long", 0.0, 50_000.0, 20), row("short", 900.0, 60.0, 1)]
    waits = {policy: run(policy, rows).starts()["short"] - 900.0 for policy in ("yarn_cs", "las", "srtf")}
    assert waits == {"yarn_cs": 49_100.0, "las": 0.0, "srtf": 0.0}


def test_best_effort_is_yarn_cs_without_blocking() -> None:
    """Best-effort is defined as YARN-CS but without HOL blocking – i.e., it allows small jobs to jump in front of large
    jobs that do not have enough available GPUs (§5.3)."""
    rows = [row("a", 0.0, 100.0, 3), row("large", 10.0, 100.0, 4), row("small", 20.0, 10.0, 1)]
    assert run("yarn_cs", rows, 1).starts() == {"a": 0.0, "large": 100.0, "small": 200.0}
    assert run("best_effort", rows, 1).starts() == {"a": 0.0, "large": 100.0, "small": 20.0}


def test_two_queues_with_a_threshold_of_3200_gpu_seconds() -> None:
    """For Tiresias, there are two priority queues with a threshold of 3200 GPU seconds (§5.2)."""
    assert LAS.levels == AttainedService((3200.0,))
    for gpus in (1, 2, 4):
        rows = [row("old", 0.0, 5000.0, gpus), row("new", 1.0, 10.0, gpus)]
        result = checked_run(LAS, rows, one_region(1, gpus))
        assert result.starts()["new"] == 3200.0 / gpus, "demoted when W × t crosses the threshold"


def test_the_remaining_service_is_time_times_gpus() -> None:
    """The remaining service in SRSF is the multiplication of a job's remaining time and the number of GPUs (§3.1)."""
    # Of the two that wait: wide has 4 × 50 = 200 GPU-seconds, narrow 1 × 110.
    rows = [row("first", 0.0, 20.0, 4), row("wide", 1.0, 50.0, 4), row("narrow", 2.0, 110.0, 1)]
    assert run("srsf", rows, 1).starts() == {"first": 0.0, "wide": 130.0, "narrow": 20.0}
    assert run("srtf", rows, 1).starts() == {"first": 0.0, "wide": 20.0, "narrow": 70.0}


def test_large_jobs_with_short_remaining_time_occupy_many_gpus() -> None:
    """In an SRTF scheduler, large jobs with short remaining time can occupy many GPUs, causing non-negligible queuing
    delays for many small but newly submitted jobs (§3.1)."""
    rows = [row("large", 0.0, 100.0, 4), *(row(f"small{n}", 5.0, 110.0, 1) for n in range(4))]
    assert {run("srtf", rows, 1).starts()[f"small{n}"] for n in range(4)} == {100.0}
    assert {run("srsf", rows, 1).starts()[f"small{n}"] for n in range(4)} == {5.0}


def test_smallest_first_may_block_large_jobs_by_a_stream_of_small_ones() -> None:
    """If the scheduler is smallest-first, then large jobs may be blocked by a stream of small jobs (§3.1)."""
    stream = [row(f"s{n:02}", 50.0 * n, 100.0, 2) for n in range(40)]
    large = row("large", 60.0, 10.0, 4)
    assert run("sf", [*stream, large], 1).starts()["large"] >= 50.0 * 39 + 100.0
    assert run("yarn_cs", [*stream, large], 1).starts()["large"] == 150.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_without_knowledge_close_to_full_knowledge_and_far_from_none(seed: int) -> None:
    """Tiresias-L improves the average JCT by 2.4×, 1.5×, and 2× over YARN-CS, Best-effort, and Gandiva. [...] Tiresias
    performs similar to SRTF that uses complete knowledge (§5.3.2). Here by the order, on a trace of our own."""
    rows = heavy_tailed(seed)
    mean_s = {policy: run(policy, rows).mean_jct_s() for policy in ("las", "srtf", "srsf", "best_effort", "yarn_cs")}
    assert mean_s["srtf"] <= mean_s["las"] < mean_s["best_effort"] < mean_s["yarn_cs"]
    assert mean_s["las"] < 1.6 * mean_s["srtf"]
    assert mean_s["yarn_cs"] > 1.4 * mean_s["las"]


def test_continuous_priorities_preempt_where_two_queues_do_not() -> None:
    """Job priorities in SRTF are continuous. Whenever short jobs come in, jobs with longer remaining time (lower
    priorities) may be preempted (§5.2.4)."""
    rows = [row(f"j{n}", 10.0 * n, 700.0 - 100.0 * n, 4) for n in range(6)]
    preempted = {
        policy: int((run(policy, rows, 1).record.attempts.end == AttemptEnd.PREEMPTED).sum())
        for policy in ("srtf", "las", "yarn_cs", "best_effort")
    }
    assert preempted == {"srtf": 5, "las": 0, "yarn_cs": 0, "best_effort": 0}, "none has 3,200 GPU-seconds so soon"
