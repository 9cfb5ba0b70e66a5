"""Lyra §5.1, Tables 2 and 4, as runs of the simulator: rounds every second, eight GPUs, two elastic jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.fleet import Fleet
from domain.identifiers import TenantId, WorkloadId
from formats.trace import TraceRow
from regional_scheduler.adjustment import ElasticPolicy
from regional_scheduler.elastic.afs import AfsElastic
from regional_scheduler.elastic.gandiva import GandivaElastic
from regional_scheduler.elastic.lyra import LyraElastic
from simulator.policies.registry import policies
from tests.simulator.engine.checked_run import NO_COSTS, CheckedRun, checked_run, machine, region

FIFO = policies()["fifo"]
EIGHT_WORKERS = Fleet((region("r", [machine("m0", 8)]),))
AS_IN_THE_PAPER = LyraElastic(resize_pause_s=1.0, loss_weight=1.0)
"""All but its second: without any price jobs that gain alike would exchange tasks in every round."""
EVERY_SECOND = NO_COSTS.model_copy(update={"round_s": 1.0})


def job(name: str, base: int, most: int, shortest_s: float) -> TraceRow:
    """A job of w_min and w_max workers; its duration is that with w_min."""
    duration_s = shortest_s * most / base
    row = TraceRow(WorkloadId(name), TenantId("t"), 0.0, duration_s, gpus=base, tasks=base)
    return replace(row, min_tasks=base, max_tasks=most)


TABLE_2 = (job("A", 2, 6, 50.0), job("B", 2, 6, 20.0))
TABLE_4 = (job("A", 2, 3, 100.0), job("B", 2, 6, 20.0))


def run(elastic: ElasticPolicy | None, *rows: TraceRow) -> CheckedRun:
    return checked_run(replace(FIFO, elastic=elastic), rows, EIGHT_WORKERS, settings=EVERY_SECOND)


def test_table_4_favours_a() -> None:
    done = run(AS_IN_THE_PAPER, *TABLE_4)
    assert done.ends() == pytest.approx({"A": 100.0, "B": 24.0})
    assert done.mean_jct_s() == pytest.approx(62.0)


def test_table_2_comes_between_solutions_1_and_3() -> None:
    done = run(AS_IN_THE_PAPER, *TABLE_2)
    # When B is done A gets the sixth worker.
    assert done.ends() == pytest.approx({"A": 56.67, "B": 40.0}, abs=0.005)
    assert [record["t"] for record in done.log if record["event"] == "resized"] == [0.0, 0.0, 40.0]


def test_without_scaling_jobs_have_their_base_demand() -> None:
    assert run(None, *TABLE_2).ends() == {"A": 150.0, "B": 60.0}


def test_gandiva_favours_whoever_came_first() -> None:
    """Solution 1 of Table 3."""
    assert run(GandivaElastic(), *TABLE_2).mean_jct_s() == pytest.approx(51.67, abs=0.005)


def test_afs_favours_the_least_work_of_equal_throughput() -> None:
    """Solution 2 of Table 3, and in Table 4 what is worse by 1.33 s."""
    assert run(AfsElastic(), *TABLE_2).mean_jct_s() == pytest.approx(41.67, abs=0.005)
    assert run(AfsElastic(), *TABLE_4).mean_jct_s() == pytest.approx(63.33, abs=0.005)


def test_who_waits_gets_base_tasks_before_anybody_gets_flexible_ones() -> None:
    """§5.2: base demands are "first class citizens": flexible tasks make room for them."""
    late = replace(job("C", 4, 4, 10.0), submit_s=5.0)
    done = run(AS_IN_THE_PAPER, *TABLE_2, late)
    assert done.starts()["C"] == 5.0
    assert not [record for record in done.log if record["event"] == "evicting"]
