"""Several clusters asked in one call: nothing else is found than by asking one after the other."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from cluster_manager.capacity.tables import Reals
from cluster_manager.mechanism import BestPlace, Place, Query, Shortfall
from cluster_manager.packing.mechanism import Packing
from cluster_manager.place_rank import RANK_FIELDS, SPREAD, comes_before, rank_comes_before, rank_of
from domain.eviction import EvictionRule
from domain.fleet import Region
from domain.identifiers import JobName, TenantId
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification
from kernels.compiled import compiled
from regional_scheduler.cluster_choice import FoundPlace, find_best_place
from regional_scheduler.queries import query_of
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.first_fit import WITH_FIRST_FIT
from tests.cluster_manager.fleets import cluster, gpu_machine, hold, region, tasks_on
from tests.cluster_manager.inventory_worlds import Step, World, jobs, regions, rules, standings, steps
from tests.examples import examples


@dataclass(frozen=True)
class Asked:
    """A job that seeks a place, and what is supposed meanwhile."""

    job: JobSpecification
    standing: Standing
    may_evict: bool
    victims_from_priority: int
    clusters: tuple[int, ...]
    released: tuple[int, ...]
    charged: tuple[tuple[int, JobSpecification], ...]

    def query(self, region: RegionCapacity, now_s: float) -> Query:
        query = query_of(region, self.job, TenantId("tenant"), self.standing, now_s, within_quota=True)
        return query._replace(may_evict=self.may_evict, victims_from_priority=self.victims_from_priority)

    def suppose(self, region: RegionCapacity, now_s: float) -> None:
        """Does as if attempts were gone and jobs placed; to be called while supposing."""
        keys = [holding.key for holding in region.holdings() if not region.is_leaving(holding.key)]
        for key in {keys[which % len(keys)] for which in self.released} if keys else ():
            region.suppose_released(key)
        for where, job in self.charged:
            position = where % len(region.clusters)
            query = query_of(region, job, TenantId("tenant"), self.standing, now_s, within_quota=True)
            place = Packing().find(query, region.clusters[position])
            if isinstance(place, Place):
                region.suppose_charged(position, place.entries)


def questions() -> st.SearchStrategy[Asked]:
    return st.builds(
        Asked,
        jobs(),
        standings(),
        st.booleans() | st.just(True),
        st.sampled_from((0, 0, 0, 3, 5, 6)),
        st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True).map(lambda found: tuple(sorted(found))),
        st.lists(st.integers(0, 30), max_size=2).map(tuple),
        st.lists(st.tuples(st.integers(0, 4), jobs(3)), max_size=2).map(tuple),
    )


def same(place: Place, other: Place) -> bool:
    arrays = np.array_equal(place.tasks, other.tasks) and np.array_equal(place.entries, other.entries)
    return arrays and rest_of(place) == rest_of(other)


def rest_of(place: Place) -> tuple[object, ...]:
    return place.victims, place.spread, place.fragmentation, place.last_resort


def one_after_the_other(
    answers: list[tuple[int, Place | Shortfall]], now_s: float
) -> tuple[tuple[int, Place] | None, tuple[int, ...]]:
    """The place of the best rank, the first of equal ones; and what capacity the shortfalls say, 0 for a place."""
    places = [(position, answer) for position, answer in answers if isinstance(answer, Place)]
    best = min(places, key=lambda pair: (rank_of(pair[1], now_s), pair[0]), default=None)
    return best, tuple(answer.capacity if isinstance(answer, Shortfall) else 0 for _, answer in answers)


@settings(max_examples=examples(300), deadline=None)
@given(regions(most_clusters=5), steps(), rules(), st.lists(questions(), min_size=1, max_size=4))
def test_never_finds_another_place_than_one_cluster_after_the_other(
    region: Region, history: list[Step], rule: EvictionRule, asked: list[Asked]
) -> None:
    world = World.of(region, rule)
    for step in history:
        world.take(step)
    packing, clusters = Packing(), world.inventory.clusters
    for question in asked:
        query = question.query(world.inventory, world.now_s)
        positions = [position for position in question.clusters if position < len(clusters)] or [0]
        with world.inventory.supposing():
            question.suppose(world.inventory, world.now_s)
            answers = [(position, packing.find(query, clusters[position])) for position in positions]
            best, capacities = one_after_the_other(answers, world.now_s)
            found = packing.find_best(query, clusters, np.array(positions, np.int64))
        if best is None:
            event("none")
            assert found == capacities
        else:
            event("evicting" if best[1].victims else "free")
            assert isinstance(found, BestPlace)
            assert found.position == best[0]
            assert same(found.place, best[1])
    world.inventory.check()


@settings(max_examples=examples(200), deadline=None)
@given(regions(most_clusters=5), steps(), st.lists(questions(), min_size=1, max_size=4), st.integers(1, 3))
def test_never_chooses_another_cluster_where_two_mechanisms_stand_side_by_side(
    plain: Region, history: list[Step], asked: list[Asked], modulus: int
) -> None:
    clusters = tuple(
        replace(one, mechanism="packing" if number % (modulus + 1) else "first_fit")
        for number, one in enumerate(plain.clusters)
    )
    two = Region(plain.region, clusters)
    world = World(two, RegionCapacity(two, mechanisms=WITH_FIRST_FIT))
    for step in history:
        world.take(step)
    inventory = world.inventory
    for question in asked:
        query = question.query(inventory, world.now_s)._replace(may_evict=False, victims_from_priority=0)
        with inventory.supposing():
            question.suppose(inventory, world.now_s)
            best: tuple[int, Place] | None = None
            for evicting in (False, True)[: 1 + question.may_evict]:
                answers = [
                    (position, mechanism.find(query._replace(may_evict=evicting), view))
                    for position, (mechanism, view) in enumerate(
                        zip(inventory.mechanisms, inventory.clusters, strict=True)
                    )
                ]
                best = best or one_after_the_other(answers, world.now_s)[0]
            for _ in range(2):  # the second time from memory
                found = find_best_place(inventory, query, evicting=question.may_evict)
                event("none" if best is None else "evicting" if best[1].victims else "free")
                if best is None:
                    assert not isinstance(found, FoundPlace)
                else:
                    assert isinstance(found, FoundPlace)
                    assert found.position == best[0]
                    assert same(found.place, best[1])
    inventory.check()


@compiled
def comes_before_in_a_kernel(ranks: Reals, fields: int) -> bool:
    return rank_comes_before(ranks[0], ranks[1], fields)


def ranks() -> st.SearchStrategy[list[float]]:
    return st.lists(st.sampled_from((-1.0, 0.0, 0.5, 7.0)), min_size=RANK_FIELDS, max_size=RANK_FIELDS)


@given(ranks(), ranks(), st.sampled_from((0, 1, SPREAD, RANK_FIELDS)), st.integers(0, RANK_FIELDS))
def test_never_compares_otherwise_in_a_kernel(rank: list[float], than: list[float], fields: int, alike: int) -> None:
    than = rank[:alike] + than[alike:]
    expected = tuple(rank[:fields]) < tuple(than[:fields])
    assert comes_before(rank, than, fields) == expected
    assert comes_before_in_a_kernel(np.array([rank, than]), fields) == expected


def test_several_clusters_are_not_asked_again_until_one_of_them_changes() -> None:
    one, two = cluster("a", [gpu_machine("a0")]), cluster("b", [gpu_machine("b0")])
    capacity = RegionCapacity(region(one, two))
    positions = np.array([0, 1], np.int64)
    query = question_of(capacity)
    first = capacity.ask_several(query, positions)
    assert isinstance(first, BestPlace)
    assert capacity.ask_several(query, positions) is first
    with capacity.supposing():
        capacity.suppose_charged(0, first.place.entries)
        assert capacity.ask_several(query, positions) is not first
    with capacity.tentatively():
        hold(capacity, "here", tasks_on("b0", [0], cluster_name="b"))
        assert capacity.ask_several(query, positions) is not first
    again = capacity.ask_several(query, positions)
    assert isinstance(again, BestPlace)
    assert again.position == first.position
    assert same(again.place, first.place)


def question_of(capacity: RegionCapacity) -> Query:
    job = JobSpecification(JobName("job"), 1, TaskResources(gpus=8), Emulated(1.0))
    return query_of(capacity, job, TenantId("tenant"), Standing(0, 0), 0.0, within_quota=True)


def test_capacity_cannot_be_copied() -> None:
    capacity = RegionCapacity(region(cluster("a", [gpu_machine("a0")])))
    for whole in (capacity, capacity.clusters[0]):
        with pytest.raises(TypeError, match="Capacity cannot be copied: make a new one and hold the same holdings"):
            copy.copy(whole)
        with pytest.raises(TypeError, match="cannot be copied"):
            copy.deepcopy(whole)
