"""I15: a victim that could have been left where it is was evicted needlessly."""

from __future__ import annotations

import pytest

from domain.events import JsonValue
from domain.eviction import EvictionRule
from simulator.validate import validate
from simulator.validation.report import Invariant
from tests.simulator.log_builder import FLEET, TENANTS, LogBuilder, job, task

HALF, OTHER_HALF, WHOLE = [0, 1], [2, 3], [0, 1, 2, 3]


def two_halves() -> LogBuilder:
    """`left` and `right` of vision share machine e1; `top` of ads is about to come."""
    builder = LogBuilder()
    for name, gpus in (("left", HALF), ("right", OTHER_HALF)):
        builder.submit(name, job(1, 2, gpu_model="A100"), work_s=1e6).run(name, task("e1", gpus))
    return builder


def found(builder: LogBuilder, invariant: Invariant, rule: EvictionRule | None = None) -> list[str]:
    """What is said of the invariant; nothing else may be wrong."""
    report = validate(builder.records, FLEET, TENANTS, complete=False, rule=rule or EvictionRule())
    assert {violation.invariant for violation in report.shown} <= {invariant}, str(report)
    return [f"{violation.line}, {violation.workload}: {violation.sentence}" for violation in report.shown]


@pytest.mark.parametrize(
    ("gpus", "evicts", "needless"),
    [(4, ["left", "right"], 0), (2, ["left", "right"], 2), (2, ["left"], 0), (2, ["right"], 0)],
)
def test_every_victim_is_needed_for_the_places_that_are_taken(gpus: int, evicts: list[str], needless: int) -> None:
    builder = two_halves().submit("top", job(1, gpus, gpu_model="A100"), tenant="ads")
    builder.dispatch("top", task("e1", WHOLE[:gpus]), evicts=dict.fromkeys(evicts, 1))
    sentences = found(builder, Invariant.I15)
    assert len(sentences) == needless
    line = len(builder.records)
    assert all(sentence.startswith(f"{line}, top: evicts attempt 1 of ") for sentence in sentences)


def test_a_victim_on_another_machine_is_needless() -> None:
    builder = two_halves().submit("far", job(1, 4, gpu_model="A100")).run("far", task("e2", WHOLE))
    builder.submit("top", job(1, 4, gpu_model="A100"), tenant="ads")
    builder.dispatch("top", task("e1", WHOLE), evicts={"left": 1, "right": 1, "far": 1})
    (sentence,) = found(builder, Invariant.I15)
    assert "evicts attempt 1 of far, but would fit" in sentence


def test_what_leaves_already_is_promised_to_others() -> None:
    """`left` leaves for `first`; the place of `first` is no free place for `second`, which needs that of `right`."""
    builder = two_halves()
    for name, victim, gpus in (("first", "left", HALF), ("second", "right", OTHER_HALF)):
        builder.submit(name, job(1, 2, gpu_model="A100"), tenant="ads")
        builder.dispatch(name, task("e1", gpus), evicts={victim: 1})
    assert found(builder, Invariant.I15) == []


def test_capacity_that_a_growing_attempt_was_promised_is_not_free() -> None:
    """The log tells of the larger `left` only when it has grown; by then its place was promised."""

    def story(*, grows: bool) -> list[str]:
        builder = LogBuilder().submit("left", job(1, 1, gpu_model="A100", max_tasks=2), work_s=1e6)
        builder.run("left", task("e1", [0]))
        builder.submit("right", job(1, 2, gpu_model="A100")).run("right", task("e1", OTHER_HALF))
        builder.submit("top", job(1, 1, gpu_model="A100"), tenant="ads")
        builder.dispatch("top", task("e1", [2]), evicts={"right": 1})
        if grows:
            grown: list[JsonValue] = [task("e1", [0]), task("e1", [1], number=1)]
            builder.add("resized", workload="left", attempt=1, placement=grown, speed=2.0)
        return found(builder, Invariant.I15)

    assert len(story(grows=False)) == 1
    assert story(grows=True) == []


@pytest.mark.parametrize("spares", [True, False])
@pytest.mark.parametrize(("tenant", "within"), [("ads", True), ("guests", False)])
def test_a_guaranteed_attempt_is_never_evicted_for_an_opportunistic_one(
    tenant: str, within: bool, spares: bool
) -> None:
    """HiveD §3. Both are at the lowest priority by now: the victim was within quota when it was dispatched."""
    builder = LogBuilder().submit("low", job(1, 4, gpu_model="A100"), work_s=1e6).run("low", task("e1", WHOLE))
    builder.add("reclassified", workload="low", attempt=1, priority=6, level=2, within_quota=False)
    builder.submit("top", job(1, 4, gpu_model="A100"), tenant=tenant)
    builder.dispatch("top", task("e1", WHOLE), evicts={"low": 1}, within_quota=within)
    sentences = found(builder, Invariant.I5, EvictionRule(spares_guaranteed=spares))
    assert len(sentences) == (spares and not within)
    assert all("evicts attempt 1 of low, which is guaranteed" in sentence for sentence in sentences)
