"""Step curves against sums over single seconds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.results.step_curve import curve_of_intervals, on_common_times

INTERVALS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=30)


def second_by_second(intervals: list[tuple[int, int, int]]) -> list[int]:
    """What is there in each second from 0 to 60."""
    return [sum(weight for begin, end, weight in intervals if begin <= second < end) for second in range(60)]


@given(INTERVALS)
def test_never_another_value_or_integral_than_second_by_second(intervals: list[tuple[int, int, int]]) -> None:
    begins, ends, weights = (np.array(column) for column in zip(*intervals, strict=True))
    curve = curve_of_intervals(begins.astype(float), ends.astype(float), weights)
    expected = second_by_second(intervals)
    assert curve.at(np.arange(60.0)).tolist() == expected
    assert curve.integral(0.0, 60.0) == sum(expected)
    assert curve.integral(7.0, 21.5) == pytest.approx(sum(expected[7:21]) + expected[21] / 2)
    assert curve.averages(np.array([0.0, 10.0, 30.0])).tolist() == [
        pytest.approx(sum(expected[:10]) / 10),
        pytest.approx(sum(expected[10:30]) / 20),
    ]
    assert curve.greatest() == max(0, *expected)


def test_nothing_is_nothing_at_any_time() -> None:
    nothing = curve_of_intervals(np.zeros(0), np.zeros(0))
    assert nothing.at(np.array([0.0, 5.0])).tolist() == [0.0, 0.0]
    assert nothing.integral(0.0, 100.0) == 0.0
    assert nothing.greatest() == 0.0


def test_curves_meet_at_all_their_times() -> None:
    one = curve_of_intervals(np.array([0.0]), np.array([10.0]))
    other = curve_of_intervals(np.array([5.0]), np.array([20.0]), np.array([3]))
    times, (first, second) = on_common_times(one, other)
    assert times.tolist() == [0.0, 5.0, 10.0, 20.0]
    assert first.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert second.tolist() == [0.0, 3.0, 3.0, 0.0]
