from dataclasses import replace

import pytest

from domain.identifiers import JobName, MachineId
from domain.placement import TaskPlacement
from domain.plan import TaskName
from domain.workload import Command, Emulated
from services.execution.emulation import Emulation
from services.execution.executor import (
    AttemptOrder,
    AttemptPhase,
    AttemptStatus,
    ImpossibleOrder,
    StaleOrder,
    UnknownAttempt,
)
from tests.execution.orders import emulated, job, key, order, placement


def phases(changed: list[AttemptStatus]) -> list[tuple[int, AttemptPhase]]:
    return [(status.key.attempt, status.phase) for status in changed]


def only(emulation: Emulation, now: float) -> AttemptStatus:
    (status,) = emulation.statuses(now)
    return status


def test_an_attempt_runs_for_its_duration() -> None:
    emulation = Emulation()
    (started,) = emulation.execute(emulated(100.0), now=10.0)
    assert (started.phase, started.started_s, started.progress, started.emulated) == (
        AttemptPhase.RUNNING,
        10.0,
        0.0,
        True,
    )
    assert emulation.next_due_s() == 110.0
    assert emulation.advance(109.0) == []
    assert only(emulation, 109.0).progress == 99.0
    (ended,) = emulation.advance(115.0)
    assert (ended.phase, ended.since_s, ended.progress, ended.checkpoint_progress) == (
        AttemptPhase.COMPLETED,
        110.0,
        100.0,
        100.0,
    )
    assert emulation.next_due_s() is None


def test_restored_progress_is_not_done_again() -> None:
    emulation = Emulation()
    emulation.execute(emulated(100.0, progress=70.0), now=0.0)
    assert emulation.next_due_s() == 30.0
    assert only(emulation, 5.0).progress == 75.0


def test_an_attempt_with_nothing_left_to_do_is_complete_at_once() -> None:
    changed = Emulation().execute(emulated(100.0, progress=100.0), now=3.0)
    assert phases(changed) == [(1, AttemptPhase.RUNNING), (1, AttemptPhase.COMPLETED)]


def test_only_whole_checkpoint_intervals_are_saved() -> None:
    emulation = Emulation()
    emulation.execute(emulated(100.0, 30.0, progress=5.0), now=0.0)
    assert [only(emulation, at).checkpoint_progress for at in (0.0, 29.0, 30.0, 89.0, 90.0)] == [5, 5, 35, 65, 95]


def test_a_stop_with_grace_saves_all_work() -> None:
    emulation = Emulation()
    emulation.execute(emulated(100.0, 30.0), now=0.0)
    (stopped,) = emulation.stop(key(), 10.0, now=45.0)
    assert (stopped.phase, stopped.progress, stopped.checkpoint_progress) == (AttemptPhase.STOPPED, 45.0, 45.0)


def test_a_stop_without_grace_keeps_the_last_checkpoint_only() -> None:
    emulation = Emulation()
    emulation.execute(emulated(100.0, 30.0), now=0.0)
    (stopped,) = emulation.stop(key(), 0.0, now=45.0)
    assert (stopped.phase, stopped.progress, stopped.checkpoint_progress) == (AttemptPhase.STOPPED, 45.0, 30.0)


def test_saving_takes_its_time_and_fits_into_the_grace_or_is_lost() -> None:
    patient, hasty = Emulation(checkpoint_time_s=5.0), Emulation(checkpoint_time_s=5.0)
    for emulation in (patient, hasty):
        emulation.execute(emulated(100.0), now=0.0)
    assert phases(patient.stop(key(), 10.0, now=40.0)) == [(1, AttemptPhase.STOPPING)]
    assert phases(hasty.stop(key(), 3.0, now=40.0)) == [(1, AttemptPhase.STOPPING)]
    assert only(patient, 44.0).progress == 40.0
    (saved,), (lost,) = patient.advance(45.0), hasty.advance(43.0)
    assert (saved.phase, saved.since_s, saved.checkpoint_progress) == (AttemptPhase.STOPPED, 45.0, 40.0)
    assert (lost.phase, lost.since_s, lost.checkpoint_progress) == (AttemptPhase.STOPPED, 43.0, 0.0)


