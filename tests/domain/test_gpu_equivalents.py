"""Jobs on weaker GPUs than those that they asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.gpu_equivalents import equivalent_tasks, fungible_job, heterogeneous_rate
from domain.identifiers import GpuModel, JobName
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification

T4, V100 = GpuModel("T4"), GpuModel("V100")


def test_three_weak_gpus_are_worth_one() -> None:
    """Lyra §7.5: "three servers which is equivalent to one training server in computational capability"."""
    assert [equivalent_tasks(tasks, 1 / 3) for tasks in (1, 2, 8)] == [3, 6, 24]
    assert [equivalent_tasks(tasks, 0.75) for tasks in (1, 2, 3)] == [2, 3, 4]
    assert equivalent_tasks(5, 1.0) == 5


@given(st.integers(1, 64), st.floats(0.05, 4.0))
def test_never_slower_and_never_a_task_too_many(tasks: int, speed: float) -> None:
    equivalent = equivalent_tasks(tasks, speed)
    assert equivalent * speed >= tasks * (1 - 1e-6)
    assert (equivalent - 1) * speed < tasks


def test_a_fungible_job_keeps_the_gpus_of_its_tasks() -> None:
    job = JobSpecification(JobName("train"), 2, TaskResources(gpus=4, gpu_model=V100), Emulated(60.0), max_tasks=3)
    other = fungible_job(job, T4, 0.5)
    assert (other.tasks, other.max_tasks, other.resources) == (4, 6, TaskResources(gpus=4, gpu_model=T4))
    fixed = fungible_job(JobSpecification(JobName("train"), 2, TaskResources(gpus=1), Emulated(60.0)), T4, 0.5)
    assert (fixed.tasks, fixed.max_tasks, fixed.greatest_tasks) == (4, 0, 4)


def test_on_both_at_once_a_part_is_lost() -> None:
    assert heterogeneous_rate(2, 2, 0, 0.5) == 1.0
    assert heterogeneous_rate(2, 0, 4, 0.5) == 1.0
    assert heterogeneous_rate(2, 2, 4, 0.5) == pytest.approx(1.4)
    assert heterogeneous_rate(2, 2, 4, 0.5, efficiency=1.0) == 2.0


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_a_speed_is_positive(speed: float) -> None:
    with pytest.raises(ValueError, match="the speed of a GPU relative to another one is positive"):
        equivalent_tasks(1, speed)
