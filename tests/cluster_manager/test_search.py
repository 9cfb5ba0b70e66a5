"""The kernels against their plain twin: the same place, the same victims, the same score, on random regions."""

from collections import Counter

from hypothesis import event, given, settings

from cluster_manager.mechanism import TASK_MACHINE
from domain.eviction import EvictionRule
from domain.fleet import Region
from domain.identifiers import TenantId
from domain.rank import Standing
from domain.workload import JobSpecification
from regional_scheduler.cluster_choice import FoundPlace, find_best_place
from regional_scheduler.queries import query_of
from tests.cluster_manager.inventory_worlds import Step, World, jobs, regions, rules, standings, steps
from tests.cluster_manager.plain_search import PlainPlace, plain_find
from tests.examples import examples


def as_plain(world: World, found: FoundPlace) -> PlainPlace:
    capacity = world.inventory
    names = capacity.clusters[found.position].layout.machine_ids
    machines = found.place.tasks[:, TASK_MACHINE].tolist()
    return PlainPlace(
        cluster=found.position,
        picks=dict(Counter(capacity.number_of_machine[names[machine]] for machine in machines)),
        victims=tuple(victim.key for victim in found.place.victims),
        spread=found.place.spread,
        fragmentation=found.place.fragmentation,
    )


@settings(max_examples=examples(300))
@given(regions(), steps(), jobs(), standings(), rules())
def test_never_finds_another_place_than_the_plain_twin(
    region: Region, history: list[Step], job: JobSpecification, standing: Standing, rule: EvictionRule
) -> None:
    world = World.of(region, rule)
    for step in history:
        world.take(step)
    expected = plain_find(region, world.states, world.inventory.holdings(), world.leaving, job, standing, world.now_s)
    tenant = TenantId("tenant")
    query = query_of(world.inventory, job, tenant, standing, world.now_s, within_quota=False)
    for _ in range(2):  # the second time from memory
        found = find_best_place(world.inventory, query, evicting=True)
        event("none" if expected is None else "evicting" if expected.victims else "free")
        assert (as_plain(world, found) if isinstance(found, FoundPlace) else None) == expected
    world.inventory.check()
