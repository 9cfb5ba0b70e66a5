"""I8, I9 and the log itself, broken on purpose: at least one log for every rule."""

from __future__ import annotations

import pytest

from simulator.validation.report import Invariant
from tests.simulator.log_builder import LogBuilder, job
from tests.simulator.stories import ON_E1, ON_E2, Broken, edited, fields, log, preemption, sentences_about

LIVES: Broken = {
    "never ends": (log().submit("a"), "has not ended: it is in the queue"),
    "still runs at the end": (
        log().submit("a").run("a", ON_E1),
        "has not ended: attempt 1 is live in region east",
    ),
    "submitted twice": (log().submit("a").submit("a").cancel("a"), "is submitted again"),
    "submitted after its end": (
        log().submit("a").cancel("a").submit("a"),
        "is submitted again after it was cancelled (line 2)",
    ),
    "ends twice": (
        log().submit("a").run("a", ON_E1).wait(100).complete("a").complete("a"),
        "has event completed after it completed (line 4)",
    ),
    "goes on after its end": (
        log().submit("a").fail("a", final=True, attempt=None).add("waiting", workload="a", reason="x"),
        "has event waiting after it failed (line 2)",
    ),
    "never submitted": (log().submit("b").cancel("b").cancel("a"), "cancelled, but was never submitted"),
    "two attempts overlap": (
        log().submit("a").run("a", ON_E1).run("a", ON_E2, attempt=2).wait(100).complete("a", attempt=2),
        "is dispatched as attempt 2 while attempt 1 is live: they overlap",
    ),
    "an attempt is left out": (
        log().submit("a").run("a", ON_E1, attempt=2).wait(100).complete("a", attempt=2),
        "is dispatched as attempt 2, but the attempts before it are 0",
    ),
    "an attempt's number comes again": (
        log().submit("a").run("a", ON_E1).evict("a", "reclaimed").run("a", ON_E1).wait(100).complete("a"),
        "is dispatched as attempt 1, but the attempts before it are 1",
    ),
    "a stale attempt reports": (
        log()
        .submit("a")
        .run("a", ON_E1)
        .evict("a", "reclaimed")
        .run("a", ON_E1, attempt=2)
        .checkpoint("a", 0)
        .wait(100)
        .complete("a", attempt=2),
        "has event checkpointed of attempt 1, but attempt 2 is live: a stale attempt",
    ),
    "a stale attempt completes": (
        log().submit("a").run("a", ON_E1).evict("a", "reclaimed").complete("a"),
        "has event completed of attempt 1, but no attempt is live: a stale attempt",
    ),
    "waits in the midst of a migration": (
        log()
        .submit("a")
        .run("a", ON_E1)
        .evict("a", "migrated", to=["e2"], successor=2)
        .add("waiting", workload="a", reason="x")
        .run("a", ON_E2, attempt=2)
        .wait(100)
        .complete("a", attempt=2),
        "has event waiting between its migration and attempt 2",
    ),
    "migrates to another attempt than it says": (
        log()
        .submit("a")
        .run("a", ON_E1)
        .evict("a", "migrated", to=["e2"], successor=3)
        .run("a", ON_E2, attempt=2)
        .wait(100)
        .complete("a", attempt=2),
        "migrates to attempt 3, but is dispatched as attempt 2",
    ),
    "completes without a start": (
        log().submit("a").dispatch("a", ON_E1).wait(100).complete("a"),
        "has event completed of attempt 1 of a, which has not started",
    ),
    "starts twice": (
        log().submit("a").run("a", ON_E1).start("a").wait(100).complete("a"),
        "attempt 1 of a starts again",
    ),
    "cancelled as if it were in the queue": (
        log().submit("a").run("a", ON_E1).cancel("a"),
        "has event cancelled without an attempt, while attempt 1 of a is live",
    ),
    "dispatched after it was stopped for being cancelled": (
        log()
        .submit("a")
        .run("a", ON_E1)
        .evict("a", "cancelled")
        .run("a", ON_E1, attempt=2)
        .wait(100)
        .complete("a", attempt=2),
        "is dispatched as attempt 2 although it was evicted because it had been cancelled",
    ),
}


@pytest.mark.parametrize(("builder", "words"), LIVES.values(), ids=LIVES)
def test_names_what_is_broken_in_lives(builder: LogBuilder, words: str) -> None:
    found = sentences_about(builder, Invariant.I8)
    assert any(words in sentence for sentence in found), found


