"""I11 of continued rounds where tenants have cells of their own, where machines are kept for gangs, and where tasks are flexible."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from data_placement.catalog import Catalog
from domain.cells import CellHierarchy, CellLevel, ClusterCells, OwnedCells, VirtualCluster
from domain.fleet import Region
from domain.identifiers import AttemptNumber, JobName, MachineId, RegionId, TenantId, VirtualClusterId, WorkloadId
from domain.plan import Plan
from domain.rank import QueuePosition, Standing
from domain.reservation import Reservation
from domain.resources import TaskResources
from domain.workload import Emulated, EntryPoint, JobSpecification, Workload, WorkloadSpecification
from regional_scheduler.auction import RoundOutcome, Won, close_round
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.dispatching import Dispatch
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.round_opening import continue_round
from regional_scheduler.rounds import Answer, Bid, Lot, RegionResponse, Round
from tests.cluster_manager.fleets import H100, cluster, gpu_machine

NAMES = tuple(RegionId(name) for name in ("east", "north", "west"))
TENANTS = tuple(TenantId(name) for name in ("a", "b", "c"))
LEVELS = tuple(CellLevel(name, split) for name, split in (("gpu", 1), ("switch", 2), ("socket", 2), ("node", 2)))
NOW = 10_000.0
WORLDS = 30
RUNNING, LOTS = 8, 24


@dataclass(frozen=True, slots=True)
class Kind:
    """What kind of regions there are."""

    region: Callable[[RegionId, random.Random], Region]
    reserves: bool = False
    elastic: bool = False


def in_cells(name: RegionId, rng: random.Random) -> Region:
    """One cluster in cells, that two of three tenants own, and one that packs."""
    owners = tuple(
        VirtualCluster(VirtualClusterId(tenant), (OwnedCells("H100", "node", 1), OwnedCells("H100", "socket", 1)))
        for tenant in TENANTS[:2]
    )
    machines = [gpu_machine(f"{name}-h{number}") for number in range(rng.randint(3, 4))]
    cells = ClusterCells((CellHierarchy("H100", H100, LEVELS),), owners)
    divided = replace(cluster(f"{name}-cells", machines), mechanism="cells", cells=cells)
    return Region(name, (divided, cluster(f"{name}-packed", [gpu_machine(f"{name}-p0", 4)])))


def packed(name: RegionId, rng: random.Random) -> Region:
    """Two clusters that pack."""
    racks = [[gpu_machine(f"{name}-{rack}{number}") for number in range(rng.randint(1, 2))] for rack in range(2)]
    return Region(name, tuple(cluster(f"{name}-{number}", rack) for number, rack in enumerate(racks)))


KINDS = {"cells": Kind(in_cells), "reservations": Kind(packed, reserves=True), "elastic": Kind(packed, elastic=True)}


def offered(rng: random.Random, number: int, kind: Kind) -> Lot:
    """Something of one or two jobs, of any tenant and standing; some say how long they run."""
    jobs = []
    for job in range(rng.choice((1, 1, 2))):
        tasks = rng.randint(1, 2)
        resources = TaskResources(gpus=rng.choice((1, 2, 4, 8)), cpus=1.0, memory_gib=1.0)
        run: EntryPoint = Emulated(rng.choice((60.0, 1e6)))
        flexible = tasks + rng.randint(0, 2) if kind.elastic else 0
        jobs.append(JobSpecification(JobName(f"j{job}"), tasks, resources, run, max_tasks=flexible))
    name = WorkloadId(f"w{number:03}")
    priority = rng.choice((1, 3, 6))
    workload = Workload(name, WorkloadSpecification(str(name), rng.choice(TENANTS), tuple(jobs)), 0.0)
    position = QueuePosition(name, Standing(priority, 0), 0.0, float(number), within_quota=priority < 6)
    return Lot(workload, position, AttemptNumber(1))


class World:
    """Regions in which some things run already; the same for the same seed."""

    def __init__(self, seed: int, kind: Kind) -> None:
        rng = random.Random(seed)
        self.regions = {name: kind.region(name, rng) for name in NAMES[: rng.randint(2, 3)]}
        self.inventories = {name: RegionCapacity(region) for name, region in self.regions.items()}
        for number in range(RUNNING):
            lot = offered(rng, 900 + number, kind)
            self._start(self.inventories[rng.choice([*self.regions])], lot, NOW - 100.0 - number)
        self.lots = sorted(
            (offered(rng, number, kind) for number in range(LOTS)), key=lambda one: one.position.sort_key
        )
        if kind.reserves:
            for name, inventory in self.inventories.items():
                inventory.reserved.begin_use(0.0)
                self._reserve(rng, name, inventory)

    def _start(self, inventory: RegionCapacity, lot: Lot, now: float) -> Plan | None:
        plan = self.plan(inventory, lot, now)
        if plan is not None:
            apply_plan(inventory, plan, now, lot)
        return plan

    def _reserve(self, rng: random.Random, name: RegionId, inventory: RegionCapacity) -> None:
        gang = rng.choice(self.lots)
        machines = tuple(sorted(machine.machine for machine in self.regions[name].machines()))
        kept: tuple[MachineId, ...] = tuple(sorted(rng.sample(machines, rng.randint(1, len(machines)))))
        clusters = tuple(sorted({inventory.cluster_of(machine) for machine in kept}))
        start_s, standing = NOW + 2_000.0, gang.position.standing
        one = Reservation(gang.workload.workload, name, clusters, kept, 8, standing, NOW, start_s, start_s + 100.0)
        inventory.reserved.replace([one])

    def plan(self, inventory: RegionCapacity, lot: Lot, now: float) -> Plan | None:
        inventory.pass_time(now)
        standing, within_quota = lot.position.standing, lot.position.within_quota
        plan = plan_workload(inventory, lot.workload, standing, now, within_quota=within_quota)
        return plan if isinstance(plan, Plan) else None

    def one_at_a_time(self) -> dict[WorkloadId, Plan | None]:
        """Each lot goes to the best plan of any region, and is placed before the next is looked at."""
        placed: dict[WorkloadId, Plan | None] = {}
        for lot in self.lots:
            bidders = [self.bidder(name) for name in self.regions]
            able = [one.region for one in bidders if one.abandons(lot.workload.specification) is None]
            plans = [plan for name in able if (plan := self.plan(self.inventories[name], lot, NOW)) is not None]
            best = min(plans, key=lambda plan: (plan.score, plan.region), default=None)
            if best is not None:
                apply_plan(self.inventories[best.region], best, NOW, lot)
            placed[lot.workload.workload] = best
        return placed

    def bidder(self, name: RegionId) -> RegionBidder:
        return RegionBidder(self.regions[name], self.inventories[name], Catalog())

    def in_a_continued_round(self, rng: random.Random, told: str) -> tuple[dict[WorkloadId, Plan | None], int]:
        """All in one round; how often it was continued. Guesses are any."""
        bidders = {name: self.bidder(name) for name in self.regions}
        opened = Round(1, 1, NOW, NOW + 2.0, tuple(self.regions), tuple(self.lots), reaches_end=True, asked=6)
        outcome: RoundOutcome | None = None
        continued: Round | None = opened
        times = 0
        while continued is not None:
            continued = replace(continued, lots=tuple(self._misled(rng, lot) for lot in continued.lots))
            responses = [bidder.answer(continued, NOW, self._won(outcome, name)) for name, bidder in bidders.items()]
            then = close_round(continued, responses, NOW)
            assert isinstance(then, RoundOutcome)
            self._check_hopeless(then if outcome is None else outcome.followed_by(then), told)
            outcome = then if outcome is None else outcome.followed_by(then)
            continued = continue_round(continued, then)
            times += 1
        assert outcome is not None
        placed: dict[WorkloadId, Plan | None] = dict.fromkeys(one.lot.workload.workload for one in outcome.verdicts)
        for name, bidder in bidders.items():
            for done in bidder.confirm(self._won(outcome, name), NOW):
                assert isinstance(done, Dispatch), told
                placed[done.lot.workload.workload] = done.plan
        return placed, times

    def _misled(self, rng: random.Random, lot: Lot) -> Lot:
        return lot._replace(expected_winner=rng.choice((None, lot.expected_winner, *self.regions)))

    def _won(self, outcome: RoundOutcome | None, name: RegionId) -> Sequence[Lot]:
        verdicts = () if outcome is None else outcome.verdicts
        return [one.lot for one in verdicts if isinstance(one, Won) and one.winner == name]

    def _check_hopeless(self, outcome: RoundOutcome, told: str) -> None:
        """Of whose kind nobody is asked any more, no region has room for with what it has won by then."""
        hopeless = {lot.workload.workload: lot for lot in self.lots if lot.workload.workload in outcome.hopeless}
        for name, inventory in self.inventories.items():
            with inventory.tentatively():
                for lot in self._won(outcome, name):
                    plan = self.plan(inventory, lot, NOW)
                    assert plan is not None, told
                    apply_plan(inventory, plan, NOW, lot)
                for workload, lot in hopeless.items():
                    able = self.bidder(name).abandons(lot.workload.specification) is None
                    assert not able or self.plan(inventory, lot, NOW) is None, (told, workload)


@pytest.mark.parametrize("kind", KINDS)
def test_a_continued_round_decides_as_one_at_a_time_whatever_regions_tell_apart(kind: str) -> None:
    counted: Counter[str] = Counter()
    for seed in range(WORLDS):
        told = f"{kind}, {seed}"
        expected = World(seed, KINDS[kind]).one_at_a_time()
        world = World(seed, KINDS[kind])
        before = {name: inventory.holdings() for name, inventory in world.inventories.items()}
        assert before == {name: one.holdings() for name, one in World(seed, KINDS[kind]).inventories.items()}
        placed, times = world.in_a_continued_round(random.Random(seed), told)
        assert placed == expected, told
        for inventory in world.inventories.values():
            inventory.check()
        counted["continued"] += times - 1
        counted["won"] += sum(plan is not None for plan in placed.values())
        counted["evicting"] += sum(bool(plan.evictions) for plan in placed.values() if plan is not None)
        counted["refused"] += sum(plan is None for plan in placed.values())
    assert min(counted[what] for what in ("continued", "won", "evicting", "refused")) > WORLDS // 2, counted


def test_answering_with_wins_placed_leaves_a_region_as_it_was() -> None:
    """Also what is kept for gangs that win, and what cells are bound."""
    for name, kind in KINDS.items():
        for seed in range(WORLDS // 3):
            world = World(seed, kind)
            first = next(iter(world.regions))
            bidder, inventory = world.bidder(first), world.inventories[first]
            won = [lot for lot in world.lots[:8] if world.plan(inventory, lot, NOW) is not None][:1]
            held, kept = inventory.holdings(), inventory.reserved.all
            opened = Round(1, 1, NOW, NOW + 2.0, tuple(world.regions), tuple(world.lots[8:]), reaches_end=True)
            answers = bids_of(world.bidder(first).answer(opened, NOW))
            bidder.answer(opened, NOW, won)
            inventory.check()
            assert (inventory.holdings(), inventory.reserved.all) == (held, kept), (name, seed)
            assert bids_of(bidder.answer(opened, NOW)) == answers, (name, seed)


def bids_of(response: RegionResponse) -> list[Answer | None]:
    """Of refusals only that they are some: what is remembered explains them in other words."""
    return [answer if isinstance(answer, Bid) else None for answer in response.answers]
