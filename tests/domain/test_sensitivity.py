"""Throughput over CPUs and memory per GPU: validation, interpolation, best demands."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import ClusterId, JobName, MachineId
from domain.placement import TaskPlacement
from domain.sensitivity import AmountsPerGpu, SensitivityProfile, held_per_gpu
from tests.domain.random_profiles import profiles

SHARE = AmountsPerGpu(3.0, 62.5)
ALEXNET = SensitivityProfile(
    (1.0, 3.0, 6.0, 12.0), (20.0, 62.5, 125.0), ((0.1, 0.3, 0.3), (0.1, 1.0, 1.0), (0.1, 1.75, 1.75), (0.1, 2.0, 2.94))
)


def placed(gpus: int, cpus: float, memory_gib: float) -> TaskPlacement:
    """A task that holds this much."""
    indices = tuple(range(gpus))
    amounts = round(cpus * 1000), round(memory_gib * 1024)
    return TaskPlacement(JobName("train"), 0, ClusterId("c"), MachineId("m"), indices, *amounts)


@pytest.mark.parametrize(
    ("cpus", "memory_gib", "throughput"),
    [
        (3.0, 62.5, 1.0),
        (4.5, 62.5, 1.375),
        (9.0, 125.0, (1.75 + 2.94) / 2),
        (12.0, 93.75, (2.0 + 2.94) / 2),
        (9.0, 93.75, (1.75 + 1.75 + 2.0 + 2.94) / 4),
        (24.0, 500.0, 2.94),
        (0.5, 62.5, 0.15),
        (1.0, 10.0, 0.05),
        (0.0, 62.5, 0.0),
    ],
)
def test_throughput_is_linear_between_the_points_and_constant_beyond_them(
    cpus: float, memory_gib: float, throughput: float
) -> None:
    assert ALEXNET.throughput_with(AmountsPerGpu(cpus, memory_gib)) == pytest.approx(throughput)


def test_speed_is_relative_to_the_share_of_the_machine() -> None:
    assert ALEXNET.speed(AmountsPerGpu(12.0, 125.0), SHARE) == pytest.approx(2.94)
    assert ALEXNET.speed(AmountsPerGpu(12.0, 125.0), AmountsPerGpu(6.0, 62.5)) == pytest.approx(2.94 / 1.75)
    with pytest.raises(ValueError, match="no job runs with a proportional share"):
        ALEXNET.speed(SHARE, AmountsPerGpu(0.0, 62.5))


def test_a_job_holds_what_its_poorest_task_holds() -> None:
    assert held_per_gpu([placed(2, 8, 250), placed(1, 3, 125), placed(0, 1, 1)]) == AmountsPerGpu(3.0, 125.0)
    with pytest.raises(ValueError, match="without GPUs"):
        held_per_gpu([placed(0, 1, 1)])


@pytest.mark.parametrize(
    ("cpus", "memory", "throughput", "message"),
    [
        ((), (1.0,), (), "cpus_per_gpu is empty"),
        ((1.0,), (), ((),), "memory_gib_per_gpu is empty"),
        ((2.0, 1.0), (1.0,), ((1.0,), (1.0,)), "cpus_per_gpu must be finite, greater than 0 and ascend"),
        ((1.0, 1.0), (1.0,), ((1.0,), (1.0,)), "cpus_per_gpu must be finite, greater than 0 and ascend"),
        ((1.0, math.nan), (1.0,), ((1.0,), (1.0,)), "cpus_per_gpu must be finite, greater than 0 and ascend"),
        ((1.0, math.inf), (1.0,), ((1.0,), (1.0,)), "cpus_per_gpu must be finite, greater than 0 and ascend"),
        ((1.0,), (0.0, 1.0), ((1.0, 1.0),), "memory_gib_per_gpu must be finite, greater than 0 and ascend"),
        ((1.0, 2.0), (1.0,), ((1.0,),), "throughput must have 2 rows of 1 values"),
        ((1.0,), (1.0, 2.0), ((1.0,),), "throughput must have 1 rows of 2 values"),
        ((1.0,), (1.0,), ((0.0,),), "finite and greater than 0"),
        ((1.0,), (1.0,), ((math.nan,),), "finite and greater than 0"),
        ((1.0,), (1.0,), ((math.inf,),), "finite and greater than 0"),
        ((1.0, 2.0), (1.0,), ((2.0,), (1.0,)), "throughput decreases from .*cpus=1.0.* to .*cpus=2.0"),
        ((1.0,), (1.0, 2.0), ((2.0, 1.0),), "throughput decreases from .*memory_gib=1.0.* to .*memory_gib=2.0"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(
    cpus: tuple[float, ...], memory: tuple[float, ...], throughput: tuple[tuple[float, ...], ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SensitivityProfile(cpus, memory, throughput)


amounts = st.builds(AmountsPerGpu, st.floats(0.0, 40.0), st.floats(0.0, 600.0))


@given(profiles(), amounts, amounts)
def test_never_slower_with_more(profile: SensitivityProfile, one: AmountsPerGpu, other: AmountsPerGpu) -> None:
    most = AmountsPerGpu(max(one.cpus, other.cpus), max(one.memory_gib, other.memory_gib))
    assert profile.throughput_with(most) >= profile.throughput_with(one) * (1 - 1e-12)
    assert profile.throughput_with(most) <= profile.greatest * (1 + 1e-12)


@given(profiles())
def test_the_points_of_the_grid_have_their_own_throughput(profile: SensitivityProfile) -> None:
    for row, cpus in enumerate(profile.cpus_per_gpu):
        for column, memory_gib in enumerate(profile.memory_gib_per_gpu):
            assert profile.throughput_with(AmountsPerGpu(cpus, memory_gib)) == profile.throughput[row][column]
