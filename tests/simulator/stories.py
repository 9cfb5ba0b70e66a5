"""Logs that the tests of the validator begin with, and ways to break them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simulator.validation.report import Invariant
from tests.simulator.log_builder import Json, LogBuilder, job, task

ON_E1, ON_E2, ON_W1 = task("e1", [0, 1]), task("e2", [0, 1]), task("w1", [0, 1])

Broken = Mapping[str, tuple[LogBuilder, str]]
"""By what is wrong: the log, and words of the sentence that names it."""


def log() -> LogBuilder:
    return LogBuilder()


def preemption(*, by_priority: int = 1, level: int = 0) -> LogBuilder:
    """`low` (vision) runs on all of e1; `top` (ads) wants it, gets it, and `low` resumes on e2 where it stopped."""
    whole = [0, 1, 2, 3]
    wide = job(1, 4, gpu_model="A100")
    return (
        log()
        .submit("low", wide)
        .dispatch("low", task("e1", whole), level=level)
        .start("low")
        .wait(30)
        .checkpoint("low", 25.0)
        .submit("top", wide, tenant="ads")
        .dispatch("top", task("e1", whole), evicts={"low": 1})
        .evicting("low", "preempted", by=("top", by_priority, 0))
        .wait(5)
        .evict("low", "preempted", progress=35.0, by=("top", by_priority, 0))
        .start("top")
        .dispatch("low", task("e2", whole), attempt=2, level=level)
        .start("low", attempt=2, progress=35.0)
        .wait(100)
        .complete("low", attempt=2)
        .complete("top")
    )


def edited(
    builder: LogBuilder,
    event: str,
    change: Callable[[Json], object],
    *,
    workload: str | None = None,
    last: bool = False,
) -> LogBuilder:
    """The log with one change to its first (or last) event of that kind (of that workload)."""
    found = [
        record
        for record in builder.records
        if record["event"] == event and (workload is None or record.get("workload") == workload)
    ]
    change(found[-1 if last else 0])
    return builder


def moved(builder: LogBuilder, origin: int, target: int) -> LogBuilder:
    """The log with one event at another place, counted from 0."""
    builder.records.insert(target, builder.records.pop(origin))
    return builder


def fields(**changes: object) -> Callable[[Json], object]:
    return lambda record: record.update(changes)  # type: ignore[arg-type]  # whatever the test wants


def sentences_about(builder: LogBuilder, invariant: Invariant) -> list[str]:
    """What the validator says of that invariant; the log must not be valid."""
    report = builder.validate()
    assert not report.valid
    return [violation.sentence for violation in report.shown if violation.invariant is invariant]