def test_a_second_stop_can_only_shorten_the_grace() -> None:
    emulation = Emulation(checkpoint_time_s=5.0)
    emulation.execute(emulated(100.0), now=0.0)
    emulation.stop(key(), 10.0, now=40.0)
    assert emulation.stop(key(), 60.0, now=41.0) == []
    assert emulation.next_due_s() == 45.0
    (killed,) = emulation.stop(key(), 0.0, now=42.0)
    assert (killed.phase, killed.checkpoint_progress) == (AttemptPhase.STOPPED, 0.0)


def test_a_held_attempt_starts_when_the_hold_is_over() -> None:
    emulation = Emulation()
    assert phases(emulation.execute(emulated(100.0, hold=True), now=0.0)) == [(1, AttemptPhase.HELD)]
    assert emulation.next_due_s() is None
    assert only(emulation, 50.0).progress == 0.0
    assert phases(emulation.execute(emulated(100.0), now=60.0)) == [(1, AttemptPhase.RUNNING)]
    assert emulation.next_due_s() == 160.0


def test_a_held_attempt_is_stopped_at_once() -> None:
    emulation = Emulation(checkpoint_time_s=5.0)
    emulation.execute(emulated(100.0, hold=True, progress=20.0), now=0.0)
    (stopped,) = emulation.stop(key(), 30.0, now=1.0)
    assert (stopped.phase, stopped.checkpoint_progress) == (AttemptPhase.STOPPED, 20.0)


def test_an_attempt_that_was_running_goes_on_as_if_nothing_had_happened() -> None:
    emulation = Emulation()
    (resumed,) = emulation.execute(emulated(100.0, 10.0, progress=20.0, started_s=1000.0), now=1050.0)
    assert (resumed.started_s, resumed.progress, resumed.checkpoint_progress) == (1000.0, 70.0, 70.0)
    assert emulation.next_due_s() == 1080.0


def test_one_that_ended_while_nobody_looked_ended_then() -> None:
    changed = Emulation().execute(emulated(100.0, started_s=1000.0), now=5000.0)
    assert phases(changed) == [(1, AttemptPhase.RUNNING), (1, AttemptPhase.COMPLETED)]
    assert changed[-1].since_s == 1100.0


def test_repeating_an_order_changes_nothing() -> None:
    emulation = Emulation()
    emulation.execute(emulated(100.0), now=0.0)
    assert emulation.execute(emulated(100.0), now=10.0) == []
    emulation.advance(100.0)
    assert emulation.execute(emulated(100.0), now=110.0) == []
    assert only(emulation, 120.0).phase is AttemptPhase.COMPLETED


def test_a_newer_attempt_ends_the_older_one() -> None:
    emulation = Emulation()
    emulation.execute(emulated(100.0, 10.0), now=0.0)
    changed = emulation.execute(emulated(100.0, attempt=2), now=25.0)
    assert phases(changed) == [(1, AttemptPhase.STOPPED), (2, AttemptPhase.RUNNING)]
    assert changed[0].checkpoint_progress == 20.0
    assert "attempt 2" in changed[0].reason


def test_a_stale_order_is_refused() -> None:
    emulation = Emulation()
    emulation.execute(emulated(100.0, attempt=3), now=0.0)
    with pytest.raises(StaleOrder, match="attempt 2 of w is stale: attempt 3 has been seen"):
        emulation.execute(emulated(100.0, attempt=2), now=1.0)


def test_a_forgotten_attempt_does_not_come_back() -> None:
    emulation = Emulation()
    emulation.execute(emulated(100.0), now=0.0)
    emulation.forget([key()])
    assert only(emulation, 50.0).phase is AttemptPhase.RUNNING
    emulation.advance(100.0)
    emulation.forget([key()])
    assert emulation.statuses(100.0) == ()
    with pytest.raises(StaleOrder):
        emulation.execute(emulated(100.0), now=101.0)
    assert emulation.stop(key(), 0.0, now=102.0) == []


def test_a_stop_that_overtakes_its_order_wins() -> None:
    emulation = Emulation()
    emulation.execute(emulated(100.0), now=0.0)
    changed = emulation.stop(key(attempt=2), 30.0, now=5.0)
    assert phases(changed) == [(1, AttemptPhase.STOPPED), (2, AttemptPhase.STOPPED)]
    assert emulation.execute(emulated(100.0, attempt=2), now=6.0) == []
    assert {status.phase for status in emulation.statuses(7.0)} == {AttemptPhase.STOPPED}


