from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import TenantId
from global_scheduler.usage_window import UseStretches, WindowedUse, window_averages

ASH, BIRCH = TenantId("ash"), TenantId("birch")

_stretches = st.lists(
    st.tuples(
        st.sampled_from((ASH, BIRCH)),
        st.floats(0.0, 200.0),
        st.floats(0.0, 50.0),
        st.floats(0.0, 1e6),
        st.floats(0.0, 1e6),
    ),
    max_size=12,
)


def stretches(*rows: tuple[TenantId, float, float, float, float]) -> UseStretches:
    return UseStretches(*(list(column) for column in zip(*rows, strict=True))) if rows else UseStretches(*[[]] * 5)


def test_only_the_part_within_the_window_counts() -> None:
    averages = window_averages(
        stretches(
            (BIRCH, 100.0, 200.0, 800.0, 0.0),  # all of it: 8 GPUs for the whole window
            (ASH, 50.0, 150.0, 400.0, 100.0),  # half of it
            (ASH, 150.0, 250.0, 200.0, 0.0),  # half of it: the rest is still to come
            (ASH, 0.0, 100.0, 9_999.0, 9_999.0),  # before it
        ),
        now=200.0,
        window_s=100.0,
    )
    assert averages == {ASH: WindowedUse(3.0, 0.5), BIRCH: WindowedUse(8.0, 0.0)}
    assert list(averages) == [ASH, BIRCH]


def test_nothing_was_used() -> None:
    assert window_averages(stretches(), 0.0, 1.0) == {}
    assert window_averages(stretches((ASH, 1.0, 1.0, 0.0, 0.0)), 1.0, 1.0) == {ASH: WindowedUse()}


@given(_stretches, st.randoms(use_true_random=False))
def test_never_depends_on_the_order_of_the_rows(
    drawn: list[tuple[TenantId, float, float, float, float]], shuffler: Random
) -> None:
    rows = [(tenant, start_s, start_s + length_s, gpu, cpu) for tenant, start_s, length_s, gpu, cpu in drawn]
    shuffled = list(rows)
    shuffler.shuffle(shuffled)
    assert window_averages(stretches(*rows), 180.0, 90.0) == window_averages(stretches(*shuffled), 180.0, 90.0)


@given(_stretches)
def test_never_counts_more_than_was_used(drawn: list[tuple[TenantId, float, float, float, float]]) -> None:
    rows = [(tenant, start_s, start_s + length_s, gpu, cpu) for tenant, start_s, length_s, gpu, cpu in drawn]
    averages = window_averages(stretches(*rows), 180.0, 90.0)
    assert sum(use.gpus for use in averages.values()) * 90.0 <= sum(row[3] for row in rows) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(ASH, 2.0, 1.0, 0.0, 0.0)], "ends before it starts"),
        ([(ASH, 1.0, float("nan"), 0.0, 0.0)], "ends before it starts"),
        ([(ASH, 1.0, 2.0, -1.0, 0.0)], "negative use"),
        ([(ASH, 1.0, 2.0, 0.0, -1.0)], "negative use"),
    ],
)
def test_rows_that_make_no_sense_are_refused(
    rows: list[tuple[TenantId, float, float, float, float]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        window_averages(stretches(*rows), 10.0, 10.0)


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        window_averages(UseStretches([ASH], [1.0], [2.0], [1.0, 2.0], [0.0]), 10.0, 10.0)
    with pytest.raises(ValueError, match="longer than 0"):
        window_averages(stretches(), 10.0, 0.0)
