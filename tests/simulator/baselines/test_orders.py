"""Which workload goes first: smallest, shortest, least remaining time, least remaining service, round robin."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from formats.trace import TraceRow
from global_scheduler.levels.time_slice import SLICE_S
from tests.examples import examples
from tests.simulator.baselines.runs import one_machine, row, run


def test_smallest_first_passes_over_the_large_one_that_came_first() -> None:
    rows = [row("busy", 0, 10, 4), row("large", 1, 10, 4), row("middle", 2, 10, 2), row("small", 3, 10, 1)]
    starts = run("sf", one_machine(4), rows).first_starts
    assert starts == {"busy": 0.0, "middle": 10.0, "small": 10.0, "large": 20.0}
    assert run("fifo", one_machine(4), rows).first_starts["large"] == 10.0


def test_among_equally_small_ones_who_came_first_goes_first() -> None:
    rows = [row("busy", 0, 10, 1), row("z", 1, 10, 1), row("a", 2, 10, 1)]
    assert run("sf", one_machine(1), rows).first_starts == {"busy": 0.0, "z": 10.0, "a": 20.0}


def test_shortest_job_first_interrupts_nobody() -> None:
    rows = [row("busy", 0, 50, 1), row("long", 1, 100, 1), row("short", 2, 5, 1), row("middle", 3, 20, 1)]
    done = run("sjf", one_machine(1), rows)
    assert done.first_starts == {"busy": 0.0, "short": 50.0, "middle": 55.0, "long": 75.0}
    assert done.preemptions == []


def test_shortest_remaining_time_first_interrupts_who_has_more_left() -> None:
    rows = [row("long", 0, 100, 1), row("short", 10, 20, 1), row("longest", 11, 95, 1)]
    done = run("srtf", one_machine(1), rows)
    assert done.preemptions == [(10.0, "long", "short")]
    assert done.ends == {"short": 30.0, "long": 120.0, "longest": 215.0}


# Several that come one after the other, on one GPU.
_ARRIVALS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 40)), min_size=2, max_size=9)


def _rows(arrivals: list[tuple[int, int]]) -> list[TraceRow]:
    return [row(f"w{number}", submit, length, 1) for number, (submit, length) in enumerate(sorted(arrivals))]


@given(_ARRIVALS)
@settings(max_examples=examples(40))
def test_never_does_srtf_let_more_remaining_work_run_while_less_waits(arrivals: list[tuple[int, int]]) -> None:
    rows = _rows(arrivals)
    assert run("srtf", one_machine(1), rows).ends == _ends_second_by_second(rows)


def _ends_second_by_second(rows: list[TraceRow]) -> dict[str, float]:
    """In each second, the one with the least left works; among equals the one that works goes on, then the one that came first."""
    left = {row.workload_id: int(row.duration_s) for row in rows}
    order = {row.workload_id: number for number, row in enumerate(rows)}
    ends: dict[str, float] = {}
    now, works = 0, None
    while left:
        there = [r.workload_id for r in rows if r.submit_s <= now and r.workload_id in left]
        if there:
            works = min(there, key=lambda name: (left[name], name != works, order[name]))
            left[works] -= 1
            if left[works] == 0:
                del left[works]
                ends[works] = now + 1.0
        now += 1
    return ends


@given(_ARRIVALS)
@settings(max_examples=examples(25))
def test_never_does_sjf_start_a_longer_one_while_a_shorter_one_waits(arrivals: list[tuple[int, int]]) -> None:
    rows = _rows(arrivals)
    starts = run("sjf", one_machine(1), rows).first_starts
    for started in rows:
        at_s = starts[started.workload_id]
        waiting = [r.duration_s for r in rows if r.submit_s <= at_s < starts[r.workload_id]]
        assert started.duration_s <= min(waiting, default=math.inf)


def test_srsf_preempts_across_buckets_only() -> None:
    # Level 3: up to 480 GPU-seconds, 4: up to 960, 5: up to 1,920.
    rows = [row("a", 0, 1000, 1), row("same bucket", 100, 500, 1), row("better bucket", 200, 400, 1)]
    done = run("srsf", one_machine(1), rows)
    assert done.preemptions == [(200.0, "a", "better bucket")]
    # Back in the queue with 800 left, `a` stands behind the one with 500 left.
    assert done.ends == {"better bucket": 600.0, "same bucket": 1100.0, "a": 1900.0}


def test_srsf_weighs_time_by_gpus() -> None:
    rows = [row("busy", 0, 10, 2), row("wide", 1, 300, 2), row("narrow", 2, 500, 1)]
    done = run("srsf", one_machine(2), rows)
    assert done.first_starts["narrow"] == 10.0
    assert done.first_starts["wide"] == 510.0
    assert run("sjf", one_machine(2), rows).first_starts["wide"] == 10.0


def test_gandiva_takes_turns_in_slices() -> None:
    done = run("gandiva", one_machine(1), [row("a", 0, 150, 1), row("b", 10, 150, 1)])
    turns = [(60.0, "a", "b"), (120.0, "b", "a"), (180.0, "a", "b"), (240.0, "b", "a")]
    assert done.preemptions == turns
    assert done.ends == {"a": 270.0, "b": 300.0}


def test_gandiva_gives_the_turn_to_who_has_waited_longest() -> None:
    rows = [row("a", 0, 120, 1), row("b", 1, 120, 1), row("c", 2, 120, 1)]
    done = run("gandiva", one_machine(1), rows)
    assert [by for _, _, by in done.preemptions] == ["b", "c", "a"]
    assert done.ends == {"a": 240.0, "b": 300.0, "c": 360.0}


def test_gandiva_costs_one_event_more_while_nobody_waits() -> None:
    rows = [row("a", 0, 100_000, 1)]
    done = run("gandiva", one_machine(1), rows)
    assert done.preemptions == []
    assert done.record.counts.events == run("fifo", one_machine(1), rows).record.counts.events + 1


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 400), st.integers(1, 4)), min_size=2, max_size=7))
@settings(max_examples=examples(25))
def test_never_does_gandiva_cut_a_slice_short(arrivals: list[tuple[int, int, int]]) -> None:
    rows = [row(f"w{n}", submit, length, gpus) for n, (submit, length, gpus) in enumerate(sorted(arrivals))]
    done = run("gandiva", one_machine(4), rows)
    attempts, ids = done.record.attempts, done.record.workloads.ids
    evicted = {(at, victim) for at, victim, _ in done.preemptions}
    for workload, started_s, ended_s in zip(
        attempts.workload.tolist(), attempts.started_s.tolist(), attempts.ended_s.tolist(), strict=True
    ):
        if (ended_s, ids[workload]) in evicted:
            assert ended_s - started_s >= SLICE_S
