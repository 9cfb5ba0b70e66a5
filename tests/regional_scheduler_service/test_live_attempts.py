"""What follows from what clusters report: orders, starts, progress and ends of attempts."""

from __future__ import annotations

import pytest

from cluster_manager.attempt_run.actions import AttemptAction, RecordCheckpoint, RecordEnd, Stop
from cluster_manager.attempt_run.events import CancellationNoted, Completed, Eviction, PlaceFreed, Started
from cluster_manager.attempt_run.machine import step
from cluster_manager.attempt_run.run import AttemptFacts, Phase, new_run
from domain.events import EvictionCause
from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, TenantId, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey, TaskPlacement
from domain.placement_changes import ChangeKind, PlacementChange
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Command, Emulated, EntryPoint, JobSpecification, RetryPolicy, WorkloadSpecification
from services.execution.executor import AttemptPhase, AttemptStatus
from services.regional_scheduler.gang_reports import end_of, start_of, started_s, take_report
from services.regional_scheduler.live_attempts import (
    LiveAttempt,
    Order,
    RegionAttempts,
    change_carried_out,
    change_to_ask_for,
    leave_event,
    never_ordered,
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
    key = AttemptKey(WorkloadId(name), AttemptNumber(1))
    return LiveAttempt(
        run=new_run(AttemptFacts(key, 0.0, retry or RetryPolicy(), failures)),
        tenant=TenantId("vision"),
        specification=WorkloadSpecification(name, TenantId("vision"), jobs, retry=retry or RetryPolicy()),
        standing=Standing(3, 0),
        within_quota=True,
        guaranteed=True,
        dispatched_s=0.0,
        charges={},
        placements=tuple(
            TaskPlacement(JobName(f"job-{cluster}"), 0, cluster, MachineId(f"{cluster}-{machine}"), (0,), 1000, 1024)
            for cluster in clusters
        ),
    )


def report(attempt: LiveAttempt, cluster: ClusterId, phase: AttemptPhase, **said: object) -> tuple[AttemptAction, ...]:
    """The cluster says this of the attempt; what has to be done about it at once."""
    status = AttemptStatus(key=attempt.key, phase=phase, since_s=50.0, **said)  # type: ignore[arg-type]  # named fields of the status
    attempt.reports[cluster] = status
    return take_report(attempt, status, now=51.0)


def with_free_place(attempt: LiveAttempt) -> LiveAttempt:
    attempt.take(PlaceFreed(0.0))
    return attempt


def running(attempt: LiveAttempt, since_s: float = 1.0) -> LiveAttempt:
    """As it is after a restart of its region: nothing was reported yet."""
    with_free_place(attempt).take(Started(since_s))
    return attempt


def being_evicted(attempt: LiveAttempt, cause: EvictionCause = EvictionCause.PREEMPTED) -> LiveAttempt:
    attempt.take(leave_event(Eviction(cause), 2.0))
    return attempt


def ended(attempt: LiveAttempt, now: float = 60.0, *, cancelled: bool = False) -> RecordEnd | None:
    """How it has ended, as it would be recorded."""
    run, event = attempt.run, end_of(attempt, now)
    if event is None:
        return None
    if cancelled:
        run, _ = step(run, CancellationNoted(now))
    (end,) = step(run, event)[1]
    assert isinstance(end, RecordEnd)
    return end


def test_an_attempt_in_one_cluster_is_executed_at_once() -> None:
    attempt = with_free_place(attempt_in(EAST_A))
    assert wanted_order(attempt, EAST_A) is Order.EXECUTE
    attempt.ordered[EAST_A] = Order.EXECUTE
    assert wanted_order(attempt, EAST_A) is None


def test_nothing_is_started_while_an_attempt_that_leaves_is_still_on_its_machine() -> None:
    assert wanted_order(attempt_in(EAST_A), EAST_A) is None


def test_a_gang_in_two_clusters_is_held_in_both_before_it_is_started_in_either() -> None:
    attempt = with_free_place(attempt_in(EAST_A, EAST_B))
    assert wanted_order(attempt, EAST_A) is Order.HOLD
    attempt.ordered = {EAST_A: Order.HOLD, EAST_B: Order.HOLD}
    report(attempt, EAST_A, AttemptPhase.HELD)
    assert wanted_order(attempt, EAST_A) is None, "the other one does not hold its part yet"
    report(attempt, EAST_B, AttemptPhase.HELD)
    assert wanted_order(attempt, EAST_A) is Order.EXECUTE
    assert wanted_order(attempt, EAST_B) is Order.EXECUTE


def test_what_ran_before_a_restart_is_ordered_again_so_that_it_is_adopted() -> None:
    assert wanted_order(running(attempt_in(EAST_A, EAST_B), since_s=10.0), EAST_A) is Order.EXECUTE


def test_an_attempt_that_no_cluster_has_heard_of_ends_at_once_when_it_is_evicted() -> None:
    attempt = being_evicted(attempt_in(EAST_A))
    assert never_ordered(attempt)
    assert wanted_order(attempt, EAST_A) is None
    end = ended(attempt, now=7.0)
    assert end is not None
    assert (end.end, end.next_state, end.ended_s) == ("preempted", State.PENDING, 7.0)


def test_an_attempt_that_a_cluster_may_know_is_stopped_there_first() -> None:
    attempt = being_evicted(attempt_in(EAST_A))
    attempt.perhaps_known.add(EAST_A)
    assert wanted_order(attempt, EAST_A) is Order.STOP
    assert end_of(attempt, now=7.0) is None


def test_a_started_attempt_that_its_cluster_lost_is_taken_up_before_it_is_stopped() -> None:
    attempt = being_evicted(running(attempt_in(EAST_A)))
    assert wanted_order(attempt, EAST_A) is Order.EXECUTE
    attempt.ordered[EAST_A] = Order.EXECUTE
    assert wanted_order(attempt, EAST_A) is Order.STOP


def test_a_start_that_was_reported_is_recorded_although_its_cluster_does_not_know_of_it_any_more() -> None:
    """Both were heard of at once: what it has done meanwhile cannot have been done before it was started."""
    attempt = with_free_place(attempt_in(EAST_A))
    report(attempt, EAST_A, AttemptPhase.RUNNING, started_s=5.0, progress=3.0, checkpoint_progress=3.0)
    being_evicted(attempt)
    attempt.reports.clear()
    assert attempt.run.progress == 3.0
    assert not never_ordered(attempt)
    assert end_of(attempt, now=60.0) is None
    assert start_of(attempt) == Started(5.0)
    attempt.take(Started(5.0))
    assert wanted_order(attempt, EAST_A) is Order.EXECUTE, "it is taken up before it is stopped"


def test_a_victim_whose_machine_is_lost_meanwhile_is_stopped_at_once() -> None:
    attempt = being_evicted(running(attempt_in(EAST_A, EAST_B)))
    attempt.ordered = {EAST_A: Order.STOP, EAST_B: Order.STOP}
    assert wanted_order(attempt, EAST_B) is None
    being_evicted(attempt, EvictionCause.MACHINE_LOST)
    assert wanted_order(attempt, EAST_B) is Order.KILL
    attempt.ordered[EAST_B] = Order.KILL
    assert wanted_order(attempt, EAST_B) is None


def test_when_it_fails_in_one_cluster_it_is_stopped_at_once_in_the_other_and_then_failed() -> None:
    attempt = running(attempt_in(EAST_A, EAST_B))
    attempt.ordered = {EAST_A: Order.EXECUTE, EAST_B: Order.EXECUTE}
    report(attempt, EAST_B, AttemptPhase.RUNNING, started_s=1.0)
    actions = report(attempt, EAST_A, AttemptPhase.FAILED, reason="exit code 1", started_s=1.0)
    assert Stop(attempt.key, grace_s=0.0) in actions
    assert wanted_order(attempt, EAST_B) is Order.KILL
    assert end_of(attempt, now=60.0) is None
    report(attempt, EAST_B, AttemptPhase.STOPPED, started_s=1.0)
    end = ended(attempt)
    assert end is not None
    assert (end.end, end.next_state, end.reason, end.failed) == ("failed", State.FAILED, "exit code 1", True)


@pytest.mark.parametrize(
    ("phase", "cancelled", "ended_as", "next_state"),
    [
        (AttemptPhase.COMPLETED, False, "completed", State.COMPLETED),
        (AttemptPhase.COMPLETED, True, "completed", State.COMPLETED),
        (AttemptPhase.STOPPED, True, "cancelled", State.CANCELLED),
        (AttemptPhase.STOPPED, False, "failed", State.PENDING),
        (AttemptPhase.LOST, False, "failed", State.PENDING),
        (AttemptPhase.LOST, True, "cancelled", State.CANCELLED),
        (AttemptPhase.FAILED, False, "failed", State.FAILED),
        (AttemptPhase.FAILED, True, "cancelled", State.CANCELLED),
    ],
)
def test_how_it_ends(phase: AttemptPhase, cancelled: bool, ended_as: str, next_state: State) -> None:
    attempt = running(attempt_in(EAST_A))
    report(attempt, EAST_A, phase, started_s=1.0)
    end = ended(attempt, cancelled=cancelled)
    assert end is not None
    assert (end.end, end.next_state) == (ended_as, next_state)


def test_an_attempt_that_is_lost_with_its_machine_is_evicted() -> None:
    attempt = being_evicted(running(attempt_in(EAST_A)), EvictionCause.MACHINE_LOST)
    report(attempt, EAST_A, AttemptPhase.LOST, started_s=1.0)
    end = ended(attempt)
    assert end is not None
    assert (end.end, end.next_state, end.not_before_s) == ("machine_lost", State.PENDING, 0.0)


def test_an_attempt_that_fails_while_it_leaves_has_failed() -> None:
    attempt = being_evicted(running(attempt_in(EAST_A)))
    report(attempt, EAST_A, AttemptPhase.FAILED, started_s=1.0)
    end = ended(attempt)
    assert end is not None
    assert end.end == "failed"


def test_when_the_clock_was_set_back_nothing_happens_before_the_dispatch_and_all_takes_its_time() -> None:
    attempt = with_free_place(attempt_in(EAST_A))
    attempt.dispatched_s = 400.0
    report(attempt, EAST_A, AttemptPhase.COMPLETED, started_s=3.0, progress=100.0, checkpoint_progress=100.0)
    assert start_of(attempt) == Started(400.0)
    end = ended(attempt)
    assert end is not None
    assert end.ended_s == 447.0, "it took 47 s, and says so"
    never_begun = attempt_in(EAST_A)
    never_begun.dispatched_s = 400.0
    gone = end_of(being_evicted(never_begun), now=7.0)
    assert gone is not None
    assert gone.at_s == 400.0


def test_a_report_of_an_end_that_came_with_the_start_is_both() -> None:
    attempt = with_free_place(attempt_in(EAST_A))
    report(attempt, EAST_A, AttemptPhase.COMPLETED, started_s=3.0, progress=100.0, checkpoint_progress=100.0)
    assert start_of(attempt) == Started(3.0)
    end = ended(attempt)
    assert end is not None
    assert (end.end, end.progress, end.ended_s) == ("completed", 100.0, 50.0)


def test_a_checkpoint_is_reported_when_the_whole_gang_has_started_and_once() -> None:
    attempt = with_free_place(attempt_in(EAST_A, EAST_B))
    far = {"progress": 30.0, "checkpoint_progress": 20.0, "started_s": 4.0}
    assert not _checkpoints(report(attempt, EAST_A, AttemptPhase.RUNNING, **far))
    assert _checkpoints(report(attempt, EAST_B, AttemptPhase.RUNNING, **far)) == [
        RecordCheckpoint(attempt.key, 20.0, 51.0)
    ]
    assert not _checkpoints(report(attempt, EAST_B, AttemptPhase.RUNNING, **far))


def _checkpoints(actions: tuple[AttemptAction, ...]) -> list[AttemptAction]:
    return [action for action in actions if isinstance(action, RecordCheckpoint)]


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
    assert (attempt.run.progress, attempt.run.checkpoint_progress) == (30.0, 20.0)
    report(attempt, EAST_A, AttemptPhase.COMPLETED, progress=50.0, checkpoint_progress=50.0)
    report(attempt, EAST_B, AttemptPhase.RUNNING, progress=80.0, checkpoint_progress=80.0)
    assert (attempt.run.progress, attempt.run.checkpoint_progress) == (80.0, 80.0)


def test_of_a_real_gang_the_one_that_reports_counts_and_progress_never_goes_back() -> None:
    attempt = attempt_in(EAST_A, EAST_B, entry_point=Command(("train",)))
    report(attempt, EAST_A, AttemptPhase.RUNNING, progress=200.0, checkpoint_progress=100.0)
    report(attempt, EAST_B, AttemptPhase.RUNNING)
    report(attempt, EAST_A, AttemptPhase.RUNNING, progress=150.0, checkpoint_progress=100.0)
    assert (attempt.run.progress, attempt.run.checkpoint_progress) == (200.0, 100.0)


def test_a_newcomer_is_blocked_by_those_who_leave_its_machines_and_by_nobody_else() -> None:
    victim, newcomer, other = (attempt_in(EAST_A, name=name) for name in ("victim", "newcomer", "other"))
    elsewhere = attempt_in(EAST_A, name="elsewhere", machine="n")
    live = RegionAttempts([victim, newcomer, other, elsewhere])
    assert not live.blocked(newcomer)
    live.begin_eviction(victim.key, Eviction(EvictionCause.PREEMPTED, newcomer.key, newcomer.standing), now=5.0)
    assert live.blocked(newcomer)
    assert not live.blocked(elsewhere)
    assert not live.blocked(victim), "it does not wait for itself"
    freed = live.remove(victim.key)
    assert not live.blocked(newcomer)
    assert [attempt.key.workload for attempt in live.waiting_on(freed)] == ["newcomer", "other"]


def test_a_newcomer_starts_beside_those_who_leave_other_gpus_of_its_machine() -> None:
    """y leaves GPU 1; the newcomer was given GPU 0, and waits no more than it does in a simulation."""
    leaving, newcomer, heir = (attempt_in(EAST_A, name=name) for name in ("y", "newcomer", "heir"))
    leaving.placements = tuple(placement._replace(gpu_indices=(1,)) for placement in leaving.placements)
    live = RegionAttempts([leaving, newcomer, heir])
    live.begin_eviction(leaving.key, Eviction(EvictionCause.PREEMPTED, heir.key, heir.standing), now=5.0)
    assert not live.blocked(newcomer)
    assert live.blocked(heir)
    live.remove(leaving.key)
    assert not live.blocked(heir)


def test_what_a_leaving_attempt_has_given_up_blocks_nobody_once_it_is_gone() -> None:
    first, second = (TaskPlacement(JobName("main"), n, EAST_A, MachineId(f"m{n}"), (0,), 1000, 1024) for n in (0, 1))
    shrinks = running(attempt_in(EAST_A))
    shrinks.placements = (first, second)
    newcomer = attempt_in(EAST_A, name="w2")
    newcomer.placements = (second,)
    live = RegionAttempts([shrinks])
    live.begin_change(
        shrinks.key, (first,), PlacementChange(ChangeKind.RESIZED, before=(first, second), released=(second,))
    )
    live.add(newcomer)
    live.begin_eviction(shrinks.key, Eviction(EvictionCause.CANCELLED), 2.0)
    assert live.blocked(newcomer)
    live.end_change(shrinks.key, {EAST_A: (3.0, 0.0)})
    assert not live.blocked(newcomer), "the machine was given up before the attempt is gone"
    live.remove(shrinks.key)
    assert not live.blocked(newcomer)
    assert live.giving_up_on(frozenset({MachineId("m0"), MachineId("m1")}), but=newcomer.key) == ()


@pytest.mark.parametrize(
    ("other", "carried_out"), [(AttemptPhase.RUNNING, False), (AttemptPhase.COMPLETED, True), (None, False)]
)
def test_a_change_is_carried_out_although_a_cluster_has_completed_its_jobs(
    other: AttemptPhase | None, carried_out: bool
) -> None:
    """It is never asked for the change; nothing more could be changed, and who waits for what is given up would wait on."""
    attempt = running(attempt_in(EAST_A, EAST_B))
    given_up = TaskPlacement(JobName(f"job-{EAST_A}"), 1, EAST_A, MachineId("given-up"), (0,), 1000, 1024)
    before, kept = (*attempt.placements, given_up), attempt.placements
    live = RegionAttempts([attempt])
    live.begin_change(attempt.key, kept, PlacementChange(ChangeKind.RESIZED, before=before, released=(given_up,)))
    report(attempt, EAST_A, AttemptPhase.RUNNING, started_s=1.0, revision=1, changed_s=5.0)
    if other is not None:
        report(attempt, EAST_B, other, started_s=1.0)
        assert change_to_ask_for(attempt, EAST_B, waits=False) is not carried_out
    assert change_carried_out(attempt) is carried_out


def test_no_change_is_carried_out_of_what_has_completed_before() -> None:
    attempt = running(attempt_in(EAST_A))
    live = RegionAttempts([attempt])
    live.begin_change(attempt.key, attempt.placements, PlacementChange(ChangeKind.TUNED, attempt.placements))
    report(attempt, EAST_A, AttemptPhase.COMPLETED, started_s=1.0)
    assert not change_carried_out(attempt)


def leaving_east_b(phase: AttemptPhase, revision: int) -> LiveAttempt:
    """It has a flexible task in east-b, which goes; the cluster has said that of its part."""
    attempt = running(attempt_in(EAST_A))
    base = attempt.placements
    flexible = TaskPlacement(base[0].job, 1, EAST_B, MachineId("b0"), (0,), 1000, 1024)
    attempt.placements = (*base, flexible)
    report(attempt, EAST_A, AttemptPhase.RUNNING, started_s=1.0, revision=1, changed_s=5.0)
    live = RegionAttempts([attempt])
    change = PlacementChange(ChangeKind.RESIZED, before=attempt.placements, released=(flexible,))
    live.begin_change(attempt.key, base, change)
    report(attempt, EAST_B, phase, started_s=1.0, revision=revision, changed_s=5.0)
    return attempt


@pytest.mark.parametrize(
    ("phase", "revision", "carried_out"),
    [
        (AttemptPhase.RUNNING, 0, False),
        (AttemptPhase.COMPLETED, 1, True),
        (AttemptPhase.LOST, 0, True),
        (AttemptPhase.STOPPED, 0, True),
    ],
)
def test_an_attempt_leaves_a_cluster_in_which_only_flexible_tasks_ran(
    phase: AttemptPhase, revision: int, carried_out: bool
) -> None:
    attempt = leaving_east_b(phase, revision)
    assert attempt.clusters == (EAST_A, EAST_B)
    assert attempt.left_clusters == {EAST_B}
    assert change_carried_out(attempt) is carried_out
    assert change_to_ask_for(attempt, EAST_B, waits=False) is (phase is AttemptPhase.RUNNING)
    assert attempt.run.phase is Phase.RUNNING, "whatever becomes of the part that it leaves"
    assert end_of(attempt, 60.0) is None


def test_who_has_left_a_cluster_ends_without_it() -> None:
    attempt = leaving_east_b(AttemptPhase.COMPLETED, 1)
    live = RegionAttempts([attempt])
    attempt.leave(EAST_B)
    live.end_change(attempt.key, {EAST_A: (5.0, 10.0)})
    assert attempt.clusters == (EAST_A,)
    report(attempt, EAST_A, AttemptPhase.COMPLETED, started_s=1.0)
    assert isinstance(end_of(attempt, 60.0), Completed)
