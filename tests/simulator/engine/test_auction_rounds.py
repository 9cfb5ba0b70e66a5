"""Auctions in rounds: at no latency they decide what is decided without; with one no law is broken, and nobody waits for good."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.fleet import Fleet
from domain.identifiers import GpuModel
from formats.problems import FormatError
from formats.scheduler_file import CompactionSection, ReservationsSection
from simulator.engine.settings import AuctionRoundSettings, SimulationSettings, settings_from
from simulator.inputs.loans import LoanSchedule, LoanStep
from simulator.policies.registry import policies
from tests.examples import examples
from tests.simulator.engine.checked_run import (
    NO_COSTS,
    CheckedRun,
    checked_run,
    machine,
    one_region,
    region,
    row,
)
from tests.simulator.engine.small_worlds import SmallWorld, crowded_worlds, small_worlds

IN_ROUNDS = ("federated", "federated_stale", "mast", "own_region", "random_region")
"""The policies that rank by scan passes and start the first that fits."""
WINDOWS = st.sampled_from((1, 2, 3, 8, 64))
LATENCIES_S = st.sampled_from((0.05, 1.0, 7.5, 60.0, 200.0))


def in_rounds(world: SmallWorld, window: int | None, latency_s: float = 0.0, **changed: object) -> SmallWorld:
    rounds = AuctionRoundSettings(window=window, round_latency_s=latency_s)
    update = {"auction_rounds": rounds, "auction_latency_s": 0.0, **changed}
    return replace(world, settings=world.settings.model_copy(update=update))


def run_of(world: SmallWorld, policy: str) -> CheckedRun:
    """All that `checked_run` checks, checked: log, laws, inventories."""
    return checked_run(policies()[policy], world.rows, world.fleet, world.tenants, world.settings, tables=world.tables)


def decided_in(world: SmallWorld, policy: str) -> list[object]:
    """The log but for the sentences that say why somebody waits: these tell of what a window had placed."""
    return [record for record in run_of(world, policy).log if record["event"] != "waiting"]


@pytest.mark.parametrize("policy", IN_ROUNDS)
@settings(max_examples=examples(25))
@given(world=small_worlds(), window=WINDOWS)
def test_never_another_decision_where_rounds_take_no_time(policy: str, world: SmallWorld, window: int) -> None:
    """Where each change is followed by a pass: else rounds use what is released between two passes, as the service does."""
    at_once = in_rounds(world, None, scan_period_s=0.0)
    assert decided_in(in_rounds(at_once, window), policy) == decided_in(at_once, policy)


@settings(max_examples=examples(40))
@given(world=crowded_worlds(), window=WINDOWS)
def test_never_another_decision_where_everybody_is_in_the_way(world: SmallWorld, window: int) -> None:
    at_once = in_rounds(world, None, scan_period_s=0.0)
    assert decided_in(in_rounds(at_once, window), "mast") == decided_in(at_once, "mast")


@settings(max_examples=examples(25))
@given(world=small_worlds() | crowded_worlds(), window=WINDOWS)
def test_never_another_decision_with_gangs_that_are_helped(world: SmallWorld, window: int) -> None:
    """Machines are kept for gangs, and small attempts move out of their way: after each walk as after each pass."""
    at_once = in_rounds(
        world,
        None,
        scan_period_s=0.0,
        compaction=CompactionSection(enabled=True, restart_s=0.0),
        reservations=ReservationsSection(enabled=True, after_s=60.0, least_gpus=2, look_every_s=30.0),
    )
    assert decided_in(in_rounds(at_once, window), "mast") == decided_in(at_once, "mast")


@settings(max_examples=examples(25))
@given(world=small_worlds() | crowded_worlds(), window=WINDOWS)
def test_never_another_decision_with_another_window(world: SmallWorld, window: int) -> None:
    """At any period of scan passes (I11)."""
    assert decided_in(in_rounds(world, window), "mast") == decided_in(in_rounds(world, 1), "mast")


@pytest.mark.parametrize("policy", ["mast", "federated"])
@settings(max_examples=examples(50))
@given(world=small_worlds() | crowded_worlds(), window=WINDOWS, latency_s=LATENCIES_S)
def test_never_an_invariant_broken_where_rounds_take_time(
    policy: str, world: SmallWorld, window: int, latency_s: float
) -> None:
    """The validator, the conservation laws, the inventories' own check, and an end for every workload."""
    run_of(in_rounds(world, window, latency_s), policy)


@settings(max_examples=examples(25))
@given(world=small_worlds() | crowded_worlds(), window=WINDOWS, latency_s=LATENCIES_S)
def test_never_an_invariant_broken_where_gangs_are_helped(world: SmallWorld, window: int, latency_s: float) -> None:
    helped = in_rounds(
        world,
        window,
        latency_s,
        compaction=CompactionSection(enabled=True, restart_s=0.0),
        reservations=ReservationsSection(enabled=True, after_s=60.0, least_gpus=2, look_every_s=30.0),
    )
    run_of(helped, "mast")


