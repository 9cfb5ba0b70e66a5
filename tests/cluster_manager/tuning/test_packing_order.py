"""Orders of the queue under packings, worked out by hand and beside a plain reckoning."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.capacity.tables import Reals
from cluster_manager.tuning.packing_demands import PackingDemands, packing_scores
from cluster_manager.tuning.packing_order import PACKING_ORDERS, GreatestScore, PackedWorkload, SmallestDominantShare
from cluster_manager.tuning.predicted_room import FreeMachine, PackedJob, PackedKind, PredictedRoom
from domain.fleet import Machine
from domain.identifiers import ANY_GPU_MODEL, ClusterId, GpuModel, JobName, MachineId, RegionId, TenantId
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


def kind_of(gpus: int, cpus: float, memory_gib: float = 1.0, tasks: int = 1, regions: str = "e") -> PackedKind:
    asked = DEMANDS.asked(workload(gpus, cpus, memory_gib).jobs[0])
    return PackedKind((PackedJob(asked, tasks, ANY_GPU_MODEL),), frozenset(map(RegionId, regions)))


def machine(gpus: int, cpus: float, memory_gib: float = 500.0, region: str = "e", model: str = "V100") -> FreeMachine:
    amounts = gpus, int(cpus * 1000), int(memory_gib * 1024)
    return FreeMachine(RegionId(region), ClusterId(f"{region}-c"), GpuModel(model), *amounts)


def room_of(kinds: Mapping[str, PackedKind], *free: FreeMachine) -> PredictedRoom:
    named: dict[Hashable, PackedKind] = {name: kind for name, kind in kinds.items()}  # noqa: C416  # other types of keys
    return PredictedRoom(DEMANDS, named, free, {RegionId("e"): 8, RegionId("w"): 8})


def order_of(numbers: Reals) -> list[int]:
    order: list[int] = np.argsort(-numbers, kind="stable").tolist()
    return order


def test_drf_goes_by_dominant_shares() -> None:
    waiting = [PackedWorkload("a", 0.5, 1.0), PackedWorkload("b", 0.1, 9.0), PackedWorkload("a", 0.5, 1.0)]
    assert order_of(SmallestDominantShare().credits(waiting, np.zeros(3), room_of({}))) == [1, 0, 2]


def test_tetris_goes_by_alignment_and_what_is_left() -> None:
    kinds = {"small": kind_of(1, 1.0), "large": kind_of(4, 12.0), "nowhere": kind_of(8, 24.0)}
    waiting = [PackedWorkload(name, 0.0, 1.0) for name in kinds]
    free = machine(8, 20.0)
    # Well aligned goes first, unless it has much more to do.
    assert order_of(GreatestScore().credits(waiting, np.array([1.0, 1.0, 1.0]), room_of(kinds, free))) == [1, 0, 2]
    assert order_of(GreatestScore().credits(waiting, np.array([1.0, 99.0, 1.0]), room_of(kinds, free))) == [0, 1, 2]


def test_what_has_started_is_room_no_more() -> None:
    # Eight CPUs: one wide one, and the narrow ones beside it. Scored once, all wide ones would be first.
    kinds = {"wide": kind_of(2, 6.0), "narrow": kind_of(2, 1.0)}
    waiting = [PackedWorkload(name, 0.0, 1.0) for name in ("wide", "wide", "narrow", "narrow")]
    assert order_of(GreatestScore().credits(waiting, np.ones(4), room_of(kinds, machine(8, 8.0)))) == [0, 2, 3, 1]


def test_where_something_starts_decides_what_is_aligned_next() -> None:
    # It starts on the tighter machine, so that the other still has 8 GPUs for the large one.
    kinds = {"small": kind_of(2, 2.0), "large": kind_of(8, 2.0)}
    room = room_of(kinds, machine(8, 24.0), machine(2, 24.0))
    room.take("small")
    assert room.alignment("large") is not None
    room.take("small")
    assert room.alignment("large") is None
    assert room.alignment("small") is not None


def test_a_gang_takes_the_room_of_all_its_tasks_in_one_region() -> None:
    kinds = {"gang": kind_of(4, 4.0, tasks=3, regions="ew"), "one": kind_of(4, 4.0, regions="e")}
    room = room_of(kinds, machine(8, 24.0), machine(4, 24.0, region="w"), machine(4, 24.0))
    assert room.alignment("gang") is not None
    room.take("gang")
    assert room.alignment("gang") is None
    assert room.alignment("one") is None, "all three are in the east"


def test_of_two_regions_the_emptier_takes_it() -> None:
    kinds = {"either": kind_of(8, 1.0, regions="ew"), "west": kind_of(8, 1.0, regions="w")}
    room = room_of(kinds, machine(8, 24.0), machine(8, 24.0, region="w"), machine(4, 24.0, region="w"))
    room.take("either")
    assert room.alignment("west") is None


@given(
    st.lists(st.tuples(st.integers(-1, 4), st.integers(-2, 12), st.integers(-4, 64)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 12), st.integers(1, 64)), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), max_size=12),
)
def test_never_another_alignment_than_that_of_the_machines_themselves(
    free: list[tuple[int, int, int]], asked: list[tuple[int, int, int]], taken: list[int]
) -> None:
    kinds = {str(number): kind_of(gpus, cpus, memory) for number, (gpus, cpus, memory) in enumerate(asked)}
    machines = [machine(*amounts) for amounts in free]
    room = room_of(kinds, *machines)
    plain = [[m.gpus, m.millicpus, m.mebibytes] for m in machines]
    for number in [-1, *taken]:
        name = str(number % len(kinds))
        if number >= 0:
            needs = kinds[name].jobs[0].asked.tolist()
            fits = [m for m in plain if all(has >= need for has, need in zip(m, needs, strict=True))]
            if fits:
                tightest = min(fits, key=lambda m: m[0])
                tightest[:] = [has - int(need) for has, need in zip(tightest, needs, strict=True)]
            room.take(name)
        for each, kind in kinds.items():
            expected = DEMANDS.alignment(kind.jobs[0].asked, np.array(plain, np.int64))
            assert room.alignment(each) == expected


@given(st.lists(st.tuples(st.none() | st.floats(0.0, 3.0), st.floats(0.0, 1e9)), max_size=8))
def test_never_a_score_that_is_no_number(drawn: list[tuple[float | None, float]]) -> None:
    scores = packing_scores([aligned for aligned, _ in drawn], [left for _, left in drawn])
    assert len(scores) == len(drawn)
    assert all(math.isfinite(score) for score in scores)


def test_only_the_packings_order_the_queue() -> None:
    assert list(PACKING_ORDERS) == ["drf_packing", "tetris_packing"]
