"""I15, kept to the very edge and broken just beyond it."""

from __future__ import annotations

import math

import pytest

from domain.eviction import DEFAULT_RULE, HOUR_S, EvictionRule
from simulator.validate import validate
from simulator.validation.report import Invariant
from tests.simulator.log_builder import FLEET, TENANTS, LogBuilder, job, task

WHOLE = [0, 1, 2, 3]
MINUTE = EvictionRule(minimum_run_time_s=60.0)


def at(builder: LogBuilder, t: float) -> LogBuilder:
    """The log goes on at that time."""
    builder.t = t
    return builder


def submitted() -> LogBuilder:
    """`low` (vision) and many of ads that want its place."""
    builder = LogBuilder().submit("low", job(1, 4, gpu_model="A100"), work_s=1e6)
    for number in range(1, 5):
        builder.submit(f"top{number}", job(1, 4, gpu_model="A100"), tenant="ads", work_s=1.0)
    return builder


def preempt(builder: LogBuilder, number: int, t: float, *, announced: bool = True) -> LogBuilder:
    """Attempt `number` of `low` makes room at that time for a workload that completes a second later."""
    by = (f"top{number}", 1, 0)
    at(builder, t).dispatch(by[0], task("e1", WHOLE), evicts={"low": number})
    if announced:
        builder.evicting("low", "preempted", attempt=number, by=by)
    builder.evict("low", "preempted", attempt=number, by=by)
    return builder.start(by[0]).wait(1.0).complete(by[0], progress=1.0)


def found(builder: LogBuilder, rule: EvictionRule) -> list[str]:
    """What is said of I15; nothing else may be wrong."""
    report = validate(builder.records, FLEET, TENANTS, complete=False, rule=rule)
    assert {violation.invariant for violation in report.shown} <= {Invariant.I15}, str(report)
    assert report.checks[Invariant.I15] > 0
    return [violation.sentence for violation in report.shown]


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("rule", [DEFAULT_RULE, MINUTE], ids=["unbounded", "a minute"])
def test_an_attempt_may_leave_when_its_minimum_run_time_is_over_and_not_before(
    rule: EvictionRule, announced: bool
) -> None:
    def story(leaves_s: float) -> list[str]:
        builder = at(submitted(), 2000.0).dispatch("low", task("e1", WHOLE))
        return found(preempt(at(builder, 2030.0).start("low"), 1, leaves_s, announced=announced), rule)

    assert story(2090.0) == []
    early = story(math.nextafter(2090.0, 0.0))
    assert len(early) == (rule == MINUTE)
    assert all("makes room 60 s after its start; the minimum run time is 60 s" in sentence for sentence in early)


def test_what_has_not_started_is_protected_from_its_dispatch_on() -> None:
    def story(leaves_s: float) -> list[str]:
        return found(preempt(at(submitted(), 2000.0).dispatch("low", task("e1", WHOLE)), 1, leaves_s), MINUTE)

    assert story(2060.0) == []
    (sentence,) = story(2050.0)
    assert sentence == "attempt 1 of low makes room 50 s after its dispatch; the minimum run time is 60 s"


@pytest.mark.parametrize(("limit", "broken"), [(None, 0), (3, 0), (2, 0), (1, 2), (0, 3)])
def test_a_workload_leaves_so_often_within_an_hour_and_no_more(limit: int | None, broken: int) -> None:
    """The third time is exactly an hour after the first one."""
    rule = EvictionRule(1.0, limit)
    builder = submitted()
    for number, t in enumerate((2000.0, 3000.0, 2000.0 + HOUR_S), 1):
        at(builder, t - 500.0).run("low", task("e1", WHOLE), attempt=number)
        preempt(builder, number, t)
    assert len(found(builder, rule)) == broken


def test_just_within_the_hour_is_too_often() -> None:
    builder = submitted()
    for number, t in enumerate((2000.0, math.nextafter(2000.0 + HOUR_S, 0.0)), 1):
        at(builder, t - 500.0).run("low", task("e1", WHOLE), attempt=number)
        preempt(builder, number, t)
    assert found(builder, EvictionRule(0.0, 1)) == ["makes room 2 times within an hour; the limit is 1"]


def test_other_causes_are_neither_bound_nor_counted() -> None:
    builder = at(submitted(), 2000.0).run("low", task("e1", WHOLE)).evict("low", "reclaimed")
    builder.run("low", task("e1", WHOLE), attempt=2).machine("machine_down", "e1")
    builder.evict("low", "machine_lost", attempt=2).machine("machine_up", "e1")
    preempt(builder.run("low", task("e1", WHOLE), attempt=3), 3, 2600.0)
    assert found(builder, EvictionRule(60.0, 1)) == []


def test_who_loses_its_machine_while_it_makes_room_was_asked_to_leave_once() -> None:
    by = ("top1", 1, 0)
    builder = at(submitted(), 2000.0).run("low", task("e1", WHOLE)).wait(10.0)
    builder.dispatch("top1", task("e1", WHOLE), evicts={"low": 1}).evicting("low", "preempted", by=by)
    builder.wait(1.0).machine("machine_down", "e1").evict("low", "machine_lost")
    assert len(found(builder, EvictionRule(60.0, 1))) == 1