def test_a_lost_machine_loses_what_is_on_it_and_what_is_put_on_it() -> None:
    emulation = Emulation()
    two = order(job(Emulated(100.0, 30.0), tasks=2), placements=(placement(), placement(task=1, machine="m1")))
    emulation.execute(two, now=0.0)
    emulation.execute(emulated(100.0, workload="elsewhere"), now=0.0)
    (lost,) = emulation.set_machine(MachineId("m1"), False, "power cut", now=70.0)
    assert (lost.key, lost.phase, lost.checkpoint_progress) == (key(), AttemptPhase.LOST, 60.0)
    assert lost.reason == "machine m1 was lost: power cut"
    assert phases(emulation.execute(replace(two, key=key(attempt=2)), now=71.0)) == [(2, AttemptPhase.LOST)]
    emulation.set_machine(MachineId("m1"), True, "", now=80.0)
    assert phases(emulation.execute(replace(two, key=key(attempt=3)), now=81.0)) == [(3, AttemptPhase.RUNNING)]


def grown() -> AttemptOrder:
    """One base task on m0, a flexible one on m1."""
    return order(job(Emulated(100.0, 30.0), max_tasks=3), placements=(placement(), placement(task=1, machine="m1")))


def test_what_has_flexible_tasks_only_on_a_lost_machine_stands_still_until_it_is_resized() -> None:
    emulation = Emulation()
    emulation.execute(replace(grown(), work_rate=2.0), now=0.0)
    (lost,) = emulation.set_machine(MachineId("m1"), False, "power cut", now=20.0)
    assert (lost.phase, lost.progress, lost.throughput) == (AttemptPhase.RUNNING, 40.0, 0.0)
    assert lost.lost_tasks == (TaskName(JobName("train"), 1),)
    assert emulation.next_due_s() is None
    emulation.set_machine(MachineId("m1"), True, "", now=25.0)
    assert only(emulation, 30.0).progress == 40.0, "the task is gone, even if its machine is back"
    (resized,) = emulation.resize(key(), (placement(),), 1, 1.0, now=30.0)
    assert (resized.lost_tasks, resized.revision, resized.progress) == ((), 1, 40.0)
    assert emulation.next_due_s() == 90.0


def test_a_change_that_does_not_know_of_the_loss_yet_moves_nothing() -> None:
    emulation = Emulation()
    emulation.execute(grown(), now=0.0)
    emulation.set_machine(MachineId("m1"), False, "power cut", now=20.0)
    more = (*grown().placements, placement(task=2))
    (changed,) = emulation.resize(key(), more, 1, 3.0, now=30.0)
    assert (changed.phase, changed.throughput, changed.revision) == (AttemptPhase.RUNNING, 0.0, 1)
    assert changed.lost_tasks == (TaskName(JobName("train"), 1),)
    assert only(emulation, 50.0).progress == 20.0


def test_a_part_that_is_left_with_nothing_is_complete() -> None:
    emulation = Emulation()
    here = replace(grown(), placements=(placement(task=1, machine="m1"),))
    emulation.execute(here, now=0.0)
    (left,) = emulation.resize(key(), (), 1, 1.0, now=20.0)
    assert (left.phase, left.revision, left.progress, left.changed_s) == (AttemptPhase.COMPLETED, 1, 20.0, 20.0)
    assert emulation.next_due_s() is None
    assert phases(emulation.execute(replace(here, placements=()), now=21.0)) == []


def test_the_base_task_that_is_lost_later_ends_it() -> None:
    emulation = Emulation()
    emulation.execute(grown(), now=0.0)
    emulation.set_machine(MachineId("m1"), False, "power cut", now=20.0)
    (ended,) = emulation.set_machine(MachineId("m0"), False, "fire", now=21.0)
    assert (ended.phase, ended.progress) == (AttemptPhase.LOST, 20.0)


def test_the_attempt_is_as_long_as_its_longest_job_here() -> None:
    emulation = Emulation()
    emulation.execute(order(job(Emulated(100.0), "train"), job(Emulated(30.0), "prepare")), now=0.0)
    assert emulation.next_due_s() == 100.0
    here = order(
        job(Emulated(100.0), "train"), job(Emulated(30.0), "prepare"), workload="v", placements=(placement("prepare"),)
    )
    emulation.execute(here, now=0.0)
    assert emulation.next_due_s() == 30.0


