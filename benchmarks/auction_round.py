"""Auctions between three regions in one process: ``python -m benchmarks.auction_round [--lots N] [--window W ...]``.

Timed is a whole round without its database and network: all regions answer, the round is closed, the winners confirm.
The three regions take turns in one process (alive, each has its own), and what counts is the time that this process
computes. What the guesses are worth shows in the rounds per window: 1 would be perfect foresight, as many as the window
has lots would be none.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.mast_region import NOW_S, RunningRegion, WorkloadSource, mast_region
from benchmarks.measurement import report
from data_placement.catalog import Catalog
from domain.fleet import Region
from domain.identifiers import AttemptNumber, RegionId
from domain.rank import QueuePosition, Standing
from domain.tenant import LOWEST_PRIORITY
from domain.workload import Workload
from regional_scheduler.auction import NotYet, RoundOutcome, Won, close_round
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.dispatching import Dispatch
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.round_opening import open_round
from regional_scheduler.rounds import AuctionSettings, Lot

BUDGET = "none of its own; 200 workloads per second from submission to start need 200 lots per second"
REGIONS = ("east", "north", "west")
RUNNING = 3_000
SEED = 1
SMALL_GPUS = ((1, 0.45), (2, 0.15), (4, 0.15), (8, 0.17), (16, 0.05), (32, 0.02), (64, 0.01))
"""GPUs of a workload where most are small, as in a research cluster, and their shares."""


@dataclass(frozen=True, slots=True)
class AuctionCase:
    """A fleet and a queue."""

    name: str
    filled: bool
    draw: Callable[[WorkloadSource], Workload]
    may_evict: bool = True
    """Standings by MAST's shares of priorities; else all at the lowest."""


def small_workload(source: WorkloadSource) -> Workload:
    """One GPU job, mostly of a single machine, with its share of CPUs and memory."""
    sizes, shares = zip(*SMALL_GPUS, strict=True)
    return source.workload(source.gpu_job(int(source.generator.choice(sizes, p=shares))))


CASES = (
    AuctionCase("small_empty", False, small_workload),
    AuctionCase("mast_empty", False, WorkloadSource.as_in_mast),
    AuctionCase("mast_saturated", True, WorkloadSource.as_in_mast),
    AuctionCase("small_saturated", True, small_workload),
    AuctionCase("small_waiting", True, small_workload, may_evict=False),
)


@dataclass(frozen=True, slots=True)
class Market:
    """Three regions: their inventories and what they are made of."""

    regions: tuple[Region, ...]
    inventories: tuple[RegionCapacity, ...]

    @staticmethod
    def of(*, filled: bool) -> "Market":
        """Regions as large as MAST's largest, empty or full."""
        regions = tuple(mast_region(name) for name in REGIONS)
        inventories = tuple(RegionCapacity(region) for region in regions)
        if filled:
            for number, inventory in enumerate(inventories, 1):
                source = WorkloadSource(np.random.default_rng(SEED + number), drawn=1_000_000 * number)
                RunningRegion(inventory, source).fill_to(1.0, 1.0, RUNNING)
        return Market(regions, inventories)

    def bidders(self) -> dict[RegionId, RegionBidder]:
        """New ones, that remember no refusals."""
        bidders: dict[RegionId, RegionBidder] = {}
        for region, inventory in zip(self.regions, self.inventories, strict=True):
            bidders[region.region] = RegionBidder(region, inventory, Catalog())
        return bidders


@dataclass(slots=True)
class AuctionRun:
    """What a run over a whole queue has measured so far."""

    durations_s: list[float]
    lots_decided: list[int]
    closing_s: float = 0.0
    answers: int = 0
    dispatched: int = 0
    evictions: int = 0
    given_back: int = 0


def queue_of(case: AuctionCase, lots: int) -> tuple[Lot, ...]:
    """The queue in its order, submitted one after the other."""
    source = WorkloadSource(np.random.default_rng(SEED + 100))
    queue: list[Lot] = []
    for number in range(lots):
        workload = case.draw(source)
        standing = source.standing() if case.may_evict else Standing(LOWEST_PRIORITY, 0)
        position = QueuePosition(workload.workload, standing, 0.0, float(number), standing.priority < 6)
        queue.append(Lot(workload, position, AttemptNumber(1)))
    return tuple(sorted(queue, key=lambda lot: lot.position.sort_key))


