"""What a region is known to have no place for, and when that is forgotten."""

import pytest

from domain.diagnosis import Reason
from domain.fleet import MachineState
from domain.identifiers import ANY_GPU_MODEL, GpuModel, JobName, MachineId
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification
from regional_scheduler.planner import Refusal, plan_workload
from regional_scheduler.refusals.memory import RefusalMemory
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.fleets import A100, H100, cluster, cpu_machine, gpu_machine, hold, region, tasks_on
from tests.cluster_manager.inventory_worlds import workload_of

MIDDLE = Standing(3, 1)


def job(
    tasks: int,
    gpus: int,
    model: GpuModel = ANY_GPU_MODEL,
    cpus: float | None = None,
    memory_gib: float | None = None,
) -> JobSpecification:
    resources = TaskResources(gpus, model, cpus, memory_gib)
    return JobSpecification(JobName("job"), tasks, resources, Emulated(60.0))


def knowing(inventory: RegionCapacity, *jobs: JobSpecification, standing: Standing = MIDDLE) -> RefusalMemory:
    """A memory of the inventory that knows that these found no room there."""
    cache = RefusalMemory(inventory)
    for each in jobs:
        refuse(inventory, cache, each, standing=standing)
    return cache


def refuse(
    inventory: RegionCapacity,
    cache: RefusalMemory,
    *jobs: JobSpecification,
    standing: Standing = MIDDLE,
    within_quota: bool = False,
) -> Refusal:
    workload = workload_of("refused", *jobs)
    refusal = plan_workload(inventory, workload, standing, 0.0, within_quota=within_quota)
    assert isinstance(refusal, Refusal)
    cache.remember(workload, standing, refusal, 0.0, within_quota=within_quota)
    return refusal


def fails(
    cache: RefusalMemory, *jobs: JobSpecification, standing: Standing = MIDDLE, within_quota: bool = False
) -> bool:
    return cache.fails(workload_of("asked", *jobs), standing, within_quota=within_quota)


def full_inventory() -> RegionCapacity:
    """Two clusters, of two machines with 8 GPUs each, all held by attempts of priority 2."""
    inventory = RegionCapacity(
        region(
            cluster("c0", [gpu_machine("m0"), gpu_machine("m1")]),
            cluster("c1", [gpu_machine("m2", model=A100), gpu_machine("m3", model=A100)]),
        )
    )
    for number, name in enumerate(("c0", "c0", "c1", "c1")):
        hold(inventory, f"w{number}", tasks_on(f"m{number}", range(8), 96, 1024, name), priority=2)
    return inventory


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        (job(2, 4), True),  # the same
        (job(3, 4), True),  # more tasks
        (job(2, 5), True),  # more GPUs each
        (job(2, 4, H100), True),  # a model, where any would have done
        (job(1, 4), False),
        (job(2, 3), False),
        (job(2, 4, cpus=500.0), False),  # stated, where the share was asked for: not compared
        (job(2, 4, memory_gib=5000.0), False),
    ],
)
def test_the_same_or_larger_fails(asked: JobSpecification, known: bool) -> None:
    cache = knowing(full_inventory(), job(2, 4))
    assert fails(cache, asked) == known


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        (job(1, 1, H100, cpus=4.0, memory_gib=8.0), True),
        (job(1, 1, H100, cpus=5.0, memory_gib=9.0), True),
        (job(1, 1, H100, cpus=3.5, memory_gib=8.0), False),
        (job(1, 1, H100, cpus=4.0, memory_gib=7.5), False),
        (job(1, 1, A100, cpus=4.0, memory_gib=8.0), False),  # another model
        (job(1, 1, ANY_GPU_MODEL, cpus=4.0, memory_gib=8.0), False),  # any model, where one was asked for
        (job(1, 1, H100, memory_gib=8.0), False),  # the share, where CPUs were stated: not compared
    ],
)
def test_stated_amounts_and_models_are_compared_each_with_its_like(asked: JobSpecification, known: bool) -> None:
    cache = knowing(full_inventory(), job(1, 1, H100, cpus=4.0, memory_gib=8.0))
    assert fails(cache, asked) == known