def test_a_checkpoint_holds_what_every_job_has_saved() -> None:
    emulation = Emulation()
    jobs = (job(Emulated(100.0, 10.0), "train"), job(Emulated(35.0, 20.0), "prepare"))
    emulation.execute(order(*jobs), now=0.0)
    # Until 35 s the slower saver decides; then its work is done, and only the other counts.
    assert [only(emulation, at).checkpoint_progress for at in (15.0, 25.0, 34.0, 35.0, 44.0)] == [0, 20, 20, 30, 40]


def test_flexible_tasks_speed_an_elastic_job_up() -> None:
    emulation = Emulation()
    elastic = order(job(Emulated(100.0), tasks=2, max_tasks=4))
    emulation.execute(elastic, now=0.0)
    four = tuple(placement(task=task) for task in range(4))
    (resized,) = emulation.resize(key(), four, 1, 2.0, now=40.0)
    assert (resized.phase, resized.progress, resized.throughput, resized.started_s) == (
        AttemptPhase.RUNNING,
        40.0,
        2.0,
        0.0,
    )
    assert emulation.next_due_s() == 70.0
    emulation.resize(key(), four[:2], 2, 1.0, now=50.0)
    assert emulation.next_due_s() == 90.0
    emulation.resize(key(), four, 1, 2.0, now=60.0)
    assert emulation.next_due_s() == 90.0, "an old change came late, and changed something"


def test_a_resized_attempt_goes_on_after_a_restart_with_what_it_had_done() -> None:
    elastic = order(job(Emulated(100.0), tasks=2, max_tasks=4))
    four = tuple(placement(task=task) for task in range(4))
    before = Emulation()
    before.execute(elastic, now=10.0)
    (resized,) = before.resize(key(), four, 1, 2.0, now=50.0)
    assert (resized.revision, resized.changed_s, resized.changed_progress) == (1, 50.0, 40.0)
    again = replace(
        elastic, placements=four, started_s=10.0, revision=1, changed_s=50.0, changed_progress=40.0, work_rate=2.0
    )
    after = Emulation()
    after.execute(again, now=60.0)
    assert only(after, 60.0).progress == only(before, 60.0).progress == 60.0
    assert after.next_due_s() == before.next_due_s() == 80.0


def test_a_resize_of_nothing_known_is_refused() -> None:
    with pytest.raises(UnknownAttempt):
        Emulation().resize(key(), (placement(),), 1, 1.0, now=0.0)


@pytest.mark.parametrize(
    ("placements", "why"),
    [
        ((), "has no placement"),
        ((placement("other"),), "has no job 'other'"),
        ((placement(task=1),), "has tasks 0 to 0, not 1"),
        ((placement(), placement()), "is placed twice"),
    ],
    ids=["nothing", "unknown job", "unknown task", "twice"],
)
def test_an_order_that_makes_no_sense_fails(placements: tuple[TaskPlacement, ...], why: str) -> None:
    emulation = Emulation()
    (failed,) = emulation.execute(order(job(Emulated(10.0)), placements=placements), now=0.0)
    assert failed.phase is AttemptPhase.FAILED
    assert why in failed.reason
    emulation.execute(emulated(100.0, workload="running"), now=0.0)
    with pytest.raises(ImpossibleOrder, match=why):
        emulation.resize(key("running"), placements, 1, 1.0, now=1.0)


@pytest.mark.parametrize("duration_s", [float("nan"), float("inf"), -1.0])
def test_work_of_no_length_fails(duration_s: float) -> None:
    (failed,) = Emulation().execute(emulated(duration_s), now=0.0)
    assert failed.phase is AttemptPhase.FAILED


def test_real_jobs_are_not_emulated() -> None:
    (failed,) = Emulation().execute(order(job(Command(("true",)))), now=0.0)
    assert failed.reason == "job train of w is not emulated"


def test_what_was_stopped_long_before_its_end_leaves_nothing_behind() -> None:
    emulation = Emulation()
    for number in range(5_000):
        emulation.execute(emulated(1e9, workload=f"w{number}"), now=0.0)
        emulation.stop(key(f"w{number}"), 0.0, now=0.0)
    assert len(emulation._due) < 2_000
