"""I11: a batch of auctions gives the result that one-at-a-time auctions by rank give."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.identifiers import RegionId
from regional_scheduler.rounds import Lot
from tests.examples import examples
from tests.house.determinism import assert_same_output
from tests.regional_scheduler.auction_worlds import (
    History,
    WorldPlan,
    auction_in_rounds,
    auction_one_at_a_time,
    random_world,
)

WINDOWS = (1, 2, 3, 8, 64)
WORLDS = 300
BLOCK = 100
SOME_WORLDS = 40
BLOCKS = (0, *(pytest.param(first, marks=pytest.mark.nightly) for first in range(BLOCK, WORLDS, BLOCK)))
"""The first of each: the worlds of one block every day, those of all every night."""


def assert_same(history: History, expected: History, told: str) -> None:
    """The same rulings in the same order, with the same placements and evictions, and the same at the end."""
    for ours, theirs in zip(history.ruled, expected.ruled, strict=True):
        assert ours == theirs, told
    assert history.holdings == expected.holdings, told


@pytest.mark.parametrize("first", BLOCKS)
def test_a_window_decides_what_one_at_a_time_would_have_decided(first: int) -> None:
    """Winners, placements and evictions are equal, whatever the window."""
    kinds: Counter[str] = Counter()
    for seed in range(first, first + BLOCK):
        world = random_world(seed)
        expected = auction_one_at_a_time(world)
        kinds.update(ruled.kind + (" with evictions" if ruled.evictions else "") for ruled in expected.ruled)
        for window in WINDOWS:
            assert_same(auction_in_rounds(world, window), expected, f"random_world({seed}), window {window}")
    assert min(kinds[kind] for kind in ("won", "won with evictions", "waiting", "awaiting data")) > BLOCK // 4, kinds


@settings(max_examples=examples(50))
@given(st.integers(0, 2**32), st.integers(1, 20))
def test_never_lets_the_window_change_what_is_decided(seed: int, window: int) -> None:
    world = random_world(seed)
    assert_same(auction_in_rounds(world, window), auction_one_at_a_time(world), f"random_world({seed})")


@settings(max_examples=examples(50))
@given(st.integers(0, 2**32), st.integers(1, 64), st.integers(1, 64))
def test_never_lets_a_continued_round_change_what_is_decided(seed: int, window: int, asked: int) -> None:
    """However many lots are asked at first, and whatever is expected of whom."""
    world = random_world(seed)
    told = f"random_world({seed}), window {window}, {asked} asked"
    expected = auction_one_at_a_time(world)
    assert_same(auction_in_rounds(world, window, asked=asked), expected, told)
    misled = partial(mislead, world, random.Random(seed))
    assert_same(auction_in_rounds(world, window, mislead=misled, asked=asked), expected, told)
    history = auction_in_rounds(world, window, partial(sometimes_absent, world, seed), asked=asked)
    assert_same(history, auction_one_at_a_time(world, history.absences), told)


def test_where_rounds_are_continued_there_are_fewer_of_them() -> None:
    """Than where each ends at the first wrong guess."""
    continued = sum(auction_in_rounds(random_world(seed), 8, asked=4).rounds for seed in range(SOME_WORLDS))
    at_once = sum(auction_in_rounds(random_world(seed), 8).rounds for seed in range(SOME_WORLDS))
    assert continued < at_once * 0.8, (continued, at_once)


def dead_regions(plan: WorldPlan, seed: int) -> frozenset[RegionId]:
    """One region at least, and sometimes all."""
    rng = random.Random(seed)
    return frozenset(rng.sample(plan.regions, rng.randint(1, len(plan.regions))))


def always(dead: frozenset[RegionId], number: int) -> frozenset[RegionId]:
    """Absent from every round."""
    return dead if number > 0 else frozenset()


@pytest.mark.parametrize("window", WINDOWS)
def test_a_dead_region_only_delays_the_rounds(window: int) -> None:
    """What the others decide after each deadline is what they would decide if the dead region were not there; but it may
    hold data."""
    delayed = 0
    for seed in range(SOME_WORLDS):
        world = random_world(seed)
        dead = dead_regions(world, seed)
        history = auction_in_rounds(world, window, partial(always, dead))
        never_there = dict.fromkeys(history.absences, dead)
        assert_same(history, auction_one_at_a_time(world, never_there), f"random_world({seed}), without {sorted(dead)}")
        assert set(history.absences.values()) == {dead}
        delayed += history.rounds
    assert delayed > 0


@pytest.mark.parametrize("window", WINDOWS)
def test_regions_that_come_and_go_take_part_in_what_they_answered(window: int) -> None:
    """A region that misses a round takes no part in what that round decides, and in everything else."""
    missed: Counter[bool] = Counter()
    for seed in range(SOME_WORLDS):
        world = random_world(seed)
        history = auction_in_rounds(world, window, partial(sometimes_absent, world, seed))
        assert_same(history, auction_one_at_a_time(world, history.absences), f"random_world({seed})")
        missed.update(bool(absent) for absent in history.absences.values())
    assert min(missed[True], missed[False]) > 100, missed


def sometimes_absent(plan: WorldPlan, seed: int, number: int) -> frozenset[RegionId]:
    """Each region misses every fourth round or so."""
    rng = random.Random(seed * 10_007 + number)
    return frozenset(region for region in plan.regions if rng.random() < 0.25)


@pytest.mark.parametrize("window", [2, 8, 64])
def test_hints_change_the_number_of_rounds_and_nothing_else(window: int) -> None:
    """Guesses may be as wrong as they like."""
    more_rounds = 0
    for seed in range(SOME_WORLDS):
        world = random_world(seed)
        guessed = auction_in_rounds(world, window)
        misled = auction_in_rounds(world, window, mislead=partial(mislead, world, random.Random(seed)))
        assert_same(misled, guessed, f"random_world({seed})")
        more_rounds += misled.rounds - guessed.rounds
    assert more_rounds > 0, "good guesses must be worth something"


def mislead(plan: WorldPlan, rng: random.Random, lot: Lot) -> Lot:
    """The lot with any region, or none, as its expected winner."""
    return lot._replace(expected_winner=rng.choice((None, *plan.regions)))


def test_larger_windows_take_fewer_rounds() -> None:
    rounds = [sum(auction_in_rounds(random_world(seed), window).rounds for seed in range(40)) for window in WINDOWS]
    assert rounds == sorted(rounds, reverse=True)
    assert rounds[0] > 3 * rounds[-1]


def test_the_order_of_sets_decides_nothing() -> None:
    """The same rounds, winners, placements and evictions, however strings are hashed (I12)."""
    assert_same_output(
        "from tests.regional_scheduler.auction_worlds import auction_in_rounds, random_world\n"
        "for seed in range(12):\n"
        "    history = auction_in_rounds(random_world(seed), window=8)\n"
        "    print(history.rounds, history.ruled, sorted(history.holdings.items()))\n"
    )
