"""What becomes of workloads that their users hold, release, requeue or change: every state, every request."""

from __future__ import annotations

from itertools import product

import pytest

from domain.identifiers import JobName, RegionId, TenantId, WorkloadId
from domain.life_cycle import ENDED, LIVE, QUEUED, State
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, WorkloadSpecification
from global_scheduler.user_requests import (
    Outcome,
    RequestRefused,
    SpecificationChange,
    WorkloadToday,
    changed,
    hold,
    release,
    requeue,
)

W = WorkloadId("w-1")
JOB = JobSpecification(JobName("main"), 1, TaskResources(gpus=1), Emulated(60.0))
SAID = WorkloadSpecification(
    "train", TenantId("ads"), (JOB,), regions=(RegionId("east"),), labels=(("a", "1"), ("b", "2")), priority=2
)


def today(state: State, *, held: bool = False, cancelling: bool = False, requeuing: bool = False) -> WorkloadToday:
    return WorkloadToday(W, state, held, cancelling, requeuing)


@pytest.mark.parametrize("state", sorted(QUEUED))
def test_what_waits_is_held_and_is_not_requeued(state: State) -> None:
    assert hold(today(state), requeue=False) is hold(today(state), requeue=True) is Outcome.LEAVES_QUEUE
    assert requeue(today(state)) is Outcome.NOTHING
    assert release(today(state)) is Outcome.NOTHING


@pytest.mark.parametrize("state", sorted(LIVE))
def test_what_runs_is_left_alone_unless_it_is_to_be_stopped(state: State) -> None:
    with pytest.raises(RequestRefused, match=f"workload w-1 is {state}: .* hold it with --requeue"):
        hold(today(state), requeue=False)
    assert hold(today(state), requeue=True) is Outcome.STOPPED
    assert requeue(today(state)) is Outcome.STOPPED
    assert requeue(today(state, requeuing=True)) is Outcome.NOTHING


@pytest.mark.parametrize("state", sorted(ENDED))
def test_what_has_ended_is_submitted_anew_and_nothing_else(state: State) -> None:
    assert requeue(today(state)) is Outcome.SUBMITTED_ANEW
    for refuses in (
        lambda: hold(today(state), requeue=True),
        lambda: release(today(state)),
        lambda: changed(today(state), SAID, SpecificationChange(priority=1)),
    ):
        with pytest.raises(RequestRefused, match=f"has ended, {state}: .*requeue submits it anew"):
            refuses()


def test_what_is_held_is_held_once_and_comes_back_when_it_is_released() -> None:
    assert hold(today(State.PENDING, held=True), requeue=False) is Outcome.NOTHING
    assert release(today(State.PENDING, held=True)) is Outcome.ENTERS_QUEUE
    # It is still being stopped: it returns to the queue by itself.
    assert release(today(State.RUNNING, held=True, requeuing=True)) is Outcome.NOTHING


def test_what_is_being_cancelled_is_left_to_its_end() -> None:
    for state in sorted(LIVE):
        leaving = today(state, cancelling=True)
        with pytest.raises(RequestRefused, match="is being cancelled"):
            hold(leaving, requeue=True)
        for asks in (requeue, release):
            with pytest.raises(RequestRefused, match="is being cancelled"):
                asks(leaving)


def test_a_change_leaves_all_else_as_it_was() -> None:
    one = changed(
        today(State.WAITING),
        SAID,
        SpecificationChange(
            priority=1,
            regions=(RegionId("west"),),
            labels=(("b", "3"), ("c", "4")),
            without_labels=frozenset({"a"}),
            max_time_s=60.0,
        ),
    )
    assert (one.priority, one.regions, one.labels, one.max_time_s) == (1, ("west",), (("b", "3"), ("c", "4")), 60.0)
    assert (one.name, one.tenant, one.jobs) == (SAID.name, SAID.tenant, SAID.jobs)
    again = changed(today(State.PENDING), one, SpecificationChange(own_priority=True, regions=(), max_time_s=0.0))
    assert (again.priority, again.regions, again.max_time_s) == (None, (), None)


@pytest.mark.parametrize(
    ("state", "change"),
    list(
        product(
            sorted(LIVE),
            (
                SpecificationChange(priority=1),
                SpecificationChange(own_priority=True),
                SpecificationChange(regions=()),
                SpecificationChange(priority_class="high"),
            ),
        )
    ),
)
def test_what_runs_keeps_its_place(state: State, change: SpecificationChange) -> None:
    with pytest.raises(RequestRefused, match="only labels and the time limit can be changed; requeue it first"):
        changed(today(state), SAID, change)


def test_what_runs_gets_labels_and_another_time_limit() -> None:
    change = SpecificationChange(labels=(("c", "3"),), max_time_s=600.0)
    one = changed(today(State.RUNNING), SAID, change)
    assert (dict(one.labels)["c"], one.max_time_s) == ("3", 600.0)
