"""What follows from what clusters report: orders, starts, progress and ends of attempts."""

from __future__ import annotations

import pytest

from domain.events import EvictionCause
from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, TenantId, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey, TaskPlacement
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Command, Emulated, EntryPoint, JobSpecification, RetryPolicy, WorkloadSpecification
from services.database.attempt_store import Eviction
from services.execution.executor import AttemptPhase, AttemptStatus
from services.regional_scheduler.live_attempts import (
    LiveAttempt,
    LiveAttempts,
    Order,
    end_of,
    never_ordered,
    started_s,
    take_progress,
    wanted_order,
)

EAST_A, EAST_B = ClusterId("east-a"), ClusterId("east-b")


def attempt_in(
    *clusters: ClusterId,
    name: str = "w1",
    entry_point: EntryPoint | None = None,
    machine: str = "m",
    retry: RetryPolicy | None = None,
    failures: int = 0,
) -> LiveAttempt:
    jobs = tuple(
        JobSpecification(JobName(f"job-{cluster}"), 1, TaskResources(gpus=1), entry_point or Emulated(duration_s=100.0))
        for cluster in clusters
    )
    return LiveAttempt(
        key=AttemptKey(WorkloadId(name), AttemptNumber(1)),
        tenant=TenantId("vision"),
        specification=WorkloadSpecification(name, TenantId("vision"), jobs, retry=retry or RetryPolicy()),
        standing=Standing(3, 0),
        within_quota=True,
        dispatched_s=0.0,
        progress_at_start=0.0,
        failures=failures,
        charges={},
        placements=tuple(
            TaskPlacement(JobName(f"job-{cluster}"), 0, cluster, MachineId(f"{cluster}-{machine}"), (0,), 1000, 1024)
            for cluster in clusters
        ),
    )


def report(attempt: LiveAttempt, cluster: ClusterId, phase: AttemptPhase, **said: object) -> None:
    """The cluster says this of the attempt."""
    attempt.reports[cluster] = AttemptStatus(key=attempt.key, phase=phase, since_s=50.0, **said)  # type: ignore[arg-type]  # named fields of the status


def being_evicted(attempt: LiveAttempt, cause: EvictionCause = EvictionCause.PREEMPTED) -> LiveAttempt:
    attempt.state = State.PREEMPTING
    attempt.eviction = Eviction(cause)
    return attempt


def test_an_attempt_in_one_cluster_is_executed_at_once() -> None:
    attempt = attempt_in(EAST_A)
    assert wanted_order(attempt, EAST_A, blocked=False) is Order.EXECUTE
    attempt.ordered[EAST_A] = Order.EXECUTE
    assert wanted_order(attempt, EAST_A, blocked=False) is None


def test_nothing_is_started_while_somebody_who_leaves_is_still_on_its_machine() -> None:
    assert wanted_order(attempt_in(EAST_A), EAST_A, blocked=True) is None


def test_a_gang_in_two_clusters_is_held_in_both_before_it_is_started_in_either() -> None:
    attempt = attempt_in(EAST_A, EAST_B)
    assert wanted_order(attempt, EAST_A, blocked=False) is Order.HOLD
    attempt.ordered = {EAST_A: Order.HOLD, EAST_B: Order.HOLD}
    report(attempt, EAST_A, AttemptPhase.HELD)
    assert wanted_order(attempt, EAST_A, blocked=False) is None, "the other one does not hold its part yet"
    report(attempt, EAST_B, AttemptPhase.HELD)
    assert wanted_order(attempt, EAST_A, blocked=False) is Order.EXECUTE
    assert wanted_order(attempt, EAST_B, blocked=False) is Order.EXECUTE


def test_what_ran_before_a_restart_is_ordered_again_so_that_it_is_adopted() -> None:
    attempt = attempt_in(EAST_A, EAST_B)
    attempt.started_s = 10.0
    attempt.state = State.RUNNING
    assert wanted_order(attempt, EAST_A, blocked=True) is Order.EXECUTE