def test_a_reservation_ends_with_the_round_that_starts_its_gang() -> None:
    """The gang is over before its walk is, and nobody is left to keep machines for."""
    rows = [row("holder", 0.0, 300.0, 4), row("gang", 20.0, 5.0, 4)]
    rows += [row(f"w{gpus}", 100.0, 50.0, gpus) for gpus in (1, 2, 3)]
    reserving = ReservationsSection(enabled=True, after_s=60.0, least_gpus=2, look_every_s=30.0)
    rounds = AuctionRoundSettings(window=1, round_latency_s=10.0)
    timed = NO_COSTS.model_copy(update={"scan_period_s": 0.0, "auction_rounds": rounds, "reservations": reserving})
    run = checked_run(policies()["mast"], rows, one_region(1, 4), settings=timed)
    ended = [(record["t"], record["workload"]) for record in run.log if record["event"] == "reservation_ended"]
    assert ended[0] == (320.0, "gang")


@settings(max_examples=examples(10))
@given(world=crowded_worlds(), window=WINDOWS, latency_s=LATENCIES_S)
def test_never_two_runs_that_differ(world: SmallWorld, window: int, latency_s: float) -> None:
    timed = in_rounds(world, window, latency_s)
    assert run_of(timed, "mast").log == run_of(timed, "mast").log


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["auction_rounds.window=0"], "auction_rounds.window: must be at least 1, not 0"),
        (["auction_rounds.window=2000"], "auction_rounds.window: must be at most 1024, not 2000"),
        (["auction_rounds.window=1.5"], "auction_rounds.window: must be a whole number"),
        (["auction_rounds.window=many"], "auction_rounds.window: must be a whole number"),
        (
            ["auction_rounds.window=64", "auction_rounds.round_latency_s=-0.1"],
            "auction_rounds.round_latency_s: must be at least 0.0, not -0.1",
        ),
        (
            ["auction_rounds.window=64", "auction_rounds.round_latency_s=soon"],
            "auction_rounds.round_latency_s: must be a number",
        ),
        (
            ["auction_rounds.round_latency_s=0.1"],
            "auction_rounds.round_latency_s: must be 0 as long as auction_rounds.window is not set, not 0.1",
        ),
        (
            ["auction_rounds.window=64", "auction_latency_s=5"],
            "auction_latency_s: must be 0 where auction_rounds.window is set",
        ),
        (["auction_rounds.windows=64"], "did you mean window"),
        (["auction_rounds=64"], "is a group of settings"),
    ],
)
def test_a_wrong_setting_is_named(changes: list[str], says: str) -> None:
    with pytest.raises(FormatError) as refused:
        settings_from(None, changes, "settings")
    assert says in str(refused.value)


def test_they_are_read_from_changes_and_documents() -> None:
    expected = AuctionRoundSettings(window=16, round_latency_s=1.0)
    changed = settings_from(None, ["auction_rounds.window=16", "auction_rounds.round_latency_s=1"], "settings")
    read = settings_from({"auction_rounds": {"window": 16, "round_latency_s": 1}}, [], "settings")
    assert changed.auction_rounds == read.auction_rounds == expected
    assert SimulationSettings().auction_rounds.window is None


def test_they_are_refused_where_workloads_run_in_several_ways() -> None:
    """Machines of another model on loan: some workloads may run on either, which no round knows."""
    training, lent = machine("t0", 8), machine("l0", 8, GpuModel("T4"))
    fleet = Fleet((region("r", [training], [lent]), region("s", [machine("s0", 8)])))
    lenders = Fleet((fleet.regions[0],))
    both = LoanSchedule((LoanStep(0.0, fleet.regions[0].clusters[0].cluster, 1),))
    timed = NO_COSTS.model_copy(update={"auction_rounds": AuctionRoundSettings(window=8)})
    with pytest.raises(FormatError, match=r"auction_rounds\.window: cannot be set where machines on loan have GPUs"):
        checked_run(policies()["mast"], [row("a", 0.0, 1.0)], lenders, settings=timed, loans=both)


def test_policies_without_such_auctions_decide_as_ever() -> None:
    """A policy that decides whenever something happens, and one that searches for all at once."""
    rows = [row(f"w{number}", 5.0 * number, 40.0, 4) for number in range(6)]
    timed = NO_COSTS.model_copy(update={"auction_rounds": AuctionRoundSettings(window=8, round_latency_s=7.0)})
    for policy in ("fifo", "las", "ideal"):
        with_rounds = checked_run(policies()[policy], rows, one_region(2, 4), settings=timed)
        assert with_rounds.log == checked_run(policies()[policy], rows, one_region(2, 4)).log
