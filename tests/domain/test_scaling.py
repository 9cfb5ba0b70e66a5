"""How much faster jobs are with more tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.scaling import LINEAR_SCALING, LinearScaling, MeasuredScaling, Scaling

CURVE = MeasuredScaling(((1, 10.0), (2, 18.0), (4, 30.0)))


def test_linear_scaling_is_in_proportion_to_the_tasks() -> None:
    assert [LINEAR_SCALING.rate(2, tasks) for tasks in (2, 3, 6)] == [1.0, 1.5, 3.0]


def test_a_loss_is_that_of_each_task_that_is_added() -> None:
    """Lyra §7.2: "we add a 20% loss to the throughput brought by this worker"."""
    assert [LinearScaling(0.2).rate(2, tasks) for tasks in (2, 3, 4)] == pytest.approx([1.0, 1.4, 1.8])
    assert LinearScaling(1.0).rate(2, 9) == 1.0


def test_a_measured_curve_is_interpolated_and_ends() -> None:
    assert [CURVE.rate(1, tasks) for tasks in (1, 2, 3, 4, 9)] == pytest.approx([1.0, 1.8, 2.4, 3.0, 3.0])
    assert CURVE.rate(2, 3) == pytest.approx(24 / 18)
    assert MeasuredScaling(((4, 20.0),)).rate(1, 2) == pytest.approx(2.0)


@pytest.mark.parametrize("scaling", [LINEAR_SCALING, LinearScaling(0.2), CURVE], ids=str)
@given(base=st.integers(1, 5), more=st.integers(0, 9))
def test_never_slower_with_more_tasks(scaling: Scaling, base: int, more: int) -> None:
    assert 1.0 <= scaling.rate(base, base + more) <= scaling.rate(base, base + more + 1)


@pytest.mark.parametrize("loss", [-0.1, 1.1, float("nan")])
def test_a_loss_is_a_share(loss: float) -> None:
    with pytest.raises(ValueError, match="the loss of a flexible task is a share from 0 to 1"):
        LinearScaling(loss)


def test_what_is_no_curve_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one point"):
        MeasuredScaling(())
    with pytest.raises(ValueError, match="ascend by tasks from 1 on: 2 after 2"):
        MeasuredScaling(((2, 1.0), (2, 2.0)))
    with pytest.raises(ValueError, match=r"never decreases: 1\.0 with 3 tasks, after 2\.0 with 2"):
        MeasuredScaling(((2, 2.0), (3, 1.0)))
    with pytest.raises(ValueError, match="is positive"):
        MeasuredScaling(((1, float("nan")),))
