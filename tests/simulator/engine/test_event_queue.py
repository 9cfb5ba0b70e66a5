"""What happens next: by time, then by kind, then in the order in which it was foreseen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.event_queue import EventQueue, Happens

EVENTS = st.lists(st.tuples(st.integers(0, 5).map(float), st.sampled_from(list(Happens))), min_size=1, max_size=60)


@given(events=EVENTS)
def test_never_another_order_than_time_kind_sequence(events: list[tuple[float, Happens]]) -> None:
    queue = EventQueue()
    for subject, (time_s, kind) in enumerate(events):
        queue.add(time_s, kind, subject)
    taken = [queue.take() for _ in range(len(queue))]
    expected = sorted((time_s, int(kind), subject) for subject, (time_s, kind) in enumerate(events))
    assert [(event.time_s, event.kind, event.subject) for event in taken] == expected


def test_room_is_given_back_before_it_is_asked_for_and_decisions_come_last() -> None:
    order = sorted(Happens)
    assert order.index(Happens.COMPLETION) == 0
    gives, asks, decides = Happens.MACHINE_UP, Happens.SUBMISSION, Happens.SCAN_PASS
    assert order.index(gives) < order.index(asks) < order.index(decides) < order.index(Happens.AUCTION)


def test_the_past_takes_nothing_any_more() -> None:
    queue = EventQueue()
    queue.add(5.0, Happens.START)
    queue.take()
    queue.add(5.0, Happens.START)
    with pytest.raises(ValueError, match="lies before"):
        queue.add(4.9, Happens.START)
    with pytest.raises(ValueError, match="START at nan"):
        queue.add(float("nan"), Happens.START)
    queue.take()
    assert queue.next_time_s() == float("inf")