def test_an_attempt_that_nobody_has_heard_of_ends_at_once_when_it_is_evicted() -> None:
    attempt = being_evicted(attempt_in(EAST_A))
    assert never_ordered(attempt)
    assert wanted_order(attempt, EAST_A, blocked=False) is None
    end = end_of(attempt, cancel_requested=False, now=7.0)
    assert end is not None
    assert (end.end, end.next_state, end.ended_s) == ("preempted", State.PENDING, 7.0)


def test_an_attempt_that_a_cluster_may_know_is_stopped_there_first() -> None:
    attempt = being_evicted(attempt_in(EAST_A))
    attempt.perhaps_known.add(EAST_A)
    assert wanted_order(attempt, EAST_A, blocked=False) is Order.STOP
    assert end_of(attempt, cancel_requested=False, now=7.0) is None


def test_a_started_attempt_that_its_cluster_lost_is_taken_up_before_it_is_stopped() -> None:
    attempt = being_evicted(attempt_in(EAST_A))
    attempt.started_s = 3.0
    assert wanted_order(attempt, EAST_A, blocked=False) is Order.EXECUTE
    attempt.ordered[EAST_A] = Order.EXECUTE
    assert wanted_order(attempt, EAST_A, blocked=False) is Order.STOP


def test_when_it_fails_in_one_cluster_it_is_stopped_in_the_other_and_then_failed() -> None:
    attempt = attempt_in(EAST_A, EAST_B)
    attempt.state = State.RUNNING
    attempt.started_s = 1.0
    report(attempt, EAST_A, AttemptPhase.FAILED, reason="exit code 1", started_s=1.0)
    report(attempt, EAST_B, AttemptPhase.RUNNING, started_s=1.0)
    assert wanted_order(attempt, EAST_B, blocked=False) is Order.STOP
    assert end_of(attempt, cancel_requested=False, now=60.0) is None
    report(attempt, EAST_B, AttemptPhase.STOPPED, started_s=1.0)
    end = end_of(attempt, cancel_requested=False, now=60.0)
    assert end is not None
    assert (end.end, end.next_state, end.reason, end.failed) == ("failed", State.FAILED, "exit code 1", True)


def test_a_failed_attempt_waits_longer_with_each_failure_until_no_retry_is_left() -> None:
    retry = RetryPolicy(max_retries=2, backoff_s=10.0, backoff_cap_s=600.0)
    waits = []
    for failures in range(3):
        attempt = attempt_in(EAST_A, retry=retry, failures=failures)
        attempt.state = State.RUNNING
        report(attempt, EAST_A, AttemptPhase.FAILED, started_s=1.0)
        end = end_of(attempt, cancel_requested=False, now=60.0)
        assert end is not None
        waits.append((end.next_state, end.not_before_s))
    assert waits == [(State.PENDING, 60.0), (State.PENDING, 70.0), (State.FAILED, 0.0)]


@pytest.mark.parametrize(
    ("phase", "cancel_requested", "ended_as", "next_state"),
    [
        (AttemptPhase.COMPLETED, False, "completed", State.COMPLETED),
        (AttemptPhase.COMPLETED, True, "completed", State.COMPLETED),
        (AttemptPhase.STOPPED, True, "cancelled", State.CANCELLED),
        (AttemptPhase.LOST, False, "failed", State.PENDING),
        (AttemptPhase.LOST, True, "cancelled", State.CANCELLED),
        (AttemptPhase.FAILED, True, "cancelled", State.CANCELLED),
    ],
)
def test_how_it_ends(phase: AttemptPhase, cancel_requested: bool, ended_as: str, next_state: State) -> None:
    attempt = attempt_in(EAST_A)
    attempt.state = State.RUNNING
    report(attempt, EAST_A, phase, started_s=1.0)
    end = end_of(attempt, cancel_requested=cancel_requested, now=60.0)
    assert end is not None
    assert (end.end, end.next_state) == (ended_as, next_state)


