"""The one rule of eviction, against the words that state it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.eviction import (
    ALWAYS_S,
    DEFAULT_RULE,
    NEVER_S,
    EvictionRule,
    Evictor,
    Victim,
    evictable_from_s,
    is_spared,
    may_evict,
    remembered_preemptions,
)
from domain.rank import Standing

STANDINGS = st.builds(Standing, st.integers(0, 6), st.integers(0, 3))
TIMES = st.integers(0, 20_000).map(float)


@given(STANDINGS, STANDINGS)
def test_never_evicts_an_equal_or_better_standing(newcomer: Standing, victim: Standing) -> None:
    """MAST §4.2, design §4: only a strictly better (priority, level) may evict."""
    better = (newcomer.priority, newcomer.level) < (victim.priority, victim.level)
    assert may_evict(Evictor(newcomer, True), Victim(victim, False, ALWAYS_S), 0.0) == better


def test_the_default_rule_bounds_nothing_but_the_standing() -> None:
    assert evictable_from_s(DEFAULT_RULE, 100.0, 110.0, (90.0, 95.0)) == ALWAYS_S
    assert not DEFAULT_RULE.waits_for_time


def test_the_minimum_run_time_counts_from_the_start_and_before_that_from_the_dispatch() -> None:
    rule = EvictionRule(minimum_run_time_s=600.0)
    assert evictable_from_s(rule, 100.0, None) == 700.0
    assert evictable_from_s(rule, 100.0, 250.0) == 850.0
    victim = Victim(Standing(6, 0), False, 850.0)
    newcomer = Evictor(Standing(0, 0), False)
    assert not may_evict(newcomer, victim, math.nextafter(850.0, 0.0))
    assert may_evict(newcomer, victim, 850.0)


@given(st.lists(TIMES, max_size=8), st.integers(0, 4), TIMES)
def test_never_more_evictions_within_an_hour_than_the_limit(preempted_s: list[float], limit: int, now: float) -> None:
    rule = EvictionRule(evictions_per_workload_and_hour=limit)
    past = [time_s for time_s in preempted_s if time_s <= now]
    in_last_hour = sum(time_s > now - 3600.0 for time_s in past)
    assert (evictable_from_s(rule, 0.0, None, past) <= now) == (in_last_hour < limit)


def test_a_limit_of_none_at_all_never_lets_evict() -> None:
    assert evictable_from_s(EvictionRule(evictions_per_workload_and_hour=0), 0.0, 0.0) == NEVER_S


@given(st.lists(TIMES, max_size=8), st.integers(0, 4), TIMES)
def test_what_is_remembered_is_all_that_the_rule_looks_at(times: list[float], limit: int, dispatched_s: float) -> None:
    rule = EvictionRule(60.0, limit)
    kept = remembered_preemptions(rule, times)
    assert len(kept) <= limit
    assert evictable_from_s(rule, dispatched_s, None, kept) == evictable_from_s(rule, dispatched_s, None, times)


def test_guaranteed_attempts_are_spared_from_opportunistic_newcomers_only_if_the_rule_says_so() -> None:
    """HiveD §3: opportunistic jobs never push out guaranteed ones."""
    sparing = EvictionRule(spares_guaranteed=True)
    assert is_spared(sparing, guaranteed=True)
    assert not is_spared(sparing, guaranteed=False)
    assert not is_spared(DEFAULT_RULE, guaranteed=True)
    victim = Victim(Standing(6, 1), True, ALWAYS_S)
    assert not may_evict(Evictor(Standing(6, 0), False), victim, 0.0)
    assert may_evict(Evictor(Standing(6, 0), True), victim, 0.0)


@pytest.mark.parametrize(
    ("minimum_run_time_s", "limit", "field"),
    [
        (-1.0, None, "minimum_run_time_s"),
        (math.inf, None, "minimum_run_time_s"),
        (math.nan, None, "minimum_run_time_s"),
        (0.0, -1, "evictions_per_workload_and_hour"),
    ],
)
def test_an_impossible_rule_is_refused_by_the_name_of_its_field(
    minimum_run_time_s: float, limit: int | None, field: str
) -> None:
    with pytest.raises(ValueError, match=field):
        EvictionRule(minimum_run_time_s, limit)
