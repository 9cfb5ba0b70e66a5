"""Parts of a trace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.trace import TraceRow
from simulator.inputs.slicing import Slice, slice_rows
from tests.simulator.inputs.rows import many_rows, random_rows, row

ROWS = tuple(row(f"w{n}", 10.0 * n, 1, 1, "ab"[n % 2], "xy"[n // 5]) for n in range(10))


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (Slice(), "0123456789"),
        (Slice(from_s=20, until_s=50), "234"),
        (Slice(tenants=("b",)), "13579"),
        (Slice(regions=("y",), tenants=("a",)), "68"),
        (Slice(count=3), "012"),
        (Slice(from_s=30, count=2), "34"),
        (Slice(share=0.0), ""),
        (Slice(share=1.0), "0123456789"),
        (Slice(tenants=("nobody",)), ""),
    ],
    ids=["all", "window", "tenant", "both", "count", "window and count", "none", "share of all", "nobody"],
)
def test_what_is_kept(wanted: Slice, kept: str) -> None:
    found = slice_rows(ROWS, wanted, np.random.default_rng(1))
    assert "".join(r.workload_id.removeprefix("w") for r in found) == kept


def test_the_clock_can_begin_where_the_slice_does() -> None:
    def times(wanted: Slice) -> list[float]:
        return [r.submit_s for r in slice_rows(ROWS, wanted, np.random.default_rng(1))]

    assert times(Slice(from_s=25, count=2)) == [30, 40]
    assert times(Slice(from_s=25, count=2, rebase=True)) == [5, 15]
    assert times(Slice(tenants=("b",), count=2, rebase=True)) == [0, 20]


def test_a_share_is_exact_and_drawn_from_the_seed() -> None:
    rows = random_rows(1000)
    first = slice_rows(rows, Slice(share=0.137), np.random.default_rng(1))
    assert len(first) == 137
    assert first == slice_rows(rows, Slice(share=0.137), np.random.default_rng(1))
    assert first != slice_rows(rows, Slice(share=0.137), np.random.default_rng(2))


@given(rows=many_rows(), cut=st.floats(0, 1e6), seed=st.integers(0, 99))
def test_never_loses_or_doubles_a_row_when_a_trace_is_cut_in_two(
    rows: tuple[TraceRow, ...], cut: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    before, after = slice_rows(rows, Slice(until_s=cut), rng), slice_rows(rows, Slice(from_s=cut), rng)
    assert before + after == rows
