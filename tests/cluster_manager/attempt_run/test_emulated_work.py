"""How far emulated work is, and what of it is saved."""

from __future__ import annotations

import math

from hypothesis import assume, given
from hypothesis import strategies as st

from cluster_manager.attempt_run.emulated_work import EmulatedJob, EmulatedWork, emulated_work

SECONDS = st.floats(0.0, 1e6)
JOBS = st.lists(st.builds(EmulatedJob, SECONDS, st.sampled_from([0.0, 1.0, 60.0, 3600.0])), min_size=1, max_size=3)


def test_work_advances_with_time_at_its_speed_until_it_is_done() -> None:
    work = emulated_work((EmulatedJob(100.0, 0.0),), 20.0, now=5.0, speed=2.0)
    assert [work.progress_at(now) for now in (5.0, 15.0, 45.0, 99.0)] == [20.0, 40.0, 100.0, 100.0]
    assert work.done_s == 45.0


def test_checkpoints_are_whole_intervals_since_the_start() -> None:
    work = emulated_work((EmulatedJob(100.0, 30.0),), 20.0, now=0.0, speed=1.0)
    assert [work.checkpoint_at(now) for now in (29.0, 30.0, 59.0, 60.0, 80.0)] == [20.0, 50.0, 50.0, 80.0, 100.0]


def test_without_an_interval_only_what_is_done_is_saved() -> None:
    work = emulated_work((EmulatedJob(50.0, 0.0), EmulatedJob(100.0, 10.0)), 0.0, now=0.0, speed=1.0)
    assert [work.checkpoint_at(now) for now in (45.0, 55.0, 100.0)] == [0.0, 50.0, 100.0]


def test_a_checkpoint_that_is_due_at_this_moment_counts_though_times_are_sums_of_floats() -> None:
    began_s = 1e9 + 0.1
    work = emulated_work((EmulatedJob(1e5, 600.0),), 0.0, now=began_s, speed=1.0)
    saved = work.checkpoint_at(began_s + 600.0)
    assert math.isclose(saved, 600.0, abs_tol=1e-6)
    assert saved <= work.progress_at(began_s + 600.0)


def test_halted_work_stands_still_and_goes_on_from_there() -> None:
    work = emulated_work((EmulatedJob(100.0, 0.0),), 0.0, now=0.0, speed=1.0).at_speed(0.0, 30.0)
    assert (work.progress_at(90.0), work.done_s) == (30.0, math.inf)
    assert work.at_speed(2.0, 90.0).done_s == 125.0


@given(JOBS, SECONDS, SECONDS, st.lists(st.tuples(SECONDS, st.sampled_from([0.0, 1.0, 1.5, 4.0])), max_size=6))
def test_never_is_work_invented(
    jobs: list[EmulatedJob], progress: float, began_s: float, changes: list[tuple[float, float]]
) -> None:
    work = first = emulated_work(tuple(jobs), progress, began_s, 1.0)
    now, greatest = began_s, first.start
    for wait_s, speed in changes:
        before = work
        now += wait_s
        greatest += wait_s * before.speed
        work = before.at_speed(speed, now)
        assert work.progress_at(now) == before.progress_at(now), "a change of speed changes nothing that is done"
        _check(work, now, greatest)


def _check(work: EmulatedWork, now: float, greatest: float) -> None:
    reached, saved = work.progress_at(now), work.checkpoint_at(now)
    assert work.start <= saved <= reached <= work.work_s
    assert reached <= greatest * (1 + 1e-9) + 1e-9


@given(JOBS, SECONDS, SECONDS, SECONDS)
def test_never_does_progress_go_back(jobs: list[EmulatedJob], progress: float, early_s: float, late_s: float) -> None:
    assume(early_s <= late_s)
    work = emulated_work(tuple(jobs), progress, 0.0, 1.0)
    assert work.progress_at(early_s) <= work.progress_at(late_s)
    assert work.checkpoint_at(early_s) <= work.checkpoint_at(late_s)
