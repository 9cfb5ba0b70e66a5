"""What the clusters of a job that is split are told, and that its attempt ends as a whole."""

from __future__ import annotations

from dataclasses import replace

from cluster_manager.attempt_run.actions import Stop
from domain.events import EvictionCause
from domain.identifiers import JobName
from domain.workload import Command
from services.cluster_manager.status_messages import orders_from_proto
from services.execution.executor import AttemptPhase, JobRendezvous
from services.regional_scheduler.live_attempts import LiveAttempt, Order, wanted_order
from services.regional_scheduler.orders import attempt_plan
from tests.regional_scheduler_service.test_live_attempts import (
    EAST_A,
    EAST_B,
    attempt_in,
    being_evicted,
    ended,
    report,
    running,
    with_free_place,
)

JOB = JobName("train")
MEETING = JobRendezvous(JOB, "10.0.0.7", 29500)


def split_attempt() -> LiveAttempt:
    """Of one job: its first task in one cluster, the other one in the other."""
    attempt = attempt_in(EAST_A, EAST_B, entry_point=Command(("train",)))
    job = replace(attempt.specification.jobs[0], name=JOB, tasks=2, across_clusters=True)
    attempt.specification = replace(attempt.specification, jobs=(job,))
    attempt.placements = tuple(one._replace(job=JOB, task=task) for task, one in enumerate(attempt.placements))
    return attempt


def test_the_order_to_start_says_where_the_job_meets_whose_first_task_is_elsewhere() -> None:
    attempt = with_free_place(split_attempt())
    for cluster in (EAST_A, EAST_B):
        assert wanted_order(attempt, cluster) is Order.HOLD
        attempt.ordered[cluster] = Order.HOLD
    report(attempt, EAST_A, AttemptPhase.HELD, rendezvous=(MEETING,))
    assert wanted_order(attempt, EAST_B) is None
    report(attempt, EAST_B, AttemptPhase.HELD)
    for cluster, told in ((EAST_A, ()), (EAST_B, (MEETING,))):
        assert wanted_order(attempt, cluster) is Order.EXECUTE
        (order,) = orders_from_proto([attempt_plan(attempt, cluster)])
        assert (order.rendezvous, order.jobs_here()) == (told, attempt.specification.jobs)


def test_a_lost_cluster_ends_all_of_it_once() -> None:
    attempt = running(split_attempt())
    for cluster in (EAST_A, EAST_B):
        report(attempt, cluster, AttemptPhase.RUNNING, started_s=1.0)
    being_evicted(attempt, EvictionCause.MACHINE_LOST)
    assert wanted_order(attempt, EAST_A) is Order.KILL
    report(attempt, EAST_B, AttemptPhase.LOST, started_s=1.0)
    assert ended(attempt) is None
    report(attempt, EAST_A, AttemptPhase.STOPPED, started_s=1.0)
    end = ended(attempt)
    assert end is not None
    assert end.end == "machine_lost"


def test_a_part_that_fails_stops_all_of_it() -> None:
    attempt = running(split_attempt())
    for cluster in (EAST_A, EAST_B):
        report(attempt, cluster, AttemptPhase.RUNNING, started_s=1.0)
    assert Stop in {type(action) for action in report(attempt, EAST_B, AttemptPhase.FAILED, started_s=1.0)}
    assert wanted_order(attempt, EAST_A) in (Order.STOP, Order.KILL)
    assert wanted_order(attempt, EAST_B) is None
