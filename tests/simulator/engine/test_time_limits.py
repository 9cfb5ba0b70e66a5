"""Attempts that have run for as long as their workloads allow, in simulations: by the same machine as in the service."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.trace import TraceRow
from simulator.baselines.mast import MAST
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.policies.registry import policies
from simulator.results.run_record import AttemptEnd, WorkloadEnd
from tests.examples import examples
from tests.simulator.engine.checked_run import NO_COSTS, CheckedRun, checked_run, one_region, row
from tests.simulator.log_builder import Json
from tests.simulator.stories import ON_E1, log

SAVING = SimulationSettings(
    costs=CostSettings(container_start_s=10.0, checkpoint_save_s=20.0, restore_s=0.0, checkpoint_interval_s=0.0)
)


def limited(name: str, submit_s: float, duration_s: float, max_time_s: float, gpus: int = 1) -> TraceRow:
    return replace(row(name, submit_s, duration_s, gpus), max_time_s=max_time_s)


def told(run: CheckedRun, kind: str, workload: str) -> list[Json]:
    return [dict(one) for one in run.log if (one["event"], one.get("workload")) == (kind, workload)]


def test_what_runs_for_too_long_saves_its_work_and_fails() -> None:
    rows = [limited("long", 0.0, 1_000.0, 300.0), limited("short", 0.0, 100.0, 300.0)]
    run = checked_run(MAST, rows, one_region(1, 2), settings=SAVING)
    (evicting,) = told(run, "evicting", "long")
    (failed,) = told(run, "failed", "long")
    (started,) = told(run, "started", "long")
    assert (evicting["cause"], evicting["limit_s"]) == ("time_limit", 300.0)
    assert float(str(evicting["t"])) - float(str(started["t"])) == 300.0
    assert float(str(failed["t"])) - float(str(evicting["t"])) == 20.0
    assert (failed["reason"], failed["final"], failed["cause"]) == ("time limit of 5m reached", True, "time_limit")
    assert failed["checkpoint_progress"] == 300.0
    assert not told(run, "evicted", "long")
    ends = {name: end for name, _, _, end in run.by_name()}
    assert ends == {"long": WorkloadEnd.FAILED, "short": WorkloadEnd.COMPLETED}
    assert AttemptEnd.FAILED in run.record.attempts.end.tolist()


def test_what_ends_just_at_its_limit_has_completed() -> None:
    run = checked_run(MAST, [limited("just", 0.0, 300.0, 300.0)], one_region(1, 1))
    assert [end for _, _, _, end in run.by_name()] == [WorkloadEnd.COMPLETED]


def test_each_attempt_has_the_whole_time() -> None:
    """`short` makes `long` leave after 200 of its 300 seconds: the second attempt has 300 again, and 250 of work left."""
    rows = [limited("long", 0.0, 450.0, 300.0), row("short", 200.0, 50.0)]
    run = checked_run(policies()["srtf"], rows, one_region(1, 1))
    assert len(told(run, "evicted", "long")) == 1
    assert run.ends()["long"] == 500.0
    assert {end for _, _, _, end in run.by_name()} == {WorkloadEnd.COMPLETED}


def test_what_is_limited_is_expected_to_end_by_then() -> None:
    """EASY backfilling: `gang` waits for `long`, which ends by its limit at 300; `filler` would be in its way, `quick` is not."""
    rows = [
        limited("long", 0.0, 10_000.0, 300.0, 4),
        row("gang", 10.0, 100.0, 8),
        row("filler", 20.0, 400.0, 4),
        row("quick", 30.0, 200.0, 4),
    ]
    run = checked_run(policies()["easy_backfill"], rows, one_region(1, 8))
    starts = run.starts()
    assert (starts["quick"], starts["gang"]) == (30.0, 300.0)
    assert starts["filler"] >= 400.0


@settings(max_examples=examples(25))
@given(st.data())
def test_whatever_the_policy_every_workload_ends_once_and_no_attempt_runs_for_longer(data: st.DataObject) -> None:
    rows = [
        replace(
            row(
                f"w{number}", data.draw(st.sampled_from((0.0, 50.0, 300.0))), data.draw(st.sampled_from((80.0, 700.0)))
            ),
            max_time_s=data.draw(st.sampled_from((None, 100.0, 400.0))),
            gpus=data.draw(st.sampled_from((1, 2, 4))),
        )
        for number in range(data.draw(st.integers(1, 6)))
    ]
    policy = policies()[data.draw(st.sampled_from(sorted(policies())))]
    run = checked_run(policy, rows, one_region(1, 4), settings=data.draw(st.sampled_from((NO_COSTS, SAVING))))
    limits = {str(one.workload_id): one.max_time_s for one in rows}
    for name, _, _, end in run.by_name():
        limit_s = limits[name]
        assert end is not WorkloadEnd.FAILED or limit_s is not None
    attempts = run.record.attempts
    for place, workload in enumerate(attempts.workload.tolist()):
        limit_s = limits[run.record.workloads.ids[workload]]
        if limit_s is not None:
            assert attempts.ended_s[place] - attempts.started_s[place] <= limit_s + 20.0


# What the validator says of it.


def test_the_validator_accepts_a_limit_that_was_reached() -> None:
    story = log().submit("w").run("w", ON_E1).wait(60)
    story.add("evicting", workload="w", attempt=1, cause="time_limit", limit_s=60.0)
    story.fail("w", final=True, progress=60.0, checkpoint_progress=60.0)
    assert story.validate().valid


@pytest.mark.parametrize(
    ("waited_s", "kind", "sentence"),
    [
        (30.0, "evicting", "is stopped for its time limit of 60 s, but ran for 30 s"),
        (60.0, "evicted", "returns to the queue, but its time limit was reached"),
    ],
)
def test_the_validator_finds_one_that_was_not(waited_s: float, kind: str, sentence: str) -> None:
    story = log().submit("w").run("w", ON_E1).wait(waited_s)
    story.add(kind, workload="w", attempt=1, cause="time_limit", limit_s=60.0, progress=1.0, checkpoint_progress=1.0)
    report = story.validate(complete=False)
    assert any(sentence in str(violation) for violation in report.shown), str(report)
