"""Lots that are alike: an answer after so many wins is the answer to any of them (decision 077), and I11 holds all the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.diagnosis import Diagnosis, Reason
from domain.identifiers import RegionId, WorkloadId
from domain.placement import Score
from domain.plan import Plan
from domain.rank import Standing
from domain.workload import JobSpecification, Workload
from regional_scheduler.alike_lots import LONG_RUN, leading_run
from regional_scheduler.auction import RoundOutcome, Won, close_round
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.conditional_answers import ConditionalAnswers
from regional_scheduler.eligibility import abandonment
from regional_scheduler.hosting import EmptyRegion
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.planner import plan_workload
from regional_scheduler.refusal import Refusal
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.round_opening import open_round
from regional_scheduler.rounds import AuctionSettings, Bid, Lot, NoPlan, PlanSummary, RegionResponse, Round
from tests.examples import examples
from tests.regional_scheduler.auction_worlds import (
    AuctionWorld,
    Entry,
    OfferedWorkload,
    WorldPlan,
    auction_in_rounds,
    auction_one_at_a_time,
    lots_won,
    random_world,
)
from tests.regional_scheduler.test_auction_rounds import assert_same, mislead, sometimes_absent

COPIES = 12
BLOCK = 60


def of_few_kinds(seed: int, among: Sequence[OfferedWorkload] = ()) -> WorldPlan:
    """A random world in which many workloads ask for what one of three asks for: in runs, or mixed, at several standings."""
    plan, rng = random_world(seed), random.Random(seed)
    models = list(among) or [arrival for arrivals in plan.arrivals for arrival in arrivals]
    models = rng.sample(models, min(3, len(models)))
    counter = iter(range(10_000))
    arrivals = tuple(
        tuple(_like(rng.choice(models), rng, next(counter)) for _ in range(rng.randint(1, 3 * COPIES)))
        for _ in plan.arrivals
    )
    return replace(plan, arrivals=arrivals)


def _like(model: OfferedWorkload, rng: random.Random, number: int) -> OfferedWorkload:
    specification = replace(model.workload.specification, name=f"like-{number}")
    workload = Workload(WorkloadId(f"w{number:06}"), specification, float(number))
    standing = Standing(rng.choice((0, 1, 3, 6)), 0)
    return OfferedWorkload(workload, standing, float(rng.randint(0, 3)), model.runs_for_passes)


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.nightly) for first in (BLOCK, 2 * BLOCK))]
)
def test_of_few_kinds_all_is_decided_as_one_at_a_time(first: int) -> None:
    kinds: Counter[str] = Counter()
    for seed in range(first, first + BLOCK):
        world = of_few_kinds(seed)
        expected = auction_one_at_a_time(world)
        kinds.update(ruled.kind + (" with evictions" if ruled.evictions else "") for ruled in expected.ruled)
        for window in (1, 3, 16, 64):
            assert_same(auction_in_rounds(world, window), expected, f"of_few_kinds({seed}), window {window}")
    assert min(kinds[kind] for kind in ("won", "won with evictions", "waiting")) > BLOCK, kinds


@settings(max_examples=examples(50))
@given(st.integers(0, 2**32), st.integers(2, 64))
def test_never_lets_likeness_change_what_is_decided(seed: int, window: int) -> None:
    """Whatever is expected of whom, and whoever does not answer."""
    world = of_few_kinds(seed)
    told = f"of_few_kinds({seed})"
    misled = auction_in_rounds(world, window, mislead=partial(mislead, world, random.Random(seed)))
    assert_same(misled, auction_one_at_a_time(world), told)
    history = auction_in_rounds(world, window, partial(sometimes_absent, world, seed))
    assert_same(history, auction_one_at_a_time(world, history.absences), told)
    assert_same(auction_in_rounds(world, window, asked=seed % window + 1), auction_one_at_a_time(world), told)


def of_several_jobs(seed: int) -> WorldPlan:
    """The same of workloads of several jobs alone, where the world has any."""
    plan = random_world(seed)
    several = [one for arrivals in plan.arrivals for one in arrivals if len(one.workload.specification.jobs) > 1]
    return of_few_kinds(seed, several)


def none_fails_only_together(told: str, world: AuctionWorld, outcome: RoundOutcome, now: float) -> None:
    """For none of whose kind nobody is asked any more there is a region in which each of its jobs has a place."""
    with ExitStack() as wins:
        for inventory in world.inventories.values():
            wins.enter_context(inventory.tentatively())
        for verdict in outcome.verdicts:
            lot = verdict.lot
            if isinstance(verdict, Won):
                inventory = world.inventories[verdict.winner]
                plan = _planned(inventory, lot, lot.workload.specification.jobs, now)
                assert isinstance(plan, Plan), told
                apply_plan(inventory, plan, now, lot)
            elif lot.workload.workload in outcome.hopeless:
                for name, inventory in world.inventories.items():
                    empty, specification = EmptyRegion(world.regions[name]), lot.workload.specification
                    if abandonment(empty, specification, world.catalog) is None:
                        alone = [_planned(inventory, lot, (job,), now) for job in specification.jobs]
                        assert not all(isinstance(plan, Plan) for plan in alone), (told, lot.workload.workload)


def _planned(inventory: RegionCapacity, lot: Lot, jobs: tuple[JobSpecification, ...], now: float) -> Plan | Refusal:
    workload = replace(lot.workload, specification=replace(lot.workload.specification, jobs=jobs))
    return plan_workload(inventory, workload, lot.position.standing, now, within_quota=lot.position.within_quota)


def test_never_gives_up_a_kind_whose_jobs_fail_only_together() -> None:
    """Also where a region had answered with other wins placed than it has."""
    for seed in range(60, 100):
        told = f"of_several_jobs({seed})"
        auction_in_rounds(of_several_jobs(seed), 64, watch=partial(none_fails_only_together, told))
        auction_in_rounds(of_several_jobs(seed), 64, watch=partial(none_fails_only_together, told), asked=3)


def _open(lots: tuple[Lot, ...], regions: tuple[RegionId, ...]) -> Round:
    return open_round(
        number=1,
        scan_pass=1,
        now=300.0,
        settings=AuctionSettings(window=64),
        participants=regions,
        upcoming=lots,
        hints={},
    )


def _run_of(count: int, seed: int) -> tuple[AuctionWorld, tuple[Lot, ...], WorldPlan]:
    """So many alike lots of standings from good to bad, in an empty world of several regions."""
    plan = random_world(seed)
    model = plan.arrivals[0][0]
    rng = random.Random(seed)
    copies = tuple(_like(model, rng, number) for number in range(count))
    only = replace(plan, arrivals=(copies,), failures=((),))
    world = AuctionWorld(only)
    for arrival in copies:
        world.entries[arrival.workload.workload] = Entry(arrival)
    return world, world.queue(), only


def test_a_long_run_is_decided_in_one_round_and_without_guesses() -> None:
    """Several regions win some each, and nobody foresaw which."""
    several = 0
    for seed in range(40):
        world, lots, plan = _run_of(2 * LONG_RUN, seed)
        run = leading_run(lots)
        if run < LONG_RUN:
            continue
        opened = _open(lots, plan.regions)
        assert len(opened.lots) == run
        bidders = [
            RegionBidder(region, world.inventories[name], world.catalog) for name, region in world.regions.items()
        ]
        outcome = close_round(opened, [bidder.answer(opened, 300.0) for bidder in bidders], 300.0)
        assert isinstance(outcome, RoundOutcome)
        evicting = any(isinstance(one, Won) and one.score.reclaim_class for one in outcome.verdicts)
        assert evicting or len(outcome.verdicts) == run
        several += len({one.winner for one in outcome.verdicts if isinstance(one, Won)}) > 1
    assert several > 3


@pytest.mark.parametrize(("reason", "says"), [(Reason.NO_ROOM, True), (Reason.NO_ROOM_TOGETHER, False)])
def test_what_failed_only_together_says_nothing_of_worse_standings(reason: Reason, *, says: bool) -> None:
    """With more victims to choose from, each of the jobs may take another place."""
    _, (one, *_), _ = _run_of(1, 0)
    first, better, worse = (
        one._replace(
            workload=replace(one.workload, workload=WorkloadId(name)),
            position=one.position._replace(workload=WorkloadId(name), standing=Standing(priority, 0)),
        )
        for priority, name in ((0, "first"), (1, "better"), (3, "worse"))
    )
    bid = Bid(Score(reclaim_class=2), PlanSummary((), 1, 1))
    refusal = NoPlan(Diagnosis(reason), "no room", assumes_wins=True)
    # It has assumed to win the second one, and has not: the last one it would answer as it did the first.
    response = RegionResponse(
        1, RegionId("east"), 300.0, (refusal, bid, bid), (WorkloadId("better"),), 0, 0.0, alike=(0, 0, 0)
    )
    answers = ConditionalAnswers(response, (first, better, worse))
    assert answers.to(0) == refusal
    assert answers.to(2) == (refusal if says else None)


def test_a_long_run_is_decided_by_guesses_where_a_region_tells_all_lots_apart() -> None:
    """As one does that has virtual clusters, or keeps machines for gangs: else every round would decide next to nothing."""
    rounds = won = 0
    for seed in range(12):
        world, lots, plan = _run_of(4 * LONG_RUN, seed)
        outcome: RoundOutcome | None = None
        run, decided = leading_run(lots), 0
        bidders = [
            RegionBidder(region, world.inventories[name], world.catalog) for name, region in world.regions.items()
        ]
        while decided < run:
            opened = open_round(
                number=rounds + 1,
                scan_pass=1,
                now=300.0,
                settings=AuctionSettings(window=64),
                participants=plan.regions,
                upcoming=lots[decided:run],
                hints={} if outcome is None else outcome.hints(),
                runs_alone=outcome is None or outcome.runs_alone,
            )
            apart, *others = [bidder.answer(opened, 300.0) for bidder in bidders]
            closed = close_round(opened, [replace(apart, alike=()), *others], 300.0)
            assert isinstance(closed, RoundOutcome)
            outcome = closed
            assert not outcome.runs_alone
            for bidder in bidders:
                won += len(bidder.confirm(lots_won(outcome, bidder.region), 300.0))
            decided += len(outcome.verdicts)
            rounds += 1
    assert won > 3 * rounds, (won, rounds)
