"""EASY never delays the head of the queue, conservative backfilling delays no reservation."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from domain.fleet import Fleet
from formats.trace import TraceRow
from simulator.baselines.conservative_backfill import CONSERVATIVE_BACKFILL, ReservationsForAll
from simulator.baselines.free_gpus import FreeGpus
from simulator.engine.settings import SimulationSettings
from simulator.policies.policy import Policy
from tests.examples import examples
from tests.simulator.baselines.backfilling_oracles import RigidRequest, conservative_starts, easy_starts
from tests.simulator.baselines.runs import one_machine, region_of, row, run

GPUS = 6


def test_easy_lets_pass_who_ends_in_time_or_takes_what_is_left_over() -> None:
    rows = [
        row("runs", 0, 100, 2),
        row("head", 1, 50, 3),
        row("beside", 2, 500, 1),
        row("too long", 3, 500, 1),
        row("in time", 4, 50, 1),
    ]
    done = run("easy_backfill", one_machine(4), rows)
    # At 100 the head needs 3 of 4: one may be held beyond that, and no second one.
    assert done.first_starts == {"runs": 0.0, "head": 100.0, "beside": 2.0, "too long": 150.0, "in time": 4.0}
    # Without a reservation the head waits for all.
    assert run("fifo", one_machine(4), rows).first_starts["head"] == 502.0


def test_easy_may_delay_the_second_where_conservative_may_not() -> None:
    rows = [row("runs", 0, 10, 2), row("head", 1, 10, 4), row("second", 2, 10, 3), row("long", 3, 27, 1)]
    # The head runs from 10 to 20; `second` is due at 20. `long` does not fit before 10, nor beside the head.
    assert run("conservative_backfill", one_machine(4), rows).first_starts["second"] == 20.0
    rows = [row("runs", 0, 10, 2), row("head", 1, 10, 3), row("second", 2, 10, 4), row("long", 3, 27, 1)]
    easy = run("easy_backfill", one_machine(4), rows).first_starts
    conservative = run("conservative_backfill", one_machine(4), rows).first_starts
    assert (easy["long"], easy["second"]) == (3.0, 30.0)
    assert (conservative["long"], conservative["second"]) == (30.0, 20.0)


_ASKED = st.lists(
    st.builds(RigidRequest, st.integers(0, 25), st.integers(1, 20), st.integers(1, GPUS)), min_size=2, max_size=14
).map(lambda asked: sorted(asked, key=lambda job: job.submit_s))


def _rows(asked: list[RigidRequest]) -> list[TraceRow]:
    return [row(f"w{n:02}", job.submit_s, job.duration_s, job.gpus, tasks=1) for n, job in enumerate(asked)]


@given(_ASKED)
@settings(max_examples=examples(60))
def test_never_does_conservative_backfilling_break_a_reservation(asked: list[RigidRequest]) -> None:
    """The textbook makes each reservation once, at submission, for good: they are the very starts."""
    starts = run("conservative_backfill", one_machine(GPUS), _rows(asked)).first_starts
    assert list(starts.values()) == conservative_starts(asked, GPUS)


@given(_ASKED)
@settings(max_examples=examples(60))
def test_never_does_easy_differ_from_shadow_time_and_extra_nodes(asked: list[RigidRequest]) -> None:
    starts = run("easy_backfill", one_machine(GPUS), _rows(asked)).first_starts
    assert list(starts.values()) == easy_starts(asked, GPUS)


def test_the_examples_are_such_that_the_two_differ() -> None:
    asked = [RigidRequest(0, 10, 2), RigidRequest(1, 10, 5), RigidRequest(2, 10, 6), RigidRequest(3, 27, 1)]
    assert easy_starts(asked, GPUS) == [0, 10, 30, 3]
    assert conservative_starts(asked, GPUS) == [0, 10, 20, 30]


def test_easy_expects_what_starting_costs() -> None:
    settings = SimulationSettings()
    set_up_s = settings.costs.container_start_s
    rows = [row("runs", 0, 1000, 2), row("head", 1, 50, 4), row("in time", 2, 998, 1), row("too long", 3, 998, 1)]
    done = run("easy_backfill", one_machine(4), rows, settings=settings)
    # The head is due when `runs` ends; what is set up at 2 for 998 seconds ends then, what comes a second later does not.
    assert done.first_starts["in time"] == 2.0 + set_up_s
    assert done.first_starts["head"] == 1000.0 + set_up_s + set_up_s
    assert done.first_starts["too long"] > done.first_starts["head"]


def test_easy_keeps_room_in_one_region_and_starts_in_the_other() -> None:
    fleet = Fleet((region_of("east", 4), region_of("west", 2)))
    rows = [row("runs", 0, 100, 3, tasks=1), row("head", 1, 50, 4, tasks=1), row("a", 2, 500, 1), row("b", 3, 500, 1)]
    done = run("easy_backfill", fleet, rows)
    assert done.first_starts == {"runs": 0.0, "head": 100.0, "a": 2.0, "b": 3.0}
    assert (done.regions["a"], done.regions["b"]) == ("west", "west")


def test_conservative_reserves_in_the_region_of_the_earliest_hole() -> None:
    fleet = Fleet((region_of("east", 4), region_of("west", 4)))
    rows = [row("long", 0, 100, 4), row("short", 0, 30, 4), row("first", 1, 50, 4), row("second", 2, 10, 4)]
    done = run("conservative_backfill", fleet, rows)
    assert done.first_starts == {"long": 0.0, "short": 0.0, "first": 30.0, "second": 80.0}
    assert done.regions["second"] == done.regions["short"]


def test_conservative_starts_nobody_without_a_reservation() -> None:
    rows = [row("runs", 0, 100, 3), row("first", 1, 50, 4), row("second", 2, 50, 4), row("third", 3, 10, 1)]
    assert run("conservative_backfill", one_machine(4), rows).first_starts["third"] == 3.0
    few = Policy(
        name="few",
        summary="two reservations",
        ordering=CONSERVATIVE_BACKFILL.ordering,
        allocation=ReservationsForAll(most_reservations=2),
    )
    # Behind two that wait, it has to wait too, until one of them starts at 100; then it is in the way.
    assert run(few, one_machine(4), rows).first_starts["third"] == 200.0


_STEP = st.tuples(st.integers(0, 30), st.integers(1, GPUS))


@given(st.lists(_STEP, max_size=5), st.lists(st.tuples(st.integers(1, 12), st.integers(1, GPUS)), max_size=12))
def test_never_does_a_claim_take_what_another_one_has(
    ends: list[tuple[int, int]], claims: list[tuple[int, int]]
) -> None:
    """The staircase against a list of seconds."""
    horizon_s = 400
    idle = 2
    free = [idle + sum(gpus for end_s, gpus in ends if end_s <= second) for second in range(horizon_s)]
    staircase = FreeGpus(0.0, idle, sorted((float(end_s), gpus) for end_s, gpus in ends))
    for duration_s, gpus in claims:
        fitting = (s for s in range(300) if all(f >= gpus for f in free[s : s + duration_s]))
        start_s = next(fitting, None)
        assert staircase.first_fit_s(gpus, float(duration_s)) == (math.inf if start_s is None else start_s)
        if start_s is not None:
            staircase.claim(float(start_s), float(duration_s), gpus)
            for second in range(start_s, start_s + duration_s):
                free[second] -= gpus
        assert staircase.at_once == free[0]
    written = staircase.steps
    for second in range(horizon_s):
        assert [gpus for from_s, gpus in written if from_s <= second][-1] == free[second]
