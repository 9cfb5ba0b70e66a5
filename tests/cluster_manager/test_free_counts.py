from __future__ import annotations

import numpy as np
import pytest

from cluster_manager.capacity import free_counts
from cluster_manager.capacity.free_counts import MOST_KINDS, QUESTIONS_REMEMBERED
from domain.identifiers import JobName
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.fleets import cluster, gpu_machine, hold, key_of, region, tasks_on


def job(millicpus: int) -> JobSpecification:
    resources = TaskResources(gpus=1, cpus=millicpus / 1000, memory_gib=1.0)
    return JobSpecification(JobName("train"), 4, resources, Emulated(60.0))


def small_region() -> RegionCapacity:
    return RegionCapacity(region(cluster("c", [gpu_machine("a"), gpu_machine("b")])))


def test_a_session_of_many_kinds_goes_on_being_answered_by_counts() -> None:
    here = small_region()
    for millicpus in range(1, MOST_KINDS + 1):
        assert here.free_counts(here.kind_of(job(millicpus))) is not None
    newer = here.kind_of(job(MOST_KINDS + 1))
    # All the others were asked for a moment ago: a queue of so many kinds must not have them counted anew in turn.
    assert here.free_counts(newer) is None
    often = here.kind_of(job(7))
    for _ in range(QUESTIONS_REMEMBERED):
        assert here.free_counts(often) is not None
    assert here.shared.counted.forgotten == 0
    counted = here.free_counts(newer)
    assert counted is not None
    assert counted.tolist() == [16]
    assert here.shared.counted.forgotten == 1
    assert here.free_counts(often) is not None
    here.check()


def test_never_does_a_count_differ_from_counting_anew_when_kinds_give_way(
    monkeypatch: pytest.MonkeyPatch, generator: np.random.Generator
) -> None:
    monkeypatch.setattr(free_counts, "MOST_KINDS", 4)
    monkeypatch.setattr(free_counts, "QUESTIONS_REMEMBERED", 3)
    here = small_region()
    held = False
    for _ in range(300):
        if held:
            here.release(key_of("one"))
        else:
            hold(here, "one", tasks_on("a", gpus=range(int(generator.integers(1, 9))), cpus=5.0))
        held = not held
        here.free_counts(here.kind_of(job(int(generator.integers(1, 12)) * 1000)))
        # Counts everything anew.
        here.check()
    assert here.shared.counted.forgotten > 10
