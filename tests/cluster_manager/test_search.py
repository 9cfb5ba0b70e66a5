"""The kernels against their plain twin: the same place, the same victims, the same score, on random regions."""

from hypothesis import event, given, settings

from domain.fleet import Region
from domain.rank import Standing
from domain.workload import JobSpecification
from cluster_manager.draft import Draft, Place
from cluster_manager.requests import request_of
from tests.cluster_manager.inventory_worlds import Step, World, jobs, regions, standings, steps
from tests.cluster_manager.plain_search import PlainPlace, plain_find


def as_plain(world: World, draft: Draft, place: Place) -> PlainPlace:
    return PlainPlace(
        cluster=place.cluster,
        picks=dict(zip(place.machines.tolist(), place.tasks_on.tolist(), strict=True)),
        victims=tuple(draft.holding_of(row).key for row in place.victims),
        spread=place.spread,
        fragmentation=place.fragmentation,
    )


@settings(max_examples=300)
@given(regions(), steps(), jobs(), standings())
def test_never_finds_another_place_than_the_plain_twin(
    region: Region, history: list[Step], job: JobSpecification, standing: Standing
) -> None:
    world = World.of(region)
    for step in history:
        world.take(step)
    expected = plain_find(
        region, world.states, world.inventory.holdings(), world.leaving, job, standing, world.now_s
    )
    draft = world.inventory.draft()
    place = draft.find(request_of(world.inventory.layout, job), standing, world.now_s, evicting=True)
    event("none" if expected is None else "evicting" if expected.victims else "free")
    assert (as_plain(world, draft, place) if place else None) == expected
    world.inventory.check()
