"""The tables of a run, from logs whose tables are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.problems import FormatError
from simulator.results.conservation import violated_laws
from simulator.results.figures import figures_of
from simulator.results.record_of_log import record_of_log
from simulator.results.run_record import NO_ROW, AttemptEnd, RunRecord, WorkloadEnd
from tests.examples import examples
from tests.simulator.log_builder import FLEET, LogBuilder, job, task
from tests.simulator.reference_run import legal_log
from tests.simulator.stories import preemption


def tables(log: LogBuilder) -> RunRecord:
    return record_of_log(log.records, FLEET, policy="live", trace="by hand", seed=3)


def test_a_preemption_is_in_the_tables_as_it_was_in_the_log() -> None:
    """`low` runs from 1000, is evicted at 1035 for `top`, resumes at once elsewhere; both end at 1135."""
    record = tables(preemption())
    assert (record.policy, record.trace, record.seed) == ("live", "by hand", 3)
    assert record.workloads.ids == ("low", "top")
    assert [record.tenants[tenant] for tenant in record.workloads.tenant] == ["vision", "ads"]
    assert record.workloads.priority.tolist() == [3, 1]
    assert record.workloads.gpus.tolist() == [4, 4]
    assert record.workloads.work_s.tolist() == [100.0, 100.0]
    assert record.workloads.submitted_s.tolist() == [1000.0, 1030.0]
    assert record.workloads.first_started_s.tolist() == [1000.0, 1035.0]
    assert record.workloads.ended_s.tolist() == [1135.0, 1135.0]
    attempts = record.attempts
    assert [(record.workloads.ids[w], n) for w, n in zip(attempts.workload, attempts.number, strict=True)] == [
        ("low", 1), ("top", 1), ("low", 2),
    ]  # fmt: skip
    assert attempts.dispatched_s.tolist() == [1000.0, 1030.0, 1035.0]
    assert attempts.started_s.tolist() == [1000.0, 1035.0, 1035.0]
    assert attempts.ended_s.tolist() == [1035.0, 1135.0, 1135.0]
    assert attempts.end.tolist() == [AttemptEnd.PREEMPTED, AttemptEnd.COMPLETED, AttemptEnd.COMPLETED]
    assert attempts.evicted_by.tolist() == [1, NO_ROW, NO_ROW]
    assert attempts.progress_at_start.tolist() == [0.0, 0.0, 35.0]
    assert attempts.progress_kept.tolist() == [35.0, 100.0, 100.0]
    machines = [record.machines.names[machine] for machine in record.shares.machine]
    assert machines == ["e1", "e1", "e2"]
    assert record.shares.from_s is None
    assert (record.started_s, record.ended_s, record.broken_off) == (1000.0, 1135.0, False)
    assert record.region_gpus == (8, 4)


def test_a_log_that_ends_before_its_workloads_is_a_run_that_was_broken_off() -> None:
    log = LogBuilder().submit("w1").run("w1", task("e1", [0, 1])).wait(30).checkpoint("w1", 25.0).submit("w2")
    record = tables(log.wait(10).machine("machine_down", "w1"))
    assert record.broken_off
    assert record.ended_s == 1040.0
    assert record.workloads.end.tolist() == [WorkloadEnd.RUNNING, WorkloadEnd.QUEUED]
    # Emulated: what it had reached when the log ended, and what of that was saved.
    assert record.attempts.progress_at_end.tolist() == [40.0]
    assert record.attempts.progress_kept.tolist() == [25.0]
    assert np.isnan(record.attempts.ended_s).all()


def test_a_resized_workload_holds_what_it_held_when_it_held_it() -> None:
    """Two GPUs for 10 s, four for 20 s, and two again for 5 s."""
    two, four = [task("e1", [0, 1])], [task("e1", [0, 1]), task("e2", [0, 1], 1)]
    log = LogBuilder().submit("w1", job(1, 2, max_tasks=2)).run("w1", *two)
    for seconds, placement in ((10, four), (20, two)):
        log = log.wait(seconds).add("resized", workload="w1", attempt=1, placement=list(placement), speed=1.0)
    record = tables(log.wait(5).complete("w1", progress=35.0))
    assert record.attempts.gpus.tolist() == [2]
    assert sum(figure.gpu_s for figure in figures_of(record).by_tenant.values()) == 2 * 10 + 4 * 20 + 2 * 5


def test_machines_are_down_from_their_loss_to_their_return() -> None:
    log = (
        LogBuilder()
        .submit("w1")
        .wait(5)
        .machine("machine_down", "e1")
        .machine("machine_down", "c1")
        .wait(10)
        .machine("machine_up", "e1")
        .machine("machine_draining", "e2")
        .machine("machine_up", "e2")
        .wait(5)
        .machine("machine_down", "w1")
        .wait(30)
        .cancel("w1")
    )
    record = tables(log)
    named = [(record.machines.names[machine], begin, end) for machine, begin, end in record.machine_down]
    assert named == [("e1", 1005.0, 1015.0), ("w1", 1020.0, 1050.0)]
    # e1 was away for 10 s, w1 for 30 s, of 12 GPUs and 50 s.
    figures = figures_of(record)
    assert figures.gpu_allocation_rate == 0.0
    assert record.workloads.end.tolist() == [WorkloadEnd.CANCELLED]


def test_work_of_real_training_is_not_known() -> None:
    record = tables(
        LogBuilder().submit("w1", work_s=None).run("w1", task("e1", [0, 1])).wait(100).complete("w1", progress=5000.0)
    )
    assert math.isnan(record.workloads.work_s[0])
    figures = figures_of(record)
    assert figures.gpu_utilisation == figures.gpu_allocation_rate == pytest.approx(2 / 12)


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        (LogBuilder().submit("w1").add("exploded"), "line 2: has event exploded, which is no kind of event"),
        (LogBuilder().submit("w1").add("completed", workload="w1", progress=1.0), "line 2: has no attempt"),
        (LogBuilder().submit("w1").complete("w1"), "line 2: is about attempt 1 of workload w1, which is not live"),
        (LogBuilder().cancel("w1"), "line 1: is about workload w1, which was never submitted"),
        (LogBuilder().submit("w1").submit("w1"), "line 2: submits workload w1 again"),
        (LogBuilder().submit("w1").run("w1", task("e9", [0])), "line 2: names machine e9, which this fleet does not"),
        (LogBuilder().submit("w1").run("w1", task("c1", [0])), "places GPUs on machine c1, which has none"),
        (LogBuilder().submit("w1").run("w1", task("e1", [0]), region="mars"), "names region mars"),
        (LogBuilder().submit("w1").run("w1", task("e1", [0])).cancel("w1"), "while its attempt 1 is live"),
        (LogBuilder(), "has 0 events and no workload"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_log_that_shows_no_run_is_refused_with_its_line(log: LogBuilder, sentence: str) -> None:
    with pytest.raises(FormatError, match=r"^some\.jsonl: ") as refused:
        record_of_log(log.records, FLEET, source="some.jsonl")
    assert sentence in str(refused.value)


@settings(max_examples=examples(15))
@given(st.integers(0, 10_000), st.integers(50, 300))
def test_never_breaks_a_law_on_a_legal_log(seed: int, steps: int) -> None:
    record = record_of_log(legal_log(seed, steps), FLEET)
    assert violated_laws(record) == []
    figures = figures_of(record)
    assert figures.gpu_allocation_rate is not None
    assert 0.0 <= figures.gpu_allocation_rate <= 1.0 + 1e-9
    assert figures.workloads == figures.completed + figures.failed + figures.cancelled


@settings(max_examples=examples(15))
@given(st.integers(0, 10_000), st.integers(50, 300), st.floats(0.1, 0.9))
def test_never_breaks_a_law_on_the_beginning_of_a_legal_log(seed: int, steps: int, share: float) -> None:
    log = legal_log(seed, steps)
    record = record_of_log(log[: max(1, int(len(log) * share))], FLEET)
    assert violated_laws(record) == []
    figures = figures_of(record)
    assert figures.workloads == figures.completed + figures.failed + figures.cancelled + figures.unfinished
    assert figures.broken_off == (figures.unfinished > 0)