PROGRESS: Broken = {
    "starts with more than was kept": (
        edited(preemption(), "started", fields(progress=36.0), last=True),
        "attempt 2 of low starts at progress 36, but 35 was kept before it",
    ),
    "starts with less than was kept": (
        edited(preemption(), "started", fields(progress=25.0), last=True),
        "attempt 2 of low starts at progress 25, but 35 was kept before it",
    ),
    "the first attempt starts with something": (
        log().submit("a", work_s=None).dispatch("a", ON_E1).start("a", progress=1).complete("a"),
        "attempt 1 of a starts at progress 1, but 0 was kept before it",
    ),
    "faster than the clock": (
        log().submit("a").run("a", ON_E1).wait(99).complete("a"),
        "attempt 1 of a says it did 100 (from 0 to 100), but in the 99 s since it started",
    ),
    "a checkpoint faster than the clock": (
        log().submit("a").run("a", ON_E1).wait(10).checkpoint("a", 11).wait(90).complete("a"),
        "says it did 11 (from 0 to 11)",
    ),
    "faster than its speed": (
        log()
        .submit("a")
        .run("a", ON_E1)
        .wait(10)
        .add("tuned", workload="a", attempt=1, placement=[ON_E1], speed=0.5)
        .wait(90)
        .complete("a"),
        "(from 0 to 100), but in the 90 s since it started or changed at most: 55 was possible",
    ),
    "work without a start": (
        log()
        .submit("a", work_s=None)
        .dispatch("a", ON_E1)
        .wait(10)
        .fail("a", final=True, progress=1, checkpoint_progress=0),
        "says it did 1 (from 0 to 1), but it never started",
    ),
    "completes with work left": (
        log().submit("a").run("a", ON_E1).wait(100).complete("a", progress=99),
        "completes with progress 99 of 100 seconds of work",
    ),
    "more than all of the work": (
        log().submit("a").run("a", ON_E1).wait(200).evict("a", "reclaimed", progress=101).cancel("a"),
        "attempt 1 of a is at progress 101, but there are 100 seconds of work",
    ),
    "keeps more than it reached": (
        log()
        .submit("a", work_s=None)
        .run("a", ON_E1)
        .evict("a", "reclaimed", progress=5, checkpoint_progress=6)
        .cancel("a"),
        "attempt 1 of a reached progress 5, but 6 of it is kept",
    ),
    "a checkpoint is lost": (
        log()
        .submit("a", work_s=None)
        .run("a", ON_E1)
        .checkpoint("a", 5)
        .evict("a", "reclaimed", progress=7, checkpoint_progress=4)
        .cancel("a"),
        "attempt 1 of a keeps progress 4, but a checkpoint of 5 was there",
    ),
    "a checkpoint behind the one before it": (
        log().submit("a", work_s=None).run("a", ON_E1).checkpoint("a", 5).checkpoint("a", 4).complete("a"),
        "attempt 1 of a keeps progress 4, but a checkpoint of 5 was there",
    ),
    "ends behind its checkpoint": (
        log().submit("a", work_s=None).run("a", ON_E1).checkpoint("a", 5).complete("a", progress=3),
        "attempt 1 of a is at progress 3, behind its checkpoint of 5",
    ),
}


@pytest.mark.parametrize(("builder", "words"), PROGRESS.values(), ids=PROGRESS)
def test_names_what_is_broken_in_progress(builder: LogBuilder, words: str) -> None:
    found = sentences_about(builder, Invariant.I9)
    assert any(words in sentence for sentence in found), found


RECORDS: Broken = {
    "time goes back": (
        log().submit("a", work_s=None).run("a", ON_E1).wait(-1.5).checkpoint("a", 1).complete("a", progress=1),
        "has t 998.500000, but attempt 1 of a was at 1000.000000 before: time goes back",
    ),
    "an unknown kind": (log().submit("a").cancel("a").add("begun"), "has event begun, which is no kind"),
    "another tenant": (
        log().submit("a").add("cancelled", workload="a", tenant="ads").cancel("a"),
        "has tenant ads, but the workload was submitted by vision",
    ),
    "another region": (
        edited(log().submit("a").run("a", ON_E1).cancel("a", attempt=1), "cancelled", fields(region="west")).cancel(
            "a", attempt=1
        ),
        "has region west, but the attempt was dispatched to east",
    ),
    "an unknown cause": (
        log().submit("a").run("a", ON_E1).evicting("a", "bored").cancel("a", attempt=1),
        "has cause bored, which is none of",
    ),
    "a machine in the wrong place": (
        edited(log().submit("a").machine("machine_down", "e1").cancel("a"), "machine_down", fields(region="west")),
        "says that machine e1 is in cluster east-a of region west, but it is in cluster east-a of region east",
    ),
    "emulated without an end of its work": (
        edited(log().submit("a").submit("a").cancel("a"), "submitted", fields(work_s=None)),
        "is emulated, but has no work_s",
    ),
    "suddenly emulated": (
        edited(log().submit("a").run("a", ON_E1).cancel("a", attempt=1), "started", fields(emulated=False)),
        "says emulated False, but was submitted as True",
    ),
    "a priority beyond the lowest": (
        edited(log().submit("a").run("a", ON_E1).cancel("a"), "dispatched", fields(priority=7)),
        "has priority 7, which must be at most 6",
    ),
    "half a surrogate pair": (log().submit("\ud800").submit("b").cancel("b"), "which must be text"),
    "a job twice": (
        log().submit("a", job(), job()).submit("b").cancel("b"),
        "has jobs that are empty or have a name twice",
    ),
    "an empty log": (log(), "has 0 events and no workload: it shows nothing"),
    "a log without workloads": (log().machine("machine_up", "e1"), "has 1 events and no workload"),
}


@pytest.mark.parametrize(("builder", "words"), RECORDS.values(), ids=RECORDS)
def test_names_what_is_broken_in_records(builder: LogBuilder, words: str) -> None:
    found = sentences_about(builder, Invariant.LOG)
    assert any(words in sentence for sentence in found), found
