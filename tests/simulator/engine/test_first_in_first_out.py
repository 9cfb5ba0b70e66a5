"""First in, first out, against simulators of a few lines that share nothing with ours.

The rule of placement of the oracle for machines of four GPUs, argued from scratch: jobs have 1, 2 or a multiple of 4
GPUs. A larger one is cut into tasks of 4, the fewest equal ones that fit, so each takes a wholly idle machine; a
smaller one is one task, and goes where the fewest GPUs stay idle. Machines with equally many idle GPUs are alike, so
nothing but the numbers of idle GPUs matters, and no tie needs a rule.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from heapq import heappop, heappush
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.trace import TraceRow
from simulator.policies.registry import policies
from tests.simulator.engine.checked_run import CheckedRun, checked_run, one_region, row

TRACES = Path(os.environ.get("TOPMAST_TRACES", Path(__file__).parents[4] / "shared" / "traces"))
SAMPLE = TRACES / "tiresias_60_jobs.csv"


def on_one_machine(jobs: Sequence[TraceRow], gpus: int) -> dict[str, tuple[float, float]]:
    """Start and end of jobs of one GPU each on one machine: whoever comes first takes the GPU that is free first."""
    free_s = [0.0] * gpus
    times = {}
    for job in sorted(jobs, key=lambda job: (job.submit_s, job.workload_id)):
        begins_s = max(job.submit_s, heappop(free_s))
        heappush(free_s, begins_s + job.duration_s)
        times[str(job.workload_id)] = (begins_s, begins_s + job.duration_s)
    return times


def on_machines_of_four(jobs: Sequence[TraceRow], machines: int, *, blocking: bool) -> dict[str, tuple[float, float]]:
    """Start and end of gangs, without preemption; `blocking`: nobody passes the first that finds no room."""
    idle = [4] * machines
    to_come = sorted(jobs, key=lambda job: (job.submit_s, job.workload_id))
    queue: list[TraceRow] = []
    running: list[tuple[float, dict[int, int]]] = []
    times: dict[str, tuple[float, float]] = {}
    while to_come or running:
        now = min([job.submit_s for job in to_come[:1]] + [end_s for end_s, _ in running])
        for taken in [taken for end_s, taken in running if end_s == now]:
            for machine, gpus in taken.items():
                idle[machine] += gpus
        running = [(end_s, taken) for end_s, taken in running if end_s > now]
        queue += [job for job in to_come if job.submit_s == now]
        to_come = [job for job in to_come if job.submit_s > now]
        for job in list(queue):
            found = _place(idle, job.gpus)
            if found is not None:
                queue.remove(job)
                running.append((now + job.duration_s, found))
                times[str(job.workload_id)] = (now, now + job.duration_s)
            elif blocking:
                break
    return times


def _place(idle: list[int], gpus: int) -> dict[int, int] | None:
    """Takes the GPUs, by machine; None when there is no room."""
    each = min(gpus, 4)
    order = sorted((left, machine) for machine, left in enumerate(idle) if left >= each)
    chosen = [machine for _, machine in order[: gpus // each]]
    if len(chosen) < gpus // each:
        return None
    for machine in chosen:
        idle[machine] -= each
    return dict.fromkeys(chosen, each)


def seen(run: CheckedRun) -> dict[str, tuple[float, float]]:
    return {name: (start_s, end_s) for name, start_s, end_s, _ in run.by_name()}


def assert_same_times(came: dict[str, tuple[float, float]], expected: dict[str, tuple[float, float]]) -> None:
    assert came.keys() == expected.keys()
    assert came, "no jobs at all"
    differing = {
        name: (came[name], expected[name]) for name in came if came[name] != pytest.approx(expected[name], abs=1e-6)
    }
    assert differing == {}


def compare(jobs: Sequence[TraceRow], machines: int) -> int:
    """Holds both policies against the oracle, job by job; returns how often a job had to wait."""
    waited = 0
    for policy, blocking in (("fifo", False), ("yarn_cs", True)):
        expected = on_machines_of_four(jobs, machines, blocking=blocking)
        assert_same_times(seen(checked_run(policies()[policy], jobs, one_region(machines, 4))), expected)
        waited += sum(1 for job in jobs if expected[str(job.workload_id)][0] > job.submit_s)
    return waited


def tiresias_like(seed: int, count: int) -> list[TraceRow]:
    """Sizes as in the sample of 60: half of one GPU, the rest of 2, 4 and 8; arrivals closer, so that jobs wait."""
    rng = np.random.default_rng(seed)
    arrivals_s = np.cumsum(rng.integers(0, 40, count)).tolist()
    gpus = rng.choice([1, 2, 4, 8], size=count, p=[0.49, 0.17, 0.17, 0.17]).tolist()
    durations_s = rng.choice([120, 147, 164, 513, 1200, 4000], size=count).tolist()
    return [row(f"j{n:03}", float(arrivals_s[n]), float(durations_s[n]), gpus[n]) for n in range(count)]


@pytest.mark.skipif(
    not SAMPLE.exists(), reason="the sample trace is not on this machine (TOPMAST_TRACES names its folder)"
)
@pytest.mark.parametrize("machines", [2, 3, 5, 8])
def test_the_sample_of_60_jobs_job_by_job(machines: int) -> None:
    with SAMPLE.open(newline="") as file:
        cells = list(csv.DictReader(file))
    jobs = [row(f"j{int(c['job_id']):02}", float(c["submit_s"]), float(c["duration_s"]), int(c["gpus"])) for c in cells]
    assert len(jobs) == 60
    assert compare(jobs, machines) > 0 or machines == 8


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_trace_like_it_job_by_job(seed: int) -> None:
    assert compare(tiresias_like(seed, 120), 4) > 50


@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 40), st.sampled_from((1, 1, 2, 4, 8, 12))), min_size=1, max_size=25
    ),
    machines=st.integers(3, 4),
)
def test_never_another_start_than_the_oracles(jobs: list[tuple[int, int, int]], machines: int) -> None:
    compare([row(f"j{n:02}", float(at), float(runs), gpus) for n, (at, runs, gpus) in enumerate(jobs)], machines)


@given(
    jobs=st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 50)), min_size=1, max_size=25),
    gpus=st.integers(1, 4),
)
def test_never_another_start_than_the_first_free_gpus(jobs: list[tuple[float, float]], gpus: int) -> None:
    rows = [row(f"j{n:02}", at, runs) for n, (at, runs) in enumerate(jobs)]
    for policy in ("fifo", "yarn_cs", "best_effort"):
        assert_same_times(seen(checked_run(policies()[policy], rows, one_region(1, gpus))), on_one_machine(rows, gpus))
