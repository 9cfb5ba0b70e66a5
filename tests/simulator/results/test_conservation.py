"""Every law is seen to be broken when it is, and kept by runs that are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.results.conservation import ConservationBroken, check_conservation, violated_laws
from simulator.results.run_record import AttemptEnd, RunRecord, WorkloadEnd
from tests.simulator.results.small_runs import asked_at_random, run_of


@pytest.fixture(params=["fifo", "sjf", "urgent"])
def record(request: pytest.FixtureRequest) -> RunRecord:
    asked = asked_at_random(np.random.default_rng(5), 400, load=1.1, gpus=32, greatest=8)
    return run_of(asked, policy=request.param)


def test_a_right_run_keeps_every_law(record: RunRecord) -> None:
    check_conservation(record)


def test_a_run_that_was_broken_off_keeps_every_law() -> None:
    asked = asked_at_random(np.random.default_rng(5), 400, load=1.1, gpus=32, greatest=8)
    broken_off = run_of(asked, policy="urgent", until_s=asked[300].submitted_s)
    assert broken_off.broken_off
    assert {WorkloadEnd.RUNNING, WorkloadEnd.COMPLETED} <= set(broken_off.workloads.end.tolist())
    assert violated_laws(broken_off) == []


def workloads(record: RunRecord, **columns: object) -> RunRecord:
    return replace(record, workloads=replace(record.workloads, **columns))  # type: ignore[arg-type]  # whatever is wrong


def attempts(record: RunRecord, **columns: object) -> RunRecord:
    return replace(record, attempts=replace(record.attempts, **columns))  # type: ignore[arg-type]  # whatever is wrong


def changed(values: NDArray[Any], row: int, value: float) -> NDArray[Any]:
    copy = values.copy()
    copy[row] = value
    return copy


def later_attempt(record: RunRecord) -> int:
    """A second attempt of a workload, when there is one."""
    return int(np.argmax(record.attempts.number))


def completed_attempt(record: RunRecord) -> int:
    return int(np.flatnonzero(record.attempts.end == AttemptEnd.COMPLETED)[0])


WRONG: dict[str, tuple[Callable[[RunRecord], RunRecord], str]] = {
    "ended-early": (
        lambda run: workloads(run, ended_s=changed(run.workloads.ended_s, 7, run.workloads.submitted_s[7] - 5)),
        "workloads ended before they were submitted: w000007",
    ),
    "ended-late": (
        lambda run: workloads(run, ended_s=changed(run.workloads.ended_s, 7, run.ended_s + 500)),
        "Little's law",
    ),
    "no-end": (
        lambda run: workloads(run, ended_s=changed(run.workloads.ended_s, 7, np.nan)),
        "workloads have an end without its time",
    ),
    "nobody": (
        lambda run: attempts(run, end=changed(run.attempts.end, completed_attempt(run), AttemptEnd.FAILED)),
        "workloads completed without exactly one attempt that did",
    ),
    "work": (
        lambda run: workloads(run, work_s=run.workloads.work_s * 1.01),
        "completed workloads did not do the work asked for",
    ),
    "kept": (
        lambda run: attempts(run, progress_kept=run.attempts.progress_kept + 1),
        "attempts kept more than they had reached",
    ),
    "shares": (
        lambda run: attempts(run, gpus=changed(run.attempts.gpus, 4, 99)),
        "attempts held other GPU-seconds than their shares",
    ),
    "room": (
        lambda run: replace(run, machines=replace(run.machines, gpus=run.machines.gpus - 7)),
        "GPUs, but",
    ),
    "order": (
        lambda run: attempts(run, started_s=run.attempts.started_s - 1),
        "attempts started before they were dispatched",
    ),
    "not-over": (
        lambda run: workloads(run, ended_s=changed(run.workloads.ended_s, 3, np.nan), end=changed(run.workloads.end, 3, WorkloadEnd.RUNNING)),
        "broken_off False, but 1 workloads have not ended",
    ),
    "over": (lambda run: replace(run, broken_off=True), "broken_off True, but 0 workloads have not ended and 0 were"),
    "not-all-submitted": (lambda run: replace(run, not_submitted=2), "broken_off False, but 0 workloads have not ended and 2"),
    "itself": (
        lambda run: attempts(
            run,
            evicted_by=changed(run.attempts.evicted_by, 3, run.attempts.workload[3]),
            end=changed(run.attempts.end, 3, AttemptEnd.PREEMPTED),
        ),
        "attempts made room for their own workload",
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_broken_law_is_named(record: RunRecord, wrong: str) -> None:
    change, sentence = WRONG[wrong]
    with pytest.raises(ConservationBroken) as reported:
        check_conservation(change(record))
    assert sentence in str(reported.value)


def test_a_resumed_attempt_that_knows_too_much_is_named() -> None:
    asked = asked_at_random(np.random.default_rng(5), 400, load=1.1, gpus=32, greatest=8)
    record = run_of(asked, policy="urgent")
    later = later_attempt(record)
    assert record.attempts.number[later] > 1
    begins = changed(record.attempts.progress_at_start, later, record.attempts.progress_at_start[later] + 10)
    reported = "\n".join(violated_laws(attempts(record, progress_at_start=begins)))
    assert "attempts do not begin with what the one before them kept" in reported


def test_attempts_that_overlap_are_named() -> None:
    asked = asked_at_random(np.random.default_rng(5), 400, load=1.1, gpus=32, greatest=8)
    record = run_of(asked, policy="urgent")
    owner = record.attempts.workload[later_attempt(record)]
    first = int(np.flatnonzero(record.attempts.workload == owner)[0])
    reported = "\n".join(
        violated_laws(attempts(record, ended_s=changed(record.attempts.ended_s, first, record.ended_s)))
    )
    assert f"attempts began before the one before them had ended: {record.workloads.ids[owner]}#2" in reported
