"""What is due is taken in parts, the longest due first, and nothing is left behind."""

from __future__ import annotations

from itertools import chain

from domain.identifiers import AttemptNumber, WorkloadId
from domain.placement import AttemptKey
from services.regional_scheduler.due_attempts import MOST_AT_ONCE, DueAttempts

KEYS = tuple(AttemptKey(WorkloadId(f"w{number:06}"), AttemptNumber(1)) for number in range(2 * MOST_AT_ONCE + 1))


def test_orders_and_news_of_very_many_are_taken_in_parts() -> None:
    due = DueAttempts()
    for key in KEYS:
        due.give_orders(key)
        due.record(key)
    orders: list[tuple[AttemptKey, ...]] = []
    news: list[tuple[AttemptKey, ...]] = []
    while due.has_orders or due.has_news:
        orders.append(due.take_orders())
        news.append(due.take_news())
    assert [len(part) for part in orders] == [len(part) for part in news] == [MOST_AT_ONCE, MOST_AT_ONCE, 1]
    assert tuple(chain(*orders)) == tuple(chain(*news)) == KEYS


def test_what_is_due_again_comes_after_what_was_due_before() -> None:
    due = DueAttempts()
    for key in KEYS:
        due.give_orders(key)
    first = due.take_orders()
    due.give_orders(first[0])
    assert due.take_orders() + due.take_orders() == (*KEYS[MOST_AT_ONCE:], first[0])
