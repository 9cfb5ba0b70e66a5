"""Two mechanisms side by side in one region: each places in its own cluster, and the region keeps the better place."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from cluster_manager.mechanism import Place, PlacementMechanism, Shortfall
from cluster_manager.mechanisms import MECHANISMS
from cluster_manager.packing.mechanism import Packing
from domain.fleet import PLACEMENT_MECHANISMS, Region
from domain.identifiers import ClusterId, GpuModel, JobName, TenantId
from domain.placement import AttemptKey
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload
from regional_scheduler.planner import plan_workload
from regional_scheduler.queries import query_of
from regional_scheduler.refusal import Refusal
from regional_scheduler.refusals.memory import RefusalMemory
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.first_fit import WITH_FIRST_FIT, FirstFit
from tests.cluster_manager.fleets import A100, H100, cluster, gpu_machine, hold, key_of, region, tasks_on
from tests.cluster_manager.inventory_worlds import Step, World, regions, steps, workload_of
from tests.examples import examples

BEST, WORST = Standing(0, 0), Standing(6, 0)


def gpu_job(tasks: int, gpus: int, model: GpuModel) -> JobSpecification:
    return JobSpecification(JobName("job"), tasks, TaskResources(gpus=gpus, gpu_model=model), Emulated(1.0))


def mixed() -> RegionCapacity:
    """Cluster `packed` has two machines with H100s, cluster `fitted` two with A100s."""
    packed = cluster("packed", [gpu_machine("p0"), gpu_machine("p1")])
    fitted = cluster("fitted", [gpu_machine("f0", model=A100), gpu_machine("f1", model=A100)])
    return RegionCapacity(region(packed, replace(fitted, mechanism="first_fit")), mechanisms=WITH_FIRST_FIT)


def planned(capacity: RegionCapacity, workload: Workload, standing: Standing = BEST, *, within_quota: bool) -> Plan:
    plan = plan_workload(capacity, workload, standing, 0.0, within_quota=within_quota)
    assert isinstance(plan, Plan)
    return plan


def test_every_name_of_a_fleet_file_is_a_mechanism() -> None:
    assert tuple(MECHANISMS) == PLACEMENT_MECHANISMS
    checked: tuple[PlacementMechanism, ...] = (Packing(), FirstFit())
    assert len(checked) == 2


def test_a_cluster_with_an_unknown_mechanism_is_refused_with_those_that_exist() -> None:
    wrong = replace(cluster("c", [gpu_machine("m0")]), mechanism="tetris")
    with pytest.raises(ValueError, match="cluster c: there is no placement mechanism tetris; there is cells, packing"):
        RegionCapacity(region(wrong))


def test_each_cluster_places_by_its_own_mechanism() -> None:
    capacity = mixed()
    hold(capacity, "small", tasks_on("p0", [0], cluster_name="packed"), tasks_on("f1", [0], cluster_name="fitted"))
    on_packed = planned(capacity, workload_of("w", gpu_job(1, 4, H100)), within_quota=True)
    on_fitted = planned(capacity, workload_of("w", gpu_job(1, 4, A100)), within_quota=True)
    assert [(p.machine, p.gpu_indices) for p in on_packed.placements] == [("p0", (1, 2, 3, 4))]  # the tightest
    assert [(p.machine, p.gpu_indices) for p in on_fitted.placements] == [("f0", (4, 5, 6, 7))]  # the first
    opportunistic = planned(capacity, workload_of("w", gpu_job(1, 4, A100)), within_quota=False)
    assert opportunistic.placements[0].gpu_indices == (0, 1, 2, 3)


def test_a_workload_may_span_clusters_of_different_mechanisms() -> None:
    capacity = mixed()
    workload = workload_of("w", gpu_job(2, 8, H100), gpu_job(2, 8, A100))
    plan = planned(capacity, workload, within_quota=True)
    assert {p.cluster for p in plan.placements} == {ClusterId("packed"), ClusterId("fitted")}
    capacity.check()
    key = hold(capacity, "w", *plan.placements)
    capacity.check()
    assert capacity.holdings()[0].placements == plan.placements
    with capacity.tentatively():
        capacity.release(key)
        assert capacity.idle_gpus == 32
    assert capacity.idle_gpus == 0
    capacity.release(key)
    assert capacity.holding(key) is None
    capacity.check()


def test_a_mechanism_that_evicts_nothing_leaves_its_cluster_alone() -> None:
    capacity = mixed()
    hold(
        capacity, "a", tasks_on("p0", range(8), cluster_name="packed"), tasks_on("p1", range(8), cluster_name="packed")
    )
    hold(
        capacity, "b", tasks_on("f0", range(8), cluster_name="fitted"), tasks_on("f1", range(8), cluster_name="fitted")
    )
    assert planned(capacity, workload_of("w", gpu_job(1, 8, H100)), within_quota=True).evictions == (key_of("a"),)
    refused = plan_workload(capacity, workload_of("w", gpu_job(1, 8, A100)), BEST, 0.0, within_quota=False)
    assert isinstance(refused, Refusal)
    assert refused.room == (0, 0)


def test_a_refusal_ends_when_the_mechanism_says_that_capacity_may_have_grown_and_enough_is_free() -> None:
    capacity = mixed()
    cache = RefusalMemory(capacity)
    keys: list[AttemptKey] = []
    for name, machine in (("a", "f0"), ("b", "f1")):
        keys.append(hold(capacity, name, tasks_on(machine, range(8), cluster_name="fitted"), priority=0))
    workload = workload_of("w", gpu_job(2, 8, A100))
    refused = plan_workload(capacity, workload, WORST, 0.0, within_quota=False)
    assert isinstance(refused, Refusal)
    cache.remember(workload, WORST, refused, 0.0, within_quota=False)
    assert cache.fails(workload, WORST, within_quota=False)
    capacity.release(keys[0])
    # Nothing may be evicted for it, and one free machine holds one of its two tasks wherever a mechanism puts them.
    assert cache.fails(workload, WORST, within_quota=False)
    capacity.release(keys[1])
    assert not cache.fails(workload, WORST, within_quota=False)


def test_an_answer_is_not_asked_for_again_until_its_cluster_changes() -> None:
    capacity = mixed()
    query = query_of(capacity, gpu_job(1, 8, A100), TenantId("tenant"), BEST, 0.0, within_quota=True)
    first = capacity.ask(1, query)
    hold(capacity, "elsewhere", tasks_on("p0", [0], cluster_name="packed"))
    assert capacity.ask(1, query) is first
    with capacity.tentatively():
        hold(capacity, "here", tasks_on("f0", [0], cluster_name="fitted"))
        other = capacity.ask(1, query)
        assert other is not first
    again = capacity.ask(1, query)
    assert isinstance(first, Place)
    assert isinstance(again, Place)
    assert again.tasks.tolist() == first.tasks.tolist()


@settings(max_examples=examples(60))
@given(regions(), steps())
def test_never_breaks_the_capacity_of_a_region_of_two_mechanisms(plain: Region, history: list[Step]) -> None:
    clusters = tuple(
        replace(one, mechanism="first_fit" if number % 2 else "packing") for number, one in enumerate(plain.clusters)
    )
    two = Region(plain.region, clusters)
    world = World(two, RegionCapacity(two, mechanisms=WITH_FIRST_FIT))
    for step in history:
        world.take(step)
        world.inventory.check()


def test_first_fit_says_how_much_it_found() -> None:
    capacity = mixed()
    query = query_of(capacity, gpu_job(3, 8, A100), TenantId("tenant"), BEST, 0.0, within_quota=True)
    assert capacity.ask(1, query) == Shortfall(2)
