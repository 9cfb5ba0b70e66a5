"""Time makes room: victims come of age, and whoever remembers refusals hears of it."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.capacity.attempts import EVICTABLE, LEVEL, PRIORITY, SPARED
from cluster_manager.eviction.victims import rule_lets_evict
from domain.eviction import ALWAYS_S, NEVER_S, EvictionRule, Evictor, Victim, may_evict
from domain.identifiers import JobName, TenantId
from domain.placement import Holding
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification
from kernels.compiled import compiled
from regional_scheduler.cluster_choice import FoundPlace, find_best_place
from regional_scheduler.queries import query_of
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.region_releases import RegionRelease
from tests.cluster_manager.fleets import cluster, gpu_machine, key_of, region, tasks_on

STANDINGS = st.builds(Standing, st.integers(0, 6), st.integers(0, 3))
TIMES = st.sampled_from((ALWAYS_S, 0.0, 10.0, math.nextafter(10.0, 11.0), NEVER_S))
RULE = EvictionRule(minimum_run_time_s=60.0)


class TimeListener:
    """Writes down for whom there is more room."""

    def __init__(self) -> None:
        self.heard: list[tuple[Standing | None, Standing | None]] = []

    @property
    def listens(self) -> bool:
        return True

    def capacity_released(self, release: RegionRelease) -> None:
        self.heard.append((release.released.from_standing, release.released.below_standing))


@compiled
def compiled_answer(newcomer: Evictor, rows: np.ndarray, evictable_from_s: np.ndarray, now: float) -> bool:
    """The rule asked from machine code, with a victim that stands in arrays."""
    victim = Victim(Standing(rows[0, PRIORITY], rows[0, LEVEL]), rows[0, SPARED] != 0, evictable_from_s[0])
    return rule_lets_evict(newcomer, victim, now)


@given(STANDINGS, STANDINGS, st.booleans(), st.booleans(), TIMES, st.sampled_from((0.0, 10.0, 11.0)))
def test_never_another_answer_from_the_kernel_than_from_the_rule(
    newcomer: Standing, victim: Standing, guaranteed: bool, spared: bool, from_s: float, now: float
) -> None:
    rows = np.zeros((1, SPARED + 1), np.int64)
    rows[0, PRIORITY], rows[0, LEVEL], rows[0, EVICTABLE], rows[0, SPARED] = *victim, 1, spared
    expected = may_evict(Evictor(newcomer, guaranteed), Victim(victim, spared, from_s), now)
    assert compiled_answer(Evictor(newcomer, guaranteed), rows, np.array([from_s]), now) == expected


def held(from_s: float, name: str = "a", gpu: int = 0) -> Holding:
    return Holding(key_of(name), Standing(6, 0), 0.0, (tasks_on("m", [gpu]),), from_s)


def listening_inventory(*holdings: Holding) -> tuple[RegionCapacity, TimeListener]:
    inventory = RegionCapacity(region(cluster("c", [gpu_machine("m")])), rule=RULE)
    listener = TimeListener()
    for holding in holdings:
        inventory.hold(holding)
    inventory.watch(listener)
    return inventory, listener


def test_the_instant_at_which_an_attempt_comes_of_age_is_news_for_better_standings() -> None:
    inventory, listener = listening_inventory(held(60.0))
    inventory.pass_time(math.nextafter(60.0, 0.0))
    assert listener.heard == []
    inventory.pass_time(60.0)
    assert listener.heard == [(None, Standing(6, 0))]
    inventory.pass_time(1000.0)
    assert len(listener.heard) == 1


def test_a_start_puts_the_time_off() -> None:
    inventory, listener = listening_inventory(held(60.0))
    inventory.begin_run(key_of("a"), 50.0)
    inventory.pass_time(60.0)
    assert listener.heard == []
    assert inventory.next_evictable_s == 110.0
    inventory.pass_time(110.0)
    assert listener.heard == [(None, Standing(6, 0))]
    inventory.check()


def test_whoever_has_left_or_is_leaving_makes_no_room_by_time() -> None:
    inventory, listener = listening_inventory(held(60.0), held(70.0, "b", 1))
    inventory.release(key_of("a"))
    inventory.begin_eviction(key_of("b"))
    listener.heard.clear()
    inventory.pass_time(100.0)
    assert listener.heard == []


def test_the_end_of_a_protected_attempt_is_news_for_everybody() -> None:
    """Those of a better standing could not count on its room before; when it had come of age they could."""
    inventory, listener = listening_inventory(held(60.0), held(70.0, "b", 1))
    inventory.pass_time(60.0)
    listener.heard.clear()
    inventory.release(key_of("a"))
    inventory.release(key_of("b"))
    assert listener.heard == [(Standing(6, 0), None), (None, None)]


def test_nothing_tentative_is_told_of_or_expected() -> None:
    inventory, listener = listening_inventory(held(60.0))
    with inventory.tentatively():
        inventory.release(key_of("a"))
        inventory.hold(held(20.0, "b"))
        inventory.pass_time(100.0)
    assert listener.heard == []
    assert inventory.next_evictable_s == 60.0
    inventory.pass_time(100.0)
    assert listener.heard == [(None, Standing(6, 0))]


def test_rows_say_from_when_on_an_attempt_is_evictable() -> None:
    inventory, _ = listening_inventory(held(60.0))
    inventory.set_standing(key_of("a"), Standing(5, 1))
    inventory.replace_placements(key_of("a"), (tasks_on("m", [3]),))
    holding = inventory.holding(key_of("a"))
    assert holding is not None
    assert (holding.standing, holding.evictable_from_s) == (Standing(5, 1), 60.0)
    inventory.check()


def test_only_guaranteed_newcomers_evict_what_is_spared_from_the_others() -> None:
    inventory, _ = listening_inventory(held(ALWAYS_S)._replace(spared=True))
    whole_machine = JobSpecification(JobName("main"), 1, TaskResources(gpus=8), Emulated(1.0))
    for guaranteed in (False, True, False):
        query = query_of(inventory, whole_machine, TenantId("tenant"), Standing(0, 0), 0.0, within_quota=guaranteed)
        assert isinstance(find_best_place(inventory, query, evicting=True), FoundPlace) == guaranteed
