"""Which CPUs are measured, and what is made of it, against jobs whose throughput is known everywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.tuning.optimistic_profiling import (
    MOST_POINTS,
    CacheModel,
    complete_profile,
    memory_axis,
    next_cpus,
)
from domain.sensitivity import AmountsPerGpu

IMAGES = CacheModel(dataset_gib=150.0, gib_per_iteration=0.05, storage_gib_per_s=0.5, process_gib=20.0)


def measure_all(throughput: dict[int, float], most_points: int = MOST_POINTS) -> list[int]:
    """The CPUs that are measured, in order, of a job with this throughput."""
    measured: dict[int, float] = {}
    while (cpus := next_cpus(measured, max(throughput), most_points=most_points)) is not None:
        assert cpus not in measured
        measured[cpus] = throughput[cpus]
    return list(measured)


def test_a_job_that_needs_no_cpus_is_measured_twice() -> None:
    assert measure_all(dict.fromkeys(range(1, 25), 10.0)) == [24, 1]


def test_what_differs_most_is_measured_next_and_where_nothing_differs_nothing_is() -> None:
    linear_to_six = {cpus: float(min(cpus, 6)) for cpus in range(1, 25)}
    assert measure_all(linear_to_six) == [24, 1, 12, 6, 3, 4, 5, 2]


def test_a_difference_below_the_threshold_ends_the_search() -> None:
    assert next_cpus({24: 1.09, 1: 1.0}, 24) is None
    assert next_cpus({24: 1.10, 1: 1.0}, 24) == 12
    assert next_cpus({24: 1.10, 1: 1.0}, 24, threshold=0.2) is None


def test_a_machine_of_two_cpus_is_measured_twice_and_of_one_once() -> None:
    assert measure_all({1: 1.0, 2: 2.0}) == [2, 1]
    assert measure_all({1: 1.0}) == [1]
    with pytest.raises(ValueError, match="1 CPU per GPU or more"):
        next_cpus({}, 0)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=32), st.integers(2, 12))
def test_never_more_points_than_asked_and_never_one_twice(steps: list[int], most_points: int) -> None:
    throughput, total = {}, 1.0
    for cpus, step in enumerate(steps, 1):
        total += step
        throughput[cpus] = total
    assert len(measure_all(throughput, most_points)) <= most_points


@given(st.lists(st.integers(0, 50), min_size=1, max_size=32))
def test_never_a_difference_left_between_points_when_points_are_not_bounded(steps: list[int]) -> None:
    throughput, total = {}, 10.0
    for cpus, step in enumerate(steps, 1):
        total += step
        throughput[cpus] = total
    points = sorted(measure_all(throughput, 1000))
    for fewer, more in pairwise(points):
        assert more - fewer == 1 or throughput[more] < 1.1 * throughput[fewer]


def test_the_cache_holds_what_the_processes_leave() -> None:
    assert IMAGES.hit_rate(20.0) == 0.0
    assert IMAGES.hit_rate(95.0) == 0.5
    assert IMAGES.hit_rate(500.0) == 1.0
    assert IMAGES.fetch_s(95.0) == pytest.approx(0.05)
    assert IMAGES.throughput(30.0, 95.0) == pytest.approx(20.0)
    assert IMAGES.throughput(10.0, 95.0) == pytest.approx(10.0)
    four = CacheModel(150.0, 0.05, 0.5, 20.0, gpus=4)
    assert four.hit_rate(95.0 / 4) == 0.5


@pytest.mark.parametrize("field", ["dataset_gib", "storage_gib_per_s", "process_gib", "gpus"])
def test_a_cache_of_nothing_is_refused(field: str) -> None:
    given_values = {
        "dataset_gib": 1.0,
        "gib_per_iteration": 0.0,
        "storage_gib_per_s": 1.0,
        "process_gib": 1.0,
        "gpus": 1,
    }
    with pytest.raises(ValueError, match=r"greater than 0|at least one GPU"):
        CacheModel(**{**given_values, field: 0})  # type: ignore[arg-type]  # the field's own type


def test_the_memory_axis_has_the_points_where_throughput_bends() -> None:
    assert memory_axis(IMAGES, 250.0) == (20.0, 50.0, 100.0, 150.0, 170.0, 200.0, 250.0)
    assert memory_axis(IMAGES, 120.0) == (20.0, 50.0, 100.0, 120.0)
    with pytest.raises(ValueError, match=r"needs 20\.0 GiB per GPU for its processes alone, and there are 10\.0"):
        memory_axis(IMAGES, 10.0)


def test_noise_never_makes_a_profile_decrease() -> None:
    profile = complete_profile({1: 5.0, 2: 4.9, 4: 8.0}, IMAGES, (20.0, 170.0))
    assert [row[-1] for row in profile.throughput] == [5.0, 5.0, 8.0]
    with pytest.raises(ValueError, match="must be greater than 0"):
        complete_profile({1: 0.0}, IMAGES, (20.0,))
    with pytest.raises(ValueError, match="cpus_per_gpu is empty"):
        complete_profile({}, IMAGES, (20.0,))


@given(
    st.floats(0.02, 0.5),
    st.floats(0.05, 0.5),
    st.floats(20.0, 400.0),
    st.floats(0.0, 0.2),
    st.floats(0.1, 2.0),
)
def test_the_profile_is_within_three_percent_of_the_truth_where_it_was_measured(
    compute_s: float, cpu_s: float, dataset_gib: float, gib_per_iteration: float, storage: float
) -> None:
    """Estimations are within 3 % of the empirical results (Synergy §3.1, Figure 5a): memory is never measured."""
    cache = CacheModel(dataset_gib, gib_per_iteration, storage, 20.0)

    def truth(cpus: float, memory_gib: float) -> float:
        return 1.0 / max(compute_s, cpu_s / cpus, cache.fetch_s(memory_gib))

    measured: dict[int, float] = {}
    while (cpus := next_cpus(measured, 24)) is not None:
        measured[cpus] = truth(cpus, 500.0)
    axis = memory_axis(cache, 500.0)
    profile = complete_profile(measured, cache, axis)
    for cpus in measured:
        for memory_gib in axis:
            estimated = profile.throughput_with(AmountsPerGpu(float(cpus), memory_gib))
            assert estimated == pytest.approx(truth(cpus, memory_gib), rel=0.03)
