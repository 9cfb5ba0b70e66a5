"""I11 from the simulator's side: its auctions, one lot at a time, give what the service's rounds give, whatever the window."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_placement.catalog import Catalog
from domain.identifiers import WorkloadId
from domain.plan import Plan
from domain.workload import Workload
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.rounds import Lot
from simulator.engine.columns import WorkloadColumns
from simulator.engine.queues import ScannedQueue
from simulator.engine.regions import SimulatedRegions, Win
from simulator.engine.workloads import SimulatedWorkload
from tests.examples import examples
from tests.regional_scheduler.auction_worlds import (
    AuctionWorld,
    History,
    WorldPlan,
    auction_in_rounds,
    kind_of,
    random_world,
)
from tests.simulator.contract.simulated_driver import Kinds, auction_by_queue_pass

WINDOWS = (1, 8, 64)
WORLDS = 80


def auction_as_simulated(plan: WorldPlan) -> History:
    """The simulator's queue, queue pass and regions on the inventories of the world, over all its scan passes."""
    world = AuctionWorld(plan)
    regions = SimulatedRegions(plan.fleet, Catalog(plan.tables))
    world.inventories = {member.region: member.inventory for member in regions.members}
    arrivals = sorted(
        (arrival for of_pass in plan.arrivals for arrival in of_pass),
        key=lambda arrival: (arrival.workload.submitted_s, arrival.workload.workload),
    )
    kinds = Kinds()
    works = [_work_of(index, arrival.workload, regions, kinds) for index, arrival in enumerate(arrivals)]
    by_name = {work.workload.workload: work for work in works}
    columns = WorkloadColumns([str(work.workload.workload) for work in works], {})
    queue = ScannedQueue(columns, works)

    def auction_pass(scan_pass: int, lots: tuple[Lot, ...], now: float) -> None:
        won: dict[WorkloadId, Plan] = {}

        def dispatch(work: SimulatedWorkload, win: Win) -> None:
            apply_plan(regions.members[win.region].inventory, win.plan, now, win.lot)
            queue.remove(work)
            won[work.workload.workload] = win.plan

        for lot in lots:
            work = by_name[lot.workload.workload]
            work.standing, work.attempts = lot.position.standing, lot.attempt - 1
            work.within_quota = lot.position.within_quota
            if not columns.queued[work.index]:
                queue.add(work, now)
            columns.credit[work.index] = lot.position.credit
        queue.rank(np.array([by_name[lot.workload.workload].index for lot in lots], dtype=np.int64))
        auction_by_queue_pass(queue, regions, dispatch, now)
        for lot in lots:
            plan_of_it = won.get(lot.workload.workload)
            if plan_of_it is not None:
                world.rule(scan_pass, lot, "won", plan_of_it.region, plan_of_it)
            else:
                eligible = by_name[lot.workload.workload].eligible
                world.rule(scan_pass, lot, kind_of(regions.verdict(lot, eligible, now)), None, None)

    return world.run(auction_pass)


def _work_of(index: int, workload: Workload, regions: SimulatedRegions, kinds: Kinds) -> SimulatedWorkload:
    eligible = regions.eligible(workload.specification)
    kind = kinds.kind_of(index, workload.specification, eligible)
    return SimulatedWorkload(
        index=index,
        workload=workload,
        tenant=0,
        base_gpus=workload.specification.demand.total_gpus,
        submitted_s=workload.submitted_s,
        work_s=1.0,
        checkpoint_interval_s=0.0,
        kind=kind,
        shape=kind,
        eligible=eligible,
    )


@pytest.mark.parametrize("window", WINDOWS)
def test_rounds_decide_what_the_simulator_decides(window: int) -> None:
    """Winners, machines, GPUs, victims, verdicts, and what is held at the end, over several scan passes."""
    counts: Counter[str] = Counter()
    for seed in range(WORLDS):
        plan = random_world(seed)
        simulated, rounds = auction_as_simulated(plan), auction_in_rounds(plan, window)
        for ours, theirs in zip(simulated.ruled, rounds.ruled, strict=True):
            assert ours == theirs, f"random_world({seed}), window {window}"
            counts[ours.kind + (" with evictions" if ours.evictions else "")] += 1
        assert simulated.holdings == rounds.holdings, f"random_world({seed}), window {window}"
    assert min(counts[kind] for kind in ("won", "won with evictions", "waiting", "awaiting data")) > 30, counts


@settings(max_examples=examples(25))
@given(st.integers(1_000, 2**32), st.integers(1, 20))
def test_never_another_decision_than_in_rounds(seed: int, window: int) -> None:
    plan = random_world(seed)
    simulated, rounds = auction_as_simulated(plan), auction_in_rounds(plan, window)
    assert simulated.ruled == rounds.ruled
    assert simulated.holdings == rounds.holdings
