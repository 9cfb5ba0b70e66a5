"""Figures of a trace, against numbers worked out by hand and a plain twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.trace import TraceRow
from simulator.inputs.summary import MOST_BUCKETS, summarise
from tests.simulator.inputs.rows import many_rows, random_rows, row


def test_small_figures() -> None:
    rows = (row("a", 0, 100, 2, "x"), row("b", 50, 100, 4, "y"), row("c", 100, 40, 3, "x"), row("d", 200, 10, 0, "x"))
    summary = summarise(rows)
    assert (summary.workloads, summary.gpu_workloads, summary.tenants) == (4, 3, 2)
    assert summary.gpu_hours == pytest.approx((200 + 400 + 120) / 3600)
    assert summary.offered_gpus == pytest.approx(720 / 200)
    # 2 for 50 s, 6 for 50 s, then 7 for 40 s, 4 for 10 s, none for 50 s.
    assert summary.wanted_gpus_mean == pytest.approx((100 + 300 + 280 + 40) / 200)
    assert summary.wanted_gpus_max == 7
    assert (summary.gpus.p50, summary.gpus.max, summary.duration_s.max) == (3, 4, 100)
    assert [(group.name, group.workloads) for group in summary.by_gpus] == [("0", 1), ("2", 1), ("3-4", 2)]
    assert [(group.name, group.workloads) for group in summary.by_tenant] == [("y", 1), ("x", 3)]
    assert summary.by_region == ()
    assert summary.load.bucket_s == 60
    assert summary.load.submitted == (2, 1, 0, 1)
    assert summary.load.wanted_gpus == pytest.approx(
        ((60 * 2 + 10 * 4) / 60, (40 * 2 + 60 * 4 + 20 * 3) / 60, (30 * 4 + 20 * 3) / 60, 0), abs=1e-9
    )


def test_regions_are_listed_where_there_are_any() -> None:
    rows = (row("a", 0, 1, 1, region="east"), row("b", 0, 1, 1))
    assert [(group.name, group.workloads) for group in summarise(rows).by_region] == [("", 1), ("east", 1)]


def test_a_single_workload_has_figures_and_none_has_not() -> None:
    summary = summarise((row("a", 5, 10, 8),))
    assert (summary.offered_gpus, summary.wanted_gpus_max, summary.load.submitted) == (0.0, 8, (1,))
    assert summarise((row("a", 5, 10, 0),)).gpus.max == 0
    with pytest.raises(ValueError, match="without workloads"):
        summarise(())


def test_a_long_trace_has_few_buckets() -> None:
    load = summarise(random_rows(2_000)).load
    assert 20 < len(load.from_s) <= MOST_BUCKETS
    assert len(summarise((row("a", 0, 1, 1), row("b", 1e11, 1, 1))).load.from_s) <= MOST_BUCKETS


@given(rows=many_rows(30).filter(bool), places=st.integers(1, 5))
def test_never_differs_from_adding_up_row_by_row(rows: tuple[TraceRow, ...], places: int) -> None:
    summary = summarise(rows)
    load = summary.load
    for place in range(0, len(load.from_s), places):
        start = load.from_s[place]
        end = start + load.bucket_s
        here = [r for r in rows if start <= r.submit_s < end]
        used = sum(r.gpus * max(0.0, min(end, r.submit_s + r.duration_s) - max(start, r.submit_s)) for r in rows)
        assert load.submitted[place] == len(here)
        assert load.wanted_gpus[place] == pytest.approx(used / load.bucket_s, rel=1e-6, abs=1e-3)
    assert sum(load.submitted) == len(rows)
    moments = np.array([r.submit_s for r in rows])
    running = [sum(r.gpus for r in rows if r.submit_s <= now < r.submit_s + r.duration_s) for now in moments]
    assert summary.wanted_gpus_max == max(running)
