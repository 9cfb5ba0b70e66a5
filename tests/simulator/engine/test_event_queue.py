"""What happens next: by time, then by kind, then in the order in which it was foreseen."""

from __future__ import annotations

import math
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.event_queue import EVERY_KIND, EventQueue, Happens

EVENTS = st.lists(st.tuples(st.integers(0, 5).map(float), st.sampled_from(list(Happens))), min_size=1, max_size=60)


@given(events=EVENTS)
def test_never_another_order_than_time_kind_sequence(events: list[tuple[float, Happens]]) -> None:
    queue = EventQueue()
    for subject, (time_s, kind) in enumerate(events):
        queue.add(time_s, kind, subject)
    expected = sorted((time_s, int(kind), subject) for subject, (time_s, kind) in enumerate(events))
    assert _take_all(queue, math.inf, EVERY_KIND) == expected


@given(events=EVENTS, now=st.integers(0, 5).map(float), before=st.sampled_from(list(Happens)))
def test_never_takes_what_is_not_due_or_not_yet_wanted(
    events: list[tuple[float, Happens]], now: float, before: Happens
) -> None:
    queue = EventQueue()
    for subject, (time_s, kind) in enumerate(events):
        queue.add(time_s, kind, subject)
    in_order = sorted((time_s, int(kind), subject) for subject, (time_s, kind) in enumerate(events))
    expected = list(takewhile(lambda event: event[0] <= now and event[1] < before, in_order))
    assert _take_all(queue, now, before) == expected
    assert len(queue) == len(events) - len(expected)


def _take_all(queue: EventQueue, now: float, before: int) -> list[tuple[float, int, int]]:
    taken = []
    while (event := queue.take_due(now, before)) is not None:
        time_s, kind, _, subject, _ = event
        taken.append((time_s, kind, subject))
    return taken


def test_room_is_given_back_before_it_is_asked_for_and_decisions_come_last() -> None:
    order = sorted(Happens)
    assert order.index(Happens.COMPLETION) == 0
    gives, asks, decides = Happens.MACHINE_UP, Happens.SUBMISSION, Happens.SCAN_PASS
    assert order.index(gives) < order.index(asks) < order.index(decides) < order.index(Happens.AUCTION)


def test_the_past_takes_nothing_any_more() -> None:
    queue = EventQueue()
    queue.add(5.0, Happens.START)
    assert queue.take_due(5.0) is not None
    queue.add(5.0, Happens.START)
    with pytest.raises(ValueError, match="lies before"):
        queue.add(4.9, Happens.START)
    with pytest.raises(ValueError, match="START at nan"):
        queue.add(float("nan"), Happens.START)
    assert queue.take_due(5.0) is not None
    assert queue.next_time_s() == float("inf")
