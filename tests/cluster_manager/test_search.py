"""The kernels against their plain twin: the same place, the same victims, the same score, on random regions."""

from collections import Counter

from hypothesis import event, given, settings

from cluster_manager.capacity.requests import request_of
from cluster_manager.packing.placing import TASK_MACHINE, Place
from domain.eviction import EvictionRule
from domain.fleet import Region
from domain.rank import Standing
from domain.workload import JobSpecification
from tests.cluster_manager.inventory_worlds import Step, World, jobs, regions, rules, standings, steps
from tests.cluster_manager.plain_search import PlainPlace, plain_find


def as_plain(world: World, place: Place) -> PlainPlace:
    machines = place.tasks[:, TASK_MACHINE].tolist()
    return PlainPlace(
        cluster=place.cluster,
        picks=dict(Counter(machines)),
        victims=tuple(world.inventory.holding_in_row(row).key for row in place.victims),
        spread=place.spread,
        fragmentation=place.fragmentation,
    )


@settings(max_examples=300)
@given(regions(), steps(), jobs(), standings(), rules())
def test_never_finds_another_place_than_the_plain_twin(
    region: Region, history: list[Step], job: JobSpecification, standing: Standing, rule: EvictionRule
) -> None:
    world = World.of(region, rule)
    for step in history:
        world.take(step)
    expected = plain_find(region, world.states, world.inventory.holdings(), world.leaving, job, standing, world.now_s)
    request = request_of(world.inventory.layout, job)
    places = world.inventory.find_places([request], standing, world.now_s, evicting=True)
    event("none" if expected is None else "evicting" if expected.victims else "free")
    assert [as_plain(world, place) for place in places.found] == ([expected] if expected else [])
    world.inventory.check()
