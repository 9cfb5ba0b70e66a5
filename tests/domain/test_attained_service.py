from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.attained_service import AttainedService


def test_service_is_received_only_while_gpus_are_at_work() -> None:
    service = AttainedService().holding(8, 100.0).holding(2, 150.0)
    assert service.at(160.0) == 8 * 50 + 2 * 10
    assert service.at(140.0) == 8 * 50, "nothing that was settled is taken back"
    assert service.holding(4, 140.0).at(160.0) == 8 * 50 + 4 * 10, "a clock that is behind counts no second twice"
    ended = service.settled(170.0)
    assert ended.at(1e9) == ended.holding(4, 2e9).at(2e9) == 8 * 50 + 2 * 20


@given(st.lists(st.tuples(st.integers(0, 64), st.integers(0, 10_000)), max_size=10), st.integers(0, 100))
def test_never_another_sum_than_second_by_second(changes: list[tuple[int, int]], rest_s: int) -> None:
    service, now, expected = AttainedService(), 0, 0
    for gpus, seconds in changes:
        service = service.holding(gpus, float(now))
        now += seconds
        expected += gpus * seconds
    assert service.settled(float(now)).at(float(now + rest_s)) == pytest.approx(expected)
