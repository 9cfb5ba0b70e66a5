"""A region's capacity that another one has taken the place of is freed at once, without a search for cyclic garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from data_placement.catalog import Catalog
from domain.rank import Standing
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.refusal import Refusal
from regional_scheduler.refusals.memory import RefusalMemory
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.fleets import cluster, gpu_machine, key_of, region
from tests.cluster_manager.inventory_worlds import workload_of
from tests.regional_scheduler.test_voluntary_releases import EQUAL, hold_elastic, job, plan


@pytest.fixture
def without_searches() -> Iterator[None]:
    """No search for cyclic garbage frees anything meanwhile."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def used_capacity() -> RegionCapacity:
    """Attempts have come, changed and gone, with and without a place, and something was supposed."""
    clusters = [cluster(name, [gpu_machine(f"{name}-{number}") for number in range(3)]) for name in ("c", "d")]
    capacity = RegionCapacity(region(*clusters))
    capacity.voluntary.changes_take_time = True
    for number in range(3):
        places = ((f"c-{number}", (0, 1, 2, 3)), (f"c-{number}", (4, 5)))
        hold_elastic(capacity, f"elastic-{number}", 1, *places)
    capacity.set_standing(key_of("elastic-0"), Standing(4, 0))
    plan(capacity, job(8, tasks=4), standing=Standing(1, 0))
    plan(capacity, job(6, tasks=6), job(2))
    plan(capacity, job(8, tasks=7))
    with capacity.tentatively():
        capacity.release(key_of("elastic-1"))
    holding = capacity.holding(key_of("elastic-1"))
    assert holding is not None
    capacity.replace_placements(holding.key, holding.placements[:1])
    capacity.begin_eviction(key_of("elastic-2"))
    capacity.release(key_of("elastic-2"))
    return capacity


@pytest.mark.usefixtures("without_searches")
def test_capacity_that_was_used_is_freed_with_its_last_name() -> None:
    capacity = used_capacity()
    gone = weakref.ref(capacity), weakref.ref(capacity.clusters[0])
    del capacity
    assert [one() for one in gone] == [None, None]


@pytest.mark.usefixtures("without_searches")
def test_a_memory_of_refusals_is_freed_before_its_region_and_the_region_after_it() -> None:
    capacity = used_capacity()
    memory = RefusalMemory(capacity)
    workload = workload_of("late", job(8, tasks=7))
    refusal = plan(capacity, *workload.specification.jobs)
    assert isinstance(refusal, Refusal)
    memory.remember(workload, EQUAL, refusal, 100.0, within_quota=False)
    assert memory.fails(workload, EQUAL, within_quota=False)
    with memory.supposing():
        memory.remember(workload_of("later", job(8, tasks=6)), EQUAL, refusal, 100.0, within_quota=False)
    capacity.release(key_of("elastic-0"))
    assert memory.fails(workload, EQUAL, within_quota=False)
    of_memory, of_capacity = weakref.ref(memory), weakref.ref(capacity)
    del memory
    assert of_memory() is None
    capacity.release(key_of("elastic-1"))
    del capacity
    assert of_capacity() is None


@pytest.mark.usefixtures("without_searches")
def test_what_answers_auctions_keeps_the_capacity_only_as_long_as_it_exists() -> None:
    clusters = [cluster("c", [gpu_machine("m")])]
    described = region(*clusters)
    capacity = RegionCapacity(described)
    bidder = RegionBidder(described, capacity, Catalog(()))
    gone = weakref.ref(capacity)
    del capacity
    assert gone() is not None
    del bidder
    assert gone() is None
