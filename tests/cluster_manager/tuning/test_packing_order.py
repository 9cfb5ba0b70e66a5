"""Orders of the queue under packings, worked out by hand and beside a plain reckoning."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.tuning.packing_demands import PackingDemands, packing_scores
from cluster_manager.tuning.packing_order import PACKING_ORDERS, GreatestScore, PackedWorkload, SmallestDominantShare
from domain.fleet import Machine
from domain.identifiers import ANY_GPU_MODEL, GpuModel, JobName, MachineId, TenantId
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, WorkloadSpecification

MACHINES = [Machine(MachineId(f"m{number}"), GpuModel("V100"), 8, 24.0, 500.0) for number in range(2)]
DEMANDS = PackingDemands(MACHINES)


def workload(gpus: int, cpus: float | None, memory_gib: float | None, tasks: int = 1) -> WorkloadSpecification:
    resources = TaskResources(gpus, ANY_GPU_MODEL, cpus, memory_gib)
    job = JobSpecification(JobName("main"), tasks, resources, Emulated(100.0, 0.0))
    return WorkloadSpecification("w", TenantId("t"), (job,))


def test_the_dominant_share_is_the_largest_part_of_all_that_there_is() -> None:
    assert DEMANDS.dominant_share(workload(1, 12.0, 62.5)) == pytest.approx(12 / 48)
    assert DEMANDS.dominant_share(workload(1, 1.0, 400.0)) == pytest.approx(400 / 1000)
    assert DEMANDS.dominant_share(workload(4, None, None, tasks=2)) == pytest.approx(8 / 16)


def test_what_fits_nowhere_is_aligned_with_nothing() -> None:
    asked = DEMANDS.asked(workload(2, 12.0, 100.0).jobs[0])
    free = np.array([(8, 11_000, 500 * 1024), (4, 24_000, 250 * 1024)], np.int64)
    # Only the second machine has 12 CPUs: 2/8 · 4/8 + 12/24 · 24/24 + 100/500 · 250/500.
    assert DEMANDS.alignment(asked, free) == pytest.approx(0.125 + 0.5 + 0.1)
    assert DEMANDS.alignment(asked, free[:1]) is None
    assert DEMANDS.alignment(asked, np.zeros((0, 3), np.int64)) is None


def test_drf_goes_by_dominant_shares() -> None:
    waiting = [PackedWorkload("a", 0.5, 1.0), PackedWorkload("b", 0.1, 9.0), PackedWorkload("a", 0.5, 1.0)]
    numbers = SmallestDominantShare().credits(waiting, np.zeros(3), lambda kind: None)
    assert np.argsort(-numbers, kind="stable").tolist() == [1, 0, 2]


def test_tetris_goes_by_alignment_and_what_is_left() -> None:
    waiting = [
        PackedWorkload("small", 0.1, 1.0),
        PackedWorkload("large", 0.5, 2.0),
        PackedWorkload("nowhere", 1.0, 1.0),
    ]
    aligned = {"small": 1.0, "large": 2.0, "nowhere": None}
    remaining_s = np.array([300.0, 50.0, 1.0])
    numbers = GreatestScore().credits(waiting, remaining_s, lambda kind: aligned[str(kind)])
    assert np.argsort(-numbers, kind="stable").tolist() == [1, 2, 0], "what finds no room is in nobody's way"
    # 1.5 on average beside 200: each second of size 1 weighs 1.5 / 200.
    assert numbers.tolist() == pytest.approx([1.0 - 300 * 0.0075, 2.0 - 100 * 0.0075, -1.0 - 0.0075])


def test_all_of_a_kind_stand_where_its_first_one_stands() -> None:
    waiting = [PackedWorkload("a", 0.1, 1.0), PackedWorkload("b", 0.1, 1.0), PackedWorkload("a", 0.1, 1.0)]
    numbers = GreatestScore().credits(waiting, np.array([100.0, 50.0, 1.0]), lambda kind: 1.0)
    assert numbers[0] == numbers[2] < numbers[1]


@given(st.lists(st.tuples(st.none() | st.floats(0.0, 3.0), st.floats(0.0, 1e9)), max_size=8))
def test_never_a_score_that_is_no_number(drawn: list[tuple[float | None, float]]) -> None:
    scores = packing_scores([aligned for aligned, _ in drawn], [left for _, left in drawn])
    assert len(scores) == len(drawn)
    assert all(math.isfinite(score) for score in scores)


def test_only_the_packings_order_the_queue() -> None:
    assert list(PACKING_ORDERS) == ["drf_packing", "tetris_packing"]