def test_a_job_without_gpus_that_fails_makes_those_with_gpus_fail_too() -> None:
    cache = knowing(full_inventory(), job(1, 0, cpus=1.0, memory_gib=1.0))
    assert fails(cache, job(1, 1, H100, cpus=1.0, memory_gib=1.0))


def test_the_same_or_a_worse_standing_fails() -> None:
    cache = knowing(full_inventory(), job(1, 1), standing=Standing(3, 1))
    for standing, known in (
        (Standing(3, 1), True),
        (Standing(3, 2), True),
        (Standing(4, 0), True),
        (Standing(3, 0), False),
        (Standing(2, 9), False),
    ):
        assert fails(cache, job(1, 1), standing=standing) == known


def test_a_guaranteed_refusal_holds_for_opportunistic_jobs_and_never_the_other_way_round() -> None:
    inventory = full_inventory()
    cache = knowing(inventory)
    refuse(inventory, cache, job(1, 4), within_quota=False)
    assert fails(cache, job(1, 4), within_quota=False)
    assert not fails(cache, job(1, 4), within_quota=True)
    refuse(inventory, cache, job(1, 2), within_quota=True)
    assert fails(cache, job(1, 4), within_quota=True)
    assert fails(cache, job(1, 2), within_quota=False)
    assert len(cache) == 1


def test_a_workload_fails_with_any_one_of_its_jobs() -> None:
    cache = knowing(full_inventory(), job(1, 4))
    assert fails(cache, job(1, 1), job(1, 8))
    assert not fails(cache, job(1, 1), job(1, 2))
    assert (cache.lookups, cache.hits) == (2, 1)


def test_a_failure_of_jobs_together_is_not_remembered() -> None:
    inventory = RegionCapacity(region(cluster("c", [gpu_machine("m0")])))
    cache = knowing(inventory)
    assert refuse(inventory, cache, job(1, 8), job(1, 4)).reason is Reason.NO_ROOM_TOGETHER
    assert len(cache) == 0


def test_only_entries_that_no_other_covers_are_kept() -> None:
    inventory = full_inventory()
    cache = knowing(inventory, job(3, 4), job(2, 8), job(2, 4, H100))
    assert len(cache) == 3
    refuse(inventory, cache, job(2, 4))
    assert len(cache) == 2  # of another kind: that one asks for a model
    refuse(inventory, cache, job(5, 8))
    assert len(cache) == 2


def test_a_scan_pass_forgets_everything() -> None:
    cache = knowing(full_inventory(), job(1, 1))
    cache.clear()
    assert len(cache) == 0
    assert not fails(cache, job(1, 1))


@pytest.mark.parametrize(
    ("refused", "known_after_one", "known_after_two"),
    [
        (job(1, 4), False, False),
        (job(2, 8), True, False),  # one machine is not enough for two tasks
        (job(3, 4, H100), True, False),
        (job(1, 1, A100), True, True),  # no machine of that model is released
        (job(3, 8), True, True),  # no cluster has three machines
        (job(1, 0, cpus=1.0, memory_gib=1.0), False, False),
    ],
)
def test_a_release_ends_what_it_makes_room_for_and_nothing_else(
    refused: JobSpecification, known_after_one: bool, known_after_two: bool
) -> None:
    inventory = full_inventory()
    cache = knowing(inventory, refused)
    inventory.release(inventory.holdings()[0].key)
    assert fails(cache, refused) == known_after_one
    inventory.release(inventory.holdings()[0].key)
    assert fails(cache, refused) == known_after_two


def test_a_release_of_what_could_have_been_evicted_ends_nothing() -> None:
    inventory = full_inventory()
    cache = knowing(inventory, job(3, 8), standing=Standing(0, 0))
    inventory.release(inventory.holdings()[0].key)
    assert fails(cache, job(3, 8), standing=Standing(0, 0))


