"""Traces made busier, longer, larger, repeated, fitted to a load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from formats.trace import TraceRow, check_row
from simulator.inputs.scaling import LoadBy, Scale, scale_rows
from tests.simulator.inputs.rows import many_rows, random_rows, row

ROWS = (row("a", 100, 50, 8), row("b", 200, 10, 12), row("c", 300, 20, 1))


def scaled(scale: Scale, rows: tuple[TraceRow, ...] = ROWS, seed: int = 1) -> tuple[TraceRow, ...]:
    return scale_rows(rows, scale, np.random.default_rng(seed))


def test_arrivals_durations_and_sizes() -> None:
    assert scaled(Scale()) == ROWS
    assert [r.submit_s for r in scaled(Scale(arrivals=2.0))] == [100, 150, 200]
    assert [r.duration_s for r in scaled(Scale(durations=0.1))] == [5, 1, 2]
    assert [r.gpus for r in scaled(Scale(gpus=0.5))] == [4, 6, 1]
    assert [r.gpus for r in scaled(Scale(greatest_gpus=8))] == [8, 8, 1]
    assert [r.gpus for r in scaled(Scale(gpus=2.0, greatest_gpus=20))] == [16, 20, 2]


def test_what_a_workload_asks_for_besides_goes_with_its_gpus() -> None:
    asked = replace(ROWS[0], tasks=4, min_tasks=2, max_tasks=8, cpus=64.0, memory_gib=100.0)
    (half,) = scaled(Scale(gpus=0.5), (asked,))
    assert (half.gpus, half.tasks, half.min_tasks, half.max_tasks) == (4, 4, 2, 8)
    assert (half.cpus, half.memory_gib) == (32.0, 50.0)
    (odd,) = scaled(Scale(gpus=0.75), (asked,))
    assert (odd.gpus, odd.tasks, odd.min_tasks, odd.max_tasks) == (6, None, None, None)
    cpu_only = replace(asked, gpus=0)
    assert scaled(Scale(gpus=2.0), (cpu_only,)) == (cpu_only,)


def test_copies_have_names_of_their_own_and_come_near_the_first() -> None:
    taken = (*ROWS, row("a.2", 400, 1, 1), row("x" * 128, 500, 1, 1))
    made = scaled(Scale(copies=3, jitter_s=60.0), taken)
    assert len({r.workload_id for r in made}) == len(made) == 15
    assert set(taken) <= set(made)
    assert {r.workload_id for r in made} >= {"a.2x", "a.3", "b.2"}
    assert max(len(r.workload_id) for r in made) <= 128
    near = [r.submit_s for r in made if r.workload_id in ("b.2", "b.3")]
    assert all(140 <= submit_s <= 260 for submit_s in near)
    assert made == scaled(Scale(copies=3, jitter_s=60.0), taken)
    assert made != scaled(Scale(copies=3, jitter_s=60.0), taken, seed=2)


@pytest.mark.parametrize("load_by", LoadBy)
def test_a_load_is_reached(load_by: LoadBy) -> None:
    rows = random_rows(500)
    made = scaled(Scale(load=1.3, fleet_gpus=100, load_by=load_by), rows)
    offered = sum(r.gpus * r.duration_s for r in made) / (made[-1].submit_s - made[0].submit_s)
    assert offered == pytest.approx(130.0, rel=1e-3)
    if load_by is LoadBy.ARRIVALS:
        assert [r.duration_s for r in made] == [r.duration_s for r in rows]
    else:
        assert [r.submit_s for r in made] == [r.submit_s for r in rows]


def test_a_load_that_cannot_be_reached_is_refused() -> None:
    with pytest.raises(ValueError, match="all workloads come at one moment"):
        scaled(Scale(load=1.0, fleet_gpus=8), ROWS[:1])
    with pytest.raises(ValueError, match="no workload has GPUs"):
        scaled(Scale(load=1.0, fleet_gpus=8), tuple(replace(r, gpus=0) for r in ROWS))
    with pytest.raises(ValueError, match="there is no workload"):
        scaled(Scale(load=1.0, fleet_gpus=8), ())


@given(
    rows=many_rows(),
    copies=st.integers(1, 3),
    arrivals=st.floats(0.01, 100),
    durations=st.floats(1e-6, 100),
    gpus=st.floats(0.01, 50),
    seed=st.integers(0, 99),
)
def test_never_makes_a_row_that_a_trace_could_not_have(
    rows: tuple[TraceRow, ...], copies: int, arrivals: float, durations: float, gpus: float, seed: int
) -> None:
    assume(all(r.gpus for r in rows))
    scale = Scale(copies=copies, jitter_s=100.0, arrivals=arrivals, durations=durations, gpus=gpus)
    made = scaled(scale, rows, seed)
    assert len(made) == copies * len(rows)
    assert list(made) == sorted(made, key=lambda r: (r.submit_s, r.workload_id))
    for r in made:
        check_row(r)
        assert (r.submit_s >= 0, r.duration_s > 0, r.gpus >= 1) == (True, True, True)
