"""Figures of runs that can be worked out by hand, and laws that hold for all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.results.figures import RunCost, figures_of
from simulator.results.group_figures import gpu_classes
from simulator.results.record_of_log import record_of_log
from simulator.results.run_record import RunCounts
from simulator.results.waits import waits_of
from tests.simulator.log_builder import FLEET, LogBuilder, job, task
from tests.simulator.results.small_runs import SmallRequest, asked_at_random, run_of
from tests.simulator.stories import preemption


def test_fifo_on_one_machine_is_what_a_ten_line_oracle_says(generator: np.random.Generator) -> None:
    asked = [replace(one, gpus=8) for one in asked_at_random(generator, 300, load=0.8, gpus=8, greatest=8)]
    free_s, waited, completed = 0.0, [], []
    for one in asked:
        begins = max(free_s, one.submitted_s)
        free_s = begins + one.work_s
        waited.append(begins - one.submitted_s)
        completed.append(free_s - one.submitted_s)
    figures = figures_of(run_of(asked, machines=1))
    assert figures.completed == 300
    assert figures.jct_s.mean == pytest.approx(np.mean(completed))
    assert figures.queueing_s.mean == pytest.approx(np.mean(waited))
    assert figures.queueing_s.p95 == pytest.approx(sorted(waited)[284])
    assert figures.queueing_s.max == pytest.approx(max(waited))
    assert figures.start_latency_s == figures.queueing_s
    assert figures.makespan_s == pytest.approx(free_s - asked[0].submitted_s)
    assert figures.preemptions == 0
    busy = sum(one.work_s for one in asked) / figures.makespan_s
    assert figures.gpu_allocation_rate == pytest.approx(busy)
    assert figures.gpu_utilisation == pytest.approx(busy)


def test_a_preemption_by_hand() -> None:
    """`low` and `top` ask for 4 of 12 GPUs; `low` works 35 s, makes room, and 100 s later has done 135 of its 100."""
    figures = figures_of(record_of_log(preemption().records, FLEET), slo_limits_s=(1.0, 4.0, 5.0, 1.0, 1.0, 1.0, 1.0))
    assert (figures.preemptions, figures.preempted_gpu_s, figures.lost_work_gpu_s) == (1, 35 * 4.0, 0.0)
    assert figures.evictions == {
        "preempted": 1,
        "machine_lost": 0,
        "drained": 0,
        "reclaimed": 0,
        "migrated": 0,
        "change_refused": 0,
    }
    # top waited from 1030 to 1035, low not at all: neither at first nor after its eviction.
    assert figures.queueing_s.max == 5.0
    assert figures.queueing_s.mean == 2.5
    assert figures.slo_violation_rate["1"] == 1.0
    assert figures.slo_violation_rate["3"] == 0.0
    assert figures.slo_violation_rate["0"] is None
    assert figures.by_priority["3"].preemptions == 1
    assert figures.by_tenant["vision"].gpu_s == 35 * 4 + 100 * 4
    # Reserved twice on e1 from 1030 to 1035: one set of GPUs. Then both run for 100 s.
    assert figures.gpu_allocation_rate == pytest.approx((35 * 4 + 100 * 8) / (135 * 12))


def test_work_after_the_last_checkpoint_is_lost() -> None:
    log = LogBuilder().submit("w1").run("w1", task("e1", [0, 1])).wait(50).checkpoint("w1", 40.0).wait(20)
    log = log.machine("machine_down", "e1").evict("w1", "machine_lost", progress=70.0, checkpoint_progress=40.0)
    log = log.wait(30).dispatch("w1", task("e2", [0, 1]), attempt=2).start("w1", attempt=2, progress=40.0)
    figures = figures_of(record_of_log(log.wait(60).complete("w1", attempt=2).records, FLEET))
    assert figures.lost_work_gpu_s == 30 * 2
    assert figures.evictions["machine_lost"] == 1
    assert figures.queueing_s.mean == 30.0
    # 12 GPUs for 160 s, but for e1's 4 in the last 90; 100 s of work on 2 GPUs were kept.
    available = 12 * 160 - 4 * 90
    assert figures.gpu_utilisation == pytest.approx(200 / available)
    assert figures.gpu_allocation_rate == pytest.approx((70 + 60) * 2 / available)


def test_overloaded_is_when_more_is_asked_for_than_there_is() -> None:
    """Two workloads of 8 GPUs on one machine of 8: both are there for 100 s, one for 100 s more, then none until 300."""
    asked = [SmallRequest(0.0, 100.0, 8), SmallRequest(0.0, 100.0, 8), SmallRequest(300.0, 50.0, 4)]
    figures = figures_of(run_of(asked, machines=1))
    assert figures.overloaded_s == 100.0
    assert figures.gpu_allocation_rate_when_overloaded == 1.0
    assert figures.gpu_allocation_rate == pytest.approx((200 * 8 + 50 * 4) / (350 * 8))


def test_nothing_to_tell_is_null_and_not_zero() -> None:
    figures = figures_of(record_of_log(LogBuilder().submit("w1").wait(10).cancel("w1").records, FLEET)).as_json()
    assert figures["jct_s"] == {"count": 0, "mean": None, "p50": None, "p95": None, "p99": None, "max": None}
    for name in ("makespan_s", "negative_cache_hit_rate", "wall_s", "events", "events_per_s", "peak_rss_mib"):
        assert figures[name] is None
    assert figures["gpu_allocation_rate_when_overloaded"] is None
    assert figures["gpu_allocation_rate"] == 0.0


def test_what_the_run_took_is_reported_when_it_was_measured(generator: np.random.Generator) -> None:
    record = run_of(asked_at_random(generator, 50, load=0.5, gpus=32, greatest=8))
    record = replace(record, counts=RunCounts(events=500, cache_lookups=10, cache_hits=8))
    figures = figures_of(record, RunCost(wall_s=2.0, peak_rss_mib=80.0))
    assert (figures.events_per_s, figures.peak_rss_mib, figures.negative_cache_hit_rate) == (250.0, 80.0, 0.8)


def test_groups_are_parts_of_the_whole(generator: np.random.Generator) -> None:
    record = run_of(asked_at_random(generator, 2_000, load=1.1, gpus=32, greatest=8), policy="urgent")
    figures = figures_of(record)
    assert figures.preemptions > 50
    assert figures.lost_work_gpu_s > 0
    for groups in (figures.by_tenant, figures.by_priority, figures.by_region, figures.by_gpus):
        assert len(groups) > 1
        assert sum(group.completed for group in groups.values()) == figures.completed
        assert sum(group.preemptions for group in groups.values()) == figures.preemptions
        assert sum(group.lost_work_gpu_s for group in groups.values()) == pytest.approx(figures.lost_work_gpu_s)
        mean = sum(group.jct_s.mean * group.completed for group in groups.values()) / figures.completed
        assert mean == pytest.approx(figures.jct_s.mean)
        assert max(group.queueing_s.max for group in groups.values()) == figures.queueing_s.max
    assert figures.by_priority["0"].queueing_s.mean < figures.by_priority["6"].queueing_s.mean


def test_waits_are_kept_apart() -> None:
    """Never ran and waits; ran, was evicted and waits; runs; was cancelled in the queue."""
    log = LogBuilder().submit("never").submit("again").submit("runs").submit("gone")
    log = log.run("again", task("e1", [0, 1])).run("runs", task("e2", [0, 1])).wait(10)
    log = log.evict("again", "drained", progress=10.0).wait(5).cancel("gone").wait(20)
    record = record_of_log(log.checkpoint("runs", 1.0).records, FLEET)
    waits = waits_of(record)
    reported = {
        (record.workloads.ids[workload], bool(ran), bool(again)): seconds
        for workload, ran, again, seconds in zip(waits.workload, waits.ran, waits.again, waits.seconds, strict=True)
    }
    assert reported == {
        ("again", True, False): 0.0,
        ("runs", True, False): 0.0,
        ("never", False, False): 35.0,
        ("again", False, True): 25.0,
        ("gone", False, False): 15.0,
    }


def test_an_attempt_that_never_ran_ends_no_wait() -> None:
    log = LogBuilder().submit("w1").wait(10).dispatch("w1", task("e1", [0, 1])).wait(10).evict("w1", "drained").wait(10)
    log = log.run("w1", task("e2", [0, 1]), attempt=2).wait(100).complete("w1", attempt=2)
    figures = figures_of(record_of_log(log.records, FLEET))
    assert (figures.queueing_s.mean, figures.attempts) == (30.0, 2)


def test_classes_by_gpus_end_at_powers_of_two() -> None:
    names, classes = gpu_classes(np.array([0, 1, 2, 3, 4, 5, 8, 9, 64, 65]))
    assert [names[place] for place in classes] == [
        "0", "1", "2", "3-4", "3-4", "5-8", "5-8", "9-16", "33-64", "65-128",
    ]  # fmt: skip


@pytest.mark.parametrize("limits_s", [(), (1.0,) * 6, (1.0,) * 6 + (0.0,), (1.0,) * 6 + (float("nan"),)], ids=str)
def test_limits_must_be_limits(limits_s: tuple[float, ...]) -> None:
    record = record_of_log(LogBuilder().submit("w1", job(1, 1)).records, FLEET)
    with pytest.raises(ValueError, match="must be 7 positive numbers of seconds"):
        figures_of(record, slo_limits_s=limits_s)
