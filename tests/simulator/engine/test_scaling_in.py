"""Who waits takes flexible tasks of running attempts before it evicts anybody: worked out by hand."""

from __future__ import annotations

import pytest

from domain.fleet import Fleet
from domain.identifiers import TenantId, WorkloadId
from formats.trace import TraceRow
from formats.trace_workload import JOB_NAME
from simulator.inputs.actions import ResizeAt
from simulator.policies.registry import policies
from tests.simulator.engine.checked_run import CheckedRun, checked_run, machine, region, row

W = WorkloadId("w")
ONE_MACHINE = Fleet((region("east", [machine("e0", 4)]),))
GROWS_AT_100 = [ResizeAt(100.0, W, JOB_NAME, 4)]


def elastic(name: str, submit_s: float, duration_s: float) -> TraceRow:
    """Tasks of one GPU, one to four."""
    return TraceRow(WorkloadId(name), TenantId("t"), submit_s, duration_s, 1, tasks=1, min_tasks=1, max_tasks=4)


def sizes(run: CheckedRun) -> list[tuple[float, int]]:
    """When w was resized, and to how many tasks."""
    return [
        (float(str(event["t"])), len(placement))
        for event in run.log
        if event["event"] == "resized" and isinstance(placement := event["placement"], list)
    ]


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "easy_backfill"])
def test_a_newcomer_starts_at_once_on_what_it_needs_of_a_grown_attempt(policy: str) -> None:
    """w has done 100 + 4 * 100 s when v comes at 200 and takes two of its tasks; it ends at 200 + 1500 / 2."""
    rows = [elastic("w", 0.0, 2000.0), row("v", 200.0, 3000.0, 2)]
    run = checked_run(policies()[policy], rows, ONE_MACHINE, actions=GROWS_AT_100)
    assert run.starts()["v"] == 200.0
    assert sizes(run) == [(100.0, 4), (200.0, 2)]
    assert {name: end for name, _, end, _ in run.by_name()}["w"] == 950.0
    assert not [event for event in run.log if event["event"] == "evicting"]


def test_base_tasks_go_only_to_whom_they_may() -> None:
    """Three of four GPUs are flexible: v, which asks for all, waits for the end of w."""
    rows = [elastic("w", 0.0, 2000.0), row("v", 200.0, 300.0, 4)]
    run = checked_run(policies()["fifo"], rows, ONE_MACHINE, actions=GROWS_AT_100)
    assert sizes(run) == [(100.0, 4)]
    assert run.starts()["v"] == 100.0 + 1900.0 / 4
