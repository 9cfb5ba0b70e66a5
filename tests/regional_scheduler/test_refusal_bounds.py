"""What the memory of refusals keeps when very much is asked: it forgets, and what was used last stays."""

from __future__ import annotations

import pytest

from cluster_manager.recently_used import RecentlyUsed
from domain.identifiers import JobName
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload
from regional_scheduler.planner import Refusal, plan_workload
from regional_scheduler.refusals import entries, releases
from regional_scheduler.refusals.memory import RefusalMemory
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.fleets import cluster, gpu_machine, hold, key_of, region, tasks_on
from tests.cluster_manager.inventory_worlds import workload_of

KINDS = 2_000
WORST = Standing(6, 0)


def kind(number: int) -> Workload:
    """More GiB and fewer CPUs from one to the next: none covers another."""
    resources = TaskResources(gpus=1, cpus=(KINDS - number) / 1000, memory_gib=1.0 + number / 1024)
    return workload_of(f"w{number}", JobSpecification(JobName("job"), 1, resources, Emulated(1.0)))


def full_region() -> RegionCapacity:
    """Two machines, each held by one attempt, either of which anything of a better standing might evict."""
    here = RegionCapacity(region(cluster("c", [gpu_machine("a"), gpu_machine("b")])))
    hold(here, "on-a", tasks_on("a", range(8), cpus=1.0), priority=3)
    hold(here, "on-b", tasks_on("b", range(8), cpus=1.0), priority=6)
    return here


def refuse(here: RegionCapacity, memory: RefusalMemory, workload: Workload, standing: Standing) -> None:
    refusal = plan_workload(here, workload, standing, 0.0, within_quota=True)
    assert isinstance(refusal, Refusal)
    memory.remember(workload, standing, refusal, 0.0, within_quota=True)


def test_thousands_of_kinds_are_all_answered_without_planning() -> None:
    here = full_region()
    memory = RefusalMemory(here)
    for number in range(KINDS):
        refuse(here, memory, kind(number), WORST)
    assert len(memory) == KINDS
    for number in range(KINDS):
        question = memory.question(kind(number).specification, within_quota=True)
        assert memory.refuses(question, WORST)
    assert (memory.lookups, memory.hits) == (KINDS, KINDS)
    here.release(key_of("on-a"))
    assert not memory.fails(kind(7), WORST, within_quota=True)


def test_what_is_released_and_taken_again_leaves_thousands_of_kinds_refused() -> None:
    here = full_region()
    memory = RefusalMemory(here)
    for number in range(KINDS):
        refuse(here, memory, kind(number), WORST)
    here.release(key_of("on-b"))
    hold(here, "on-b", tasks_on("b", range(8), cpus=1.0), priority=6)
    assert all(memory.fails(kind(number), WORST, within_quota=True) for number in range(KINDS))


def test_what_is_only_tentatively_taken_again_ends_a_refusal() -> None:
    here = full_region()
    memory = RefusalMemory(here)
    refuse(here, memory, kind(0), WORST)
    here.release(key_of("on-b"))
    with here.tentatively():
        hold(here, "on-b", tasks_on("b", range(8), cpus=1.0), priority=6)
        memory.fails(kind(0), WORST, within_quota=True)
    assert not memory.fails(kind(0), WORST, within_quota=True)


def test_what_was_asked_about_last_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "ENTRIES_REMEMBERED", 16)
    here = full_region()
    memory = RefusalMemory(here)
    for number in range(40):
        refuse(here, memory, kind(number), WORST)
        assert memory.fails(kind(0), WORST, within_quota=True)
    assert len(memory) <= 16
    assert memory.fails(kind(39), WORST, within_quota=True)
    assert not memory.fails(kind(1), WORST, within_quota=True)


def test_an_entry_that_missed_too_many_releases_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "RELEASES_REMEMBERED", 4)
    here = full_region()
    memory = RefusalMemory(here)
    larger = workload_of("gang", JobSpecification(JobName("job"), 3, TaskResources(gpus=8), Emulated(1.0)))
    # At a standing that might evict something: what could be free is not all that counts.
    better = Standing(5, 0)
    refuse(here, memory, larger, better)
    for _ in range(9):
        here.release(key_of("on-b"))
        hold(here, "on-b", tasks_on("b", range(8), cpus=1.0), priority=6)
    assert not memory.fails(larger, better, within_quota=True)


def test_recently_used_keeps_at_least_the_last_and_at_most_twice_as_many() -> None:
    kept: RecentlyUsed[int, int] = RecentlyUsed(10)
    for number in range(1_000):
        kept.put(number, -number)
        assert kept.get(3) == (-3 if number >= 3 else None)
        assert len(kept) <= 20
        assert all(kept.get(last) == -last for last in range(max(0, number - 7), number + 1))
    assert kept.get(500) is None
    kept.clear()
    assert kept.get(3) is None
