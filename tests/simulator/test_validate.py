"""Good logs, and what the validator's report says of them. The broken ones are in the files beside this one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from domain.eviction import EvictionRule
from simulator.validate import validate, validate_log
from simulator.validation.report import Invariant
from tests.simulator.log_builder import FLEET, TABLES, TENANTS, LogBuilder, job, task
from tests.simulator.stories import ON_E1, ON_E2, ON_W1, log, preemption

ALL_OF_E1 = task("e1", [0, 1, 2, 3])

GOOD: dict[str, LogBuilder] = {
    "one workload": log().submit("w").run("w", ON_E1).wait(100).complete("w"),
    "preemption": preemption(),
    "preemption within a priority, by level": (
        log()
        .submit("old", job(1, 4, gpu_model="V100"))
        .dispatch("old", task("w1", [0, 1, 2, 3]), region="west", level=2)
        .start("old")
        .submit("new", job(1, 4, gpu_model="V100"))
        .dispatch("new", task("w1", [0, 1, 2, 3]), region="west", level=1, evicts={"old": 1})
        .evict("old", "preempted", by=("new", 3, 1))
        .start("new")
        .wait(100)
        .complete("new")
        .cancel("old")
    ),
    "an eviction that is written before the dispatch": (
        log()
        .submit("low", job(1, 4, gpu_model="A100"))
        .run("low", ALL_OF_E1)
        .submit("top", job(1, 4, gpu_model="A100"), tenant="ads")
        .evicting("low", "preempted", by=("top", 1, 0))
        .dispatch("top", ALL_OF_E1, evicts={"low": 1})
        .evict("low", "preempted", by=("top", 1, 0))
        .start("top")
        .wait(100)
        .complete("top")
        .cancel("low")
    ),
    "evicted before it started": (
        log()
        .submit("low", job(1, 4, gpu_model="A100"), work_s=None)
        .run("low", ALL_OF_E1)
        .wait(1)
        .evict("low", "reclaimed", progress=7, checkpoint_progress=5)
        .dispatch("low", ALL_OF_E1, attempt=2)
        .submit("top", job(1, 4, gpu_model="A100"), tenant="ads")
        .dispatch("top", ALL_OF_E1, evicts={"low": 2})
        .evict("low", "preempted", attempt=2, progress=5, by=("top", 1, 0))
        .start("top")
        .wait(100)
        .complete("top")
        .dispatch("low", ALL_OF_E1, attempt=3)
        .start("low", attempt=3, progress=5)
        .complete("low", attempt=3, progress=9)
    ),
    "two attempts fail, the third is the last": (
        log()
        .submit("w", work_s=None)
        .run("w", ON_E1)
        .fail("w", final=False, progress=12, checkpoint_progress=10)
        .dispatch("w", ON_W1, attempt=2, region="west")
        .start("w", attempt=2, progress=10)
        .fail("w", final=False, attempt=2, progress=11, checkpoint_progress=10)
        .dispatch("w", ON_E1, attempt=3)
        .fail("w", final=True, attempt=3, progress=10)
    ),
    "given up in the queue": log().submit("w").fail("w", final=True, attempt=None),
    "cancelled in the queue, while running, and when stopped": (
        log()
        .submit("a")
        .submit("b")
        .submit("c")
        .cancel("a")
        .run("b", ON_E1)
        .run("c", ON_E2)
        .evicting("b", "cancelled")
        .wait(3)
        .cancel("b", attempt=1, progress=2.5)
        .evict("c", "cancelled", progress=3)
        .cancel("c")
    ),
    "a machine is lost and comes back": (
        log()
        .submit("w")
        .run("w", ON_E1)
        .wait(10)
        .machine("machine_down", "e1")
        .evict("w", "machine_lost", progress=10, checkpoint_progress=0)
        .machine("machine_up", "e1")
        .run("w", ON_E1, attempt=2)
        .wait(100)
        .complete("w", attempt=2)
    ),
    "a machine is drained": (
        log()
        .submit("w")
        .run("w", ON_E1)
        .wait(10)
        .machine("machine_draining", "e1")
        .evicting("w", "drained")
        .machine("machine_up", "e1")
        .evict("w", "drained", progress=10)
        .cancel("w")
    ),
    "a drain is undone, and made again, while the machine is down": (
        log()
        .submit("w")
        .machine("machine_draining", "e1", deadline_s=50.0)
        .machine("machine_down", "e1")
        .machine("machine_up", "e1", still_down=True)
        .machine("machine_draining", "e1")
        .machine("machine_up", "e1")
        .machine("machine_up", "e1")
        .run("w", ON_E1)
        .wait(100)
        .complete("w")
    ),
    "beyond quota, and then within": (
        log()
        .submit("g", tenant="guests")
        .submit("v")
        .run("g", ON_E1, within_quota=False)
        .run("v", ON_E2, within_quota=False)
        .add("reclassified", workload="v", attempt=1, priority=3, level=0, within_quota=True)
        .wait(100)
        .complete("g")
        .complete("v")
    ),
    "an elastic job grows, shrinks and is faster while it is larger": (
        log()
        .submit("e", job(1, 1, max_tasks=3))
        .run("e", task("e1", [0]))
        .wait(10)
        .add("resized", workload="e", attempt=1, placement=[task("e1", [0]), task("e2", [3], 2)], speed=2.0)
        .wait(20)
        .add("resized", workload="e", attempt=1, placement=[task("e1", [1])], speed=1.0)
        .wait(50)
        .complete("e")
    ),
    "CPUs are tuned": (
        log()
        .submit("a", job(1, 1))
        .submit("b", job(1, 1))
        .run("a", task("e1", [0], cpus=16))
        .run("b", task("e1", [1], cpus=16))
        .add("tuned", workload="a", attempt=1, placement=[task("e1", [0], cpus=8)])
        .add("tuned", workload="b", attempt=1, placement=[task("e1", [1], cpus=24)], speed=1.25)
        .wait(100)
        .complete("a")
        .complete("b")
    ),
    "tables and regions": (
        log()
        .submit("a", tables={"clicks": True, "images": False}, regions=["east", "west"])
        .submit("b", tables={"images": True})
        .run("a", ON_E1)
        .run("b", ON_W1, region="west")
        .wait(100)
        .complete("a")
        .complete("b")
    ),
    "a gang of two jobs": (
        log()
        .submit("g", job(2, 2, name="train"), job(1, 0, name="read", cpus=16, memory_gib=64))
        .run(
            "g",
            task("e1", [2, 3], 0, name="train"),
            task("e2", [0, 1], 1, name="train"),
            task("c1", [], name="read", cpus=16, memory_gib=64),
        )
        .wait(100)
        .complete("g")
    ),
    "numbers from a protocol that knows doubles only": (
        log().submit("w").run("w", {**ON_E1, "task": 0.0, "gpus": [0.0, 1.0]}).wait(100).complete("w")
    ),
    "a start that is recorded after the decision to stop it, and a clock that is a little behind": (
        log()
        .submit("a", work_s=None)
        .dispatch("a", ON_E1)
        .wait(5)
        .evicting("a", "reclaimed")
        .wait(-3)
        .start("a")
        .wait(-0.5)
        .evict("a", "reclaimed")
        .cancel("a")
    ),
    "events of the queue": (
        log()
        .submit("w")
        .add("ranked", workload="w", priority=6, level=0, credit=-3, within_quota=False)
        .add("ranked", workload="w", priority=3, level=0, credit=0.5, within_quota=True)
        .add("waiting", workload="w", reason="no room")
        .add("awaiting_data", workload="w", tables=["clicks"], reason="no region has it")
        .cancel("w")
    ),
}


@pytest.mark.parametrize("builder", GOOD.values(), ids=GOOD)
def test_accepts_a_good_log(builder: LogBuilder) -> None:
    report = builder.validate()
    assert report.valid, str(report)
    assert report.events == len(builder.records)


def test_says_where_and_of_whom() -> None:
    (violation,) = log().submit("a").run("a", ON_E1).wait(99).complete("a").validate().shown
    assert (violation.line, violation.workload, violation.invariant) == (4, "a", Invariant.I9)
    assert str(violation).startswith("I9: line 4, workload a: attempt 1 of a says it did 100")


def test_counts_all_but_shows_the_first() -> None:
    builder = log().submit("a").cancel("a")
    for _ in range(500):
        builder.cancel("a")
    report = validate(builder.records, FLEET, TENANTS, tables=TABLES, complete=True, greatest_shown=3)
    assert (report.violations, len(report.shown)) == (500, 3)
    assert report.violations_by_invariant == {Invariant.I8: 500}
    assert str(report).endswith("and 497 more violations")


def test_counts_what_it_checked() -> None:
    rule = EvictionRule(minimum_run_time_s=30.0, evictions_per_workload_and_hour=1)
    records = preemption().records
    report = validate(records, FLEET, TENANTS, tables=TABLES, complete=True, rule=rule)
    assert (report.events, report.workloads, report.attempts) == (13, 2, 3)
    assert report.events_by_kind["evicted"] == 1
    # I6 is about virtual clusters, of which this fleet has none; I7 about profiles, which are not given; I13 about lost clusters.
    elsewhere = {Invariant.I6, Invariant.I7, Invariant.I13}
    assert all(report.checks[invariant] > 0 for invariant in set(Invariant) - elsewhere), report.checks
    assert report.as_json()["valid"] is True
    assert "holds" in str(report)
    assert "BROKEN" not in str(report)


def test_a_log_that_goes_on_need_not_have_ended() -> None:
    running = log().submit("a").run("a", ON_E1)
    assert running.validate(complete=False).valid
    assert not running.validate(complete=True).valid


def test_an_empty_log_is_never_valid() -> None:
    report = log().validate(complete=False)
    assert (report.events, report.violations, report.valid) == (0, 0, False)
    assert "nothing to validate" in str(report)


def test_gives_everything_back_when_an_attempt_ends() -> None:
    """What one attempt held of machines and quota the next one can have, a hundred times over."""
    builder = log()
    for number in range(100):
        name = f"w{number}"
        builder.submit(name, job(1, 4, gpu_model="A100", cpus=16, memory_gib=256), tenant="ads", work_s=None)
        builder.run(name, task("e1", [0, 1, 2, 3], cpus=32, memory_gib=256))
        match number % 4:
            case 0:
                builder.complete(name)
            case 1:
                builder.fail(name, final=True)
            case 2:
                builder.cancel(name, attempt=1)
            case _:
                builder.evict(name, "reclaimed").cancel(name)
    assert builder.validate().valid


@pytest.mark.parametrize("name", ["events.jsonl", "events.jsonl.gz"])
def test_reads_log_files_and_counts_lines_that_are_no_records(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    lines = [json.dumps(record) for record in preemption().records]
    write = gzip.open if name.endswith("gz") else open
    with write(path, "wt", encoding="utf-8") as stream:
        stream.write("\n".join(lines) + "\n")
    assert validate_log(path, FLEET, TENANTS, tables=TABLES, complete=True).valid
    with write(path, "wt", encoding="utf-8") as stream:
        stream.write("\n".join([*lines, "", "{", "[]", '{"t": ' + "9" * 5000 + "}"]))
    report = validate_log(path, FLEET, TENANTS, tables=TABLES, complete=True)
    assert [(violation.line, violation.invariant) for violation in report.shown] == [
        (line, Invariant.LOG) for line in (14, 15, 16, 17)
    ]