def test_an_attempt_that_is_lost_with_its_machine_is_evicted() -> None:
    attempt = being_evicted(attempt_in(EAST_A), EvictionCause.MACHINE_LOST)
    report(attempt, EAST_A, AttemptPhase.LOST, started_s=1.0)
    end = end_of(attempt, cancel_requested=False, now=60.0)
    assert end is not None
    assert (end.end, end.next_state, end.not_before_s) == ("machine_lost", State.PENDING, 0.0)


def test_an_attempt_that_is_lost_alone_is_tried_again_after_a_while_and_no_failure_of_the_user() -> None:
    attempt = attempt_in(EAST_A, retry=RetryPolicy(max_retries=0, backoff_s=10.0), failures=0)
    attempt.state = State.RUNNING
    report(attempt, EAST_A, AttemptPhase.LOST, reason="its runner is gone", started_s=1.0)
    end = end_of(attempt, cancel_requested=False, now=60.0)
    assert end is not None
    assert (end.end, end.next_state, end.failed) == ("failed", State.PENDING, False)
    assert end.not_before_s == 50.0 + 10.0


def test_an_attempt_has_started_when_its_last_cluster_has() -> None:
    attempt = attempt_in(EAST_A, EAST_B)
    report(attempt, EAST_A, AttemptPhase.RUNNING, started_s=4.0)
    assert started_s(attempt) is None
    report(attempt, EAST_B, AttemptPhase.RUNNING, started_s=6.0)
    assert started_s(attempt) == 6.0


def test_emulated_jobs_are_as_far_as_the_one_that_is_least_far() -> None:
    attempt = attempt_in(EAST_A, EAST_B)
    report(attempt, EAST_A, AttemptPhase.RUNNING, progress=30.0, checkpoint_progress=30.0)
    report(attempt, EAST_B, AttemptPhase.RUNNING, progress=40.0, checkpoint_progress=20.0)
    take_progress(attempt)
    assert (attempt.progress, attempt.checkpoint_progress) == (30.0, 20.0)
    report(attempt, EAST_A, AttemptPhase.COMPLETED, progress=50.0, checkpoint_progress=50.0)
    report(attempt, EAST_B, AttemptPhase.RUNNING, progress=80.0, checkpoint_progress=80.0)
    take_progress(attempt)
    assert (attempt.progress, attempt.checkpoint_progress) == (80.0, 80.0)


def test_of_a_real_gang_the_one_that_reports_counts_and_progress_never_goes_back() -> None:
    attempt = attempt_in(EAST_A, EAST_B, entry_point=Command(("train",)))
    report(attempt, EAST_A, AttemptPhase.RUNNING, progress=200.0, checkpoint_progress=100.0)
    report(attempt, EAST_B, AttemptPhase.RUNNING)
    take_progress(attempt)
    report(attempt, EAST_A, AttemptPhase.RUNNING, progress=150.0, checkpoint_progress=100.0)
    take_progress(attempt)
    assert (attempt.progress, attempt.checkpoint_progress) == (200.0, 100.0)


def test_a_newcomer_is_blocked_by_those_who_leave_its_machines_and_by_nobody_else() -> None:
    victim, newcomer, other = (attempt_in(EAST_A, name=name) for name in ("victim", "newcomer", "other"))
    elsewhere = attempt_in(EAST_A, name="elsewhere", machine="n")
    live = LiveAttempts([victim, newcomer, other, elsewhere])
    assert not live.blocked(newcomer)
    live.begin_eviction(victim.key, Eviction(EvictionCause.PREEMPTED, newcomer.key, newcomer.standing))
    assert live.blocked(newcomer)
    assert not live.blocked(elsewhere)
    assert not live.blocked(victim), "it does not wait for itself"
    freed = live.remove(victim.key)
    assert not live.blocked(newcomer)
    assert [attempt.key.workload for attempt in live.waiting_on(freed)] == ["newcomer", "other"]