def auction_all(bidders: dict[RegionId, RegionBidder], queue: Sequence[Lot], largest_window: int) -> AuctionRun:
    """Rounds until the queue is through, each with as many lots as the last outcome advises."""
    run = AuctionRun([], [])
    settings = AuctionSettings(largest_window)
    decided, window = 0, largest_window
    outcome: RoundOutcome | NotYet | None = None
    while not (isinstance(outcome, RoundOutcome) and outcome.exhausted):
        opened = open_round(
            number=len(run.durations_s) + 1,
            scan_pass=1,
            now=NOW_S,
            settings=replace(settings, window=window),
            participants=tuple(bidders),
            upcoming=queue[decided : decided + window + 1],
            hints=outcome.hints() if isinstance(outcome, RoundOutcome) else {},
            runs_alone=outcome.runs_alone if isinstance(outcome, RoundOutcome) else True,
        )
        started_s = time.process_time()
        responses = [bidder.answer(opened, NOW_S) for bidder in bidders.values()]
        answered_s = time.process_time()
        outcome = close_round(opened, responses, NOW_S, queue[decided + window : decided + window + largest_window])
        closed_s = time.process_time()
        if isinstance(outcome, NotYet):
            raise RuntimeError(f"all regions answered, but {outcome.missing} are said to be missing")
        for region, bidder in bidders.items():
            won = [one.lot for one in outcome.verdicts if isinstance(one, Won) and one.winner == region]
            for confirmation in bidder.confirm(won, NOW_S):
                if isinstance(confirmation, Dispatch):
                    run.dispatched += 1
                    run.evictions += len(confirmation.plan.evictions)
                else:
                    run.given_back += 1
        run.durations_s.append(time.process_time() - started_s)
        run.closing_s += closed_s - answered_s
        run.answers += len(responses) * len(opened.lots)
        run.lots_decided.append(len(outcome.verdicts))
        decided += len(outcome.verdicts)
        window = outcome.next_window(settings)
    return run


def run_undone(market: Market, queue: Sequence[Lot], window: int) -> AuctionRun:
    """Auctions the queue and leaves the market as it was."""
    with ExitStack() as stack:
        for inventory in market.inventories:
            stack.enter_context(inventory.tentatively())
        return auction_all(market.bidders(), queue, window)


def measure(case: AuctionCase, market: Market, lots: int, window: int) -> None:
    """One queue through all its rounds."""
    queue = queue_of(case, lots)
    run = run_undone(market, queue, window)
    total_s = sum(run.durations_s)
    work = {
        "regions": len(REGIONS),
        "gpus_of_each": 20_000,
        "machines_of_each": 66_500,
        "running_in_each": len(market.inventories[0].holdings()),
        "lots": lots,
        "window": window,
        "seed": SEED,
    }
    extra = {
        "lots_per_s": round(lots / total_s, 1),
        "rounds": len(run.durations_s),
        "rounds_per_window": round(len(run.durations_s) / (lots / window), 2),
        "lots_per_round": round(lots / len(run.durations_s), 2),
        "answers_per_lot_and_region": round(run.answers / (lots * len(REGIONS)), 2),
        "closing_share": round(run.closing_s / total_s, 3),
        "dispatched": run.dispatched,
        "evictions": run.evictions,
        "given_back": run.given_back,
    }
    report(f"auction_round_{case.name}", work, run.durations_s, BUDGET, extra)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure auction rounds between three regions.")
    parser.add_argument("--lots", type=int, default=1_000, help="workloads in the queue")
    parser.add_argument("--window", type=int, nargs="+", default=[1, 8, 64, 256], help="lots in a round")
    parser.add_argument("--case", nargs="+", default=[case.name for case in CASES], help="which cases")
    arguments = parser.parse_args()
    for filled in (False, True):
        cases = [case for case in CASES if case.filled == filled and case.name in arguments.case]
        if not cases:
            continue
        market = Market.of(filled=filled)
        run_undone(market, queue_of(cases[0], 8), 8)  # so that everything is compiled
        for case in cases:
            for window in arguments.window:
                measure(case, market, arguments.lots, window)


if __name__ == "__main__":
    main()
