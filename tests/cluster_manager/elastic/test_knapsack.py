"""The multiple-choice knapsack, beside trying everything and beside the same recursion in plain Python."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.elastic.knapsack import WeightedValue, best_choice
from cluster_manager.elastic.knapsack_bounds import room_bounds
from tests.examples import examples

ITEMS = st.builds(WeightedValue, st.integers(0, 6), st.integers(-5, 20).map(float))
GROUPS = st.lists(st.lists(ITEMS, min_size=1, max_size=4), max_size=5)


def weight_and_value(groups: Sequence[Sequence[WeightedValue]], chosen: Sequence[int]) -> tuple[int, float]:
    items = [group[place] for group, place in zip(groups, chosen, strict=True)]
    return sum(item.weight for item in items), sum(item.value for item in items)


def best_by_trying(groups: Sequence[Sequence[WeightedValue]], capacity: int) -> float | None:
    """The value of the best of all choices; None where each is too heavy."""
    choices = itertools.product(*(range(len(group)) for group in groups))
    weighed = [weight_and_value(groups, choice) for choice in choices]
    return max((value for weight, value in weighed if weight <= capacity), default=None)


def plain_choice(groups: Sequence[Sequence[WeightedValue]], capacity: int) -> tuple[int, ...]:
    """What the kernel decides, by the same recursion over tuples."""
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())] * (capacity + 1)
    for group in groups:
        following: list[tuple[float, tuple[int, ...]]] = []
        for room in range(capacity + 1):
            found: tuple[float, tuple[int, ...]] = (-float("inf"), ())
            for place, item in enumerate(group):
                if item.weight <= room and best[room - item.weight][0] + item.value > found[0]:
                    before = best[room - item.weight]
                    found = (before[0] + item.value, (*before[1], place))
            following.append(found)
        best = following
    return best[capacity][1]


@given(GROUPS, st.integers(0, 20))
def test_never_less_than_the_best_and_never_too_heavy(groups: list[list[WeightedValue]], capacity: int) -> None:
    best = best_by_trying(groups, capacity)
    if best is None:
        with pytest.raises(ValueError, match="the lightest items of all groups weigh"):
            best_choice(groups, capacity)
        return
    chosen = best_choice(groups, capacity)
    weight, value = weight_and_value(groups, chosen)
    assert (weight <= capacity, value) == (True, best)
    assert chosen == plain_choice(groups, capacity)


@given(GROUPS, st.integers(0, 20), st.integers(2, 8))
def test_never_another_choice_when_all_is_so_many_times_as_heavy(
    groups: list[list[WeightedValue]], capacity: int, times: int
) -> None:
    if best_by_trying(groups, capacity) is not None:
        heavier = [[WeightedValue(item.weight * times, item.value) for item in group] for group in groups]
        assert best_choice(heavier, capacity * times + times - 1) == best_choice(groups, capacity)


@st.composite
def many_groups(draw: st.DrawFn) -> list[list[WeightedValue]]:
    """Jobs with items by number of tasks; few different worths, so that many are of equal value for their weight."""
    groups = []
    for _ in range(draw(st.integers(5, 25))):
        weight, worth = draw(st.sampled_from((1, 2, 4, 8))), draw(st.sampled_from((0.1, 1.0, 1.7, 3.0)))
        falls, pause = draw(st.sampled_from((0.0, 0.3))), draw(st.sampled_from((0.0, 0.5)))
        stays = draw(st.integers(0, 4))
        values = [worth * weight * tasks * (1.0 - falls * tasks / 4) - pause * (tasks != stays) for tasks in range(5)]
        groups.append([WeightedValue(tasks * weight, value) for tasks, value in enumerate(values)])
    return groups


@settings(max_examples=examples(60))
@given(many_groups(), st.integers(0, 400))
def test_never_another_choice_of_many_than_without_bounds(groups: list[list[WeightedValue]], capacity: int) -> None:
    assert best_choice(groups, capacity) == plain_choice(groups, capacity)


def test_bounds_leave_little_open_where_jobs_differ() -> None:
    """What is beyond the bounds is not looked at."""
    drawn = np.random.default_rng(4)
    jobs, items, gpus = 3_000, 5, 12_000
    weights = (drawn.choice((1, 2, 4, 8), jobs)[:, None] * np.arange(items)).ravel()
    values = np.cumsum(drawn.random((jobs, items)), axis=1).ravel()
    least, most = room_bounds(np.arange(jobs + 1) * items, weights, values, gpus)
    assert (least >= 0).all()
    assert (most >= least).all()
    assert least[-1] == most[-1] == gpus
    assert (most - least).max() < gpus / 20


def test_nothing_to_choose_from() -> None:
    assert best_choice([], 3) == ()
    with pytest.raises(ValueError, match="a group without items"):
        best_choice([[]], 3)


def test_only_what_weighs_nothing() -> None:
    assert best_choice([[WeightedValue(0, 1.0), WeightedValue(0, 2.0)]], 0) == (1,)


def test_other_threads_go_on_while_many_are_chosen() -> None:
    """A round of thousands of jobs takes seconds; leases have to be kept meanwhile."""
    groups = [[WeightedValue(place * (1 + number % 7), float(place)) for place in range(40)] for number in range(200)]
    best_choice(groups[:2], 3)
    state = ["waits"]

    def choose() -> None:
        state[0] = "chooses"
        best_choice(groups, 20_000)
        state[0] = "has chosen"

    interval = sys.getswitchinterval()
    # No thread is interrupted: who wants to go on has to be let.
    sys.setswitchinterval(1e6)
    try:
        choosing = threading.Thread(target=choose)
        choosing.start()
        seen = state[0]
        while choosing.is_alive() and seen != "chooses":
            time.sleep(0)
            seen = state[0]
        choosing.join()
    finally:
        sys.setswitchinterval(interval)
    assert seen == "chooses"


def test_who_can_have_the_best_has_it() -> None:
    groups = [[WeightedValue(0, 1.0), WeightedValue(4, 3.0), WeightedValue(9, 3.0)], [WeightedValue(5, 2.0)]]
    assert best_choice(groups, 9) == (1, 0)
    assert best_choice(groups, 10**12) == (1, 0)
    assert best_choice(groups, 8) == (0, 0)