def test_an_eviction_that_completes_ends_what_it_makes_room_for() -> None:
    inventory = full_inventory()
    leaving = inventory.holdings()[0].key
    inventory.begin_eviction(leaving)
    cache = knowing(inventory, job(2, 8, H100), standing=Standing(0, 0))
    assert fails(cache, job(2, 8, H100), standing=Standing(0, 0))
    inventory.release(leaving)
    assert not fails(cache, job(2, 8, H100), standing=Standing(0, 0))


def test_a_standing_made_worse_ends_what_may_evict_it_now() -> None:
    inventory = full_inventory()
    may_evict_already, may_evict_now, may_not = Standing(2, 1), Standing(2, 2), Standing(3, 1)
    inventory.set_standing(inventory.holdings()[0].key, Standing(2, 2))
    caches = [
        (standing, knowing(inventory, refused, standing=standing))
        for standing, refused in ((may_evict_already, job(2, 8)), (may_evict_now, job(1, 1)), (may_not, job(1, 1)))
    ]
    inventory.set_standing(inventory.holdings()[0].key, Standing(3, 0))
    known = [fails(cache, job(2, 8), standing=standing) for standing, cache in caches]
    assert known == [True, False, True]


def test_a_machine_that_comes_up_ends_what_it_could_host() -> None:
    inventory = RegionCapacity(
        region(cluster("c", [gpu_machine("m0"), cpu_machine("m1", cpus=4.0)])), {MachineId("m0"): MachineState.DOWN}
    )
    questions = (job(1, 8), job(1, 0, cpus=6.0, memory_gib=1.0), job(1, 9))
    caches = [knowing(inventory, refused) for refused in questions]
    inventory.set_machine_state(MachineId("m0"), MachineState.DRAINING)
    assert all(fails(cache, refused) for cache, refused in zip(caches, questions, strict=True))
    inventory.set_machine_state(MachineId("m0"), MachineState.UP)
    assert [fails(cache, refused) for cache, refused in zip(caches, questions, strict=True)] == [False, False, True]


def test_what_a_machine_that_takes_no_work_gives_back_ends_nothing_before_it_is_up() -> None:
    inventory = full_inventory()
    inventory.set_machine_state(MachineId("m0"), MachineState.DRAINING)
    cache = knowing(inventory, job(1, 8, H100))
    inventory.release(inventory.holdings()[0].key)
    assert fails(cache, job(1, 8, H100))
    inventory.set_machine_state(MachineId("m0"), MachineState.UP)
    assert not fails(cache, job(1, 8, H100))


def test_an_attempt_that_shrinks_ends_what_it_makes_room_for() -> None:
    inventory = full_inventory()
    cache = knowing(inventory, job(1, 4), job(1, 8))
    key = inventory.holdings()[0].key
    inventory.replace_placements(key, (tasks_on("m0", range(4), 48, 512, "c0"),))
    assert not fails(cache, job(1, 4))


def test_many_small_releases_end_an_entry_once_they_could_be_enough() -> None:
    inventory = RegionCapacity(region(cluster("c", [cpu_machine(f"m{number}") for number in range(10)])))
    for number in range(10):
        hold(inventory, f"w{number}", tasks_on(f"m{number}", cpus=64), priority=0)
    cache = knowing(inventory, job(4, 0, cpus=40.0, memory_gib=1.0))
    for released, holding in enumerate(inventory.holdings()[:4]):
        assert fails(cache, job(4, 0, cpus=40.0, memory_gib=1.0)) == (released < 4)
        inventory.release(holding.key)
    assert not fails(cache, job(4, 0, cpus=40.0, memory_gib=1.0))


def test_absurdly_large_requests_are_remembered_too() -> None:
    inventory = full_inventory()
    cache = knowing(inventory, job(1, 1, cpus=1e15, memory_gib=1e15))
    assert fails(cache, job(7, 10**9, cpus=1e15, memory_gib=1e17))
