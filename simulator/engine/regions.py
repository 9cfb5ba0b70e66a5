"""The regions of a simulation, and the auction between them: one lot at a time.

Rounds over windows of lots decide exactly what one-at-a-time auctions in queue order would (decision 003, I11), so the
simulator holds these: nobody waits for a round trip here. Bids, scores and placements are the live service's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cluster_manager.capacity.tables import Integers
from data_placement.catalog import Catalog
from domain.eviction import DEFAULT_RULE, EvictionRule
from domain.fleet import Fleet, Region
from domain.identifiers import RegionId
from domain.plan import Plan
from domain.rank import Standing
from domain.workload import WorkloadSpecification
from regional_scheduler.auction import Verdict, bid_rank, decide_lot
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.rounds import Abandoned, Answer, Lot
from simulator.engine.workloads import SimulatedWorkload


@dataclass(frozen=True, slots=True, eq=False)
class RegionDesk:
    """One region: what it has, who bids for it."""

    region: RegionId
    inventory: RegionCapacity
    bidder: RegionBidder

    @staticmethod
    def of(region: Region, catalog: Catalog, rule: EvictionRule) -> RegionDesk:
        inventory = RegionCapacity(region, rule=rule)
        return RegionDesk(region.region, inventory, RegionBidder(region, inventory, catalog))


_KindCounts: TypeAlias = tuple[RegionCapacity, Integers | None, int, int]
"""A region, its counts for a kind of tasks, how many tasks there are, and how many counts it had forgotten by then."""


@dataclass(frozen=True, slots=True)
class Win:
    """A region has the best plan."""

    region: int
    plan: Plan


class RegionRoom:
    """All regions, in the order of their positions in the fleet; asked in the order of their names."""

    def __init__(
        self,
        fleet: Fleet,
        catalog: Catalog,
        *,
        remembers: bool = True,
        beyond_walks: bool = True,
        rule: EvictionRule = DEFAULT_RULE,
    ) -> None:
        """`remembers`: whether refusals are kept at all; `beyond_walks`: whether from one walk to the next."""
        self.desks = tuple(RegionDesk.of(region, catalog, rule) for region in fleet.regions)
        self._by_name = sorted(range(len(self.desks)), key=lambda position: self.desks[position].region)
        self._remembers = remembers
        self.keeps_refusals = remembers and beyond_walks
        """False: nobody may rely on what was refused before but the regions' own caches."""
        self.lookups = 0
        """How often a region was asked for room."""
        self.plans = 0
        """How often it had to plan to answer."""
        self._rooms: dict[int, tuple[_KindCounts, ...]] = {}

    @property
    def releases(self) -> int:
        """How often there may have come to be more room for somebody in any region."""
        return sum([desk.inventory.releases for desk in self.desks])

    def pass_time(self, now: float) -> None:
        """Everybody who may be evicted by `now` makes room from now on."""
        for desk in self.desks:
            desk.inventory.pass_time(now)

    def begin_walk(self) -> None:
        """A walk along the queue begins: forgets what is not to be kept from the last one."""
        if not self.keeps_refusals:
            self._forget()

    def eligible(self, specification: WorkloadSpecification) -> tuple[int, ...]:
        """The regions that would not abandon the auction of such a workload, by position."""
        return tuple(
            position for position, desk in enumerate(self.desks) if desk.bidder.abandons(specification) is None
        )

    def answers(self, specification: WorkloadSpecification) -> dict[RegionId, Abandoned]:
        """Why each region that abandons does."""
        said = {desk.region: desk.bidder.abandons(specification) for desk in self.desks}
        return {region: answer for region, answer in sorted(said.items()) if answer is not None}

    def finds_nothing(self, work: SimulatedWorkload, standing: Standing) -> bool:
        """True when surely no eligible region has a place, not even by evicting; costs next to nothing.

        Always False where refusals are not kept: then it takes a plan to know.
        """
        if not self.keeps_refusals:
            return False
        rooms = self._rooms.get(work.kind)
        if rooms is None:
            rooms = self._rooms[work.kind] = self._rooms_for(work)
        for inventory, room, tasks, forgotten in rooms:
            if inventory.forgotten_counts != forgotten:
                del self._rooms[work.kind]
                return self.finds_nothing(work, standing)
            if room is None or not inventory.is_short(room, tasks, standing):
                return False
        self.lookups += len(rooms)
        return True

    def _rooms_for(self, work: SimulatedWorkload) -> tuple[_KindCounts, ...]:
        """In each eligible region, the counts for tasks like those of the first job, and how many there are."""
        job = work.workload.specification.jobs[0]
        inventories = [self.desks[position].inventory for position in work.eligible]
        found: list[_KindCounts] = []
        for inventory in inventories:
            counts = inventory.free_counts(inventory.kind_of(job))
            found.append((inventory, counts, job.tasks, inventory.forgotten_counts))
        return tuple(found)

    def auction(self, lot: Lot, eligible: Sequence[int], now: float) -> Win | None:
        """The winner of one lot among the eligible regions: the best score, ties go to the first by name."""
        best: Win | None = None
        for position in self._by_name:
            if position not in eligible:
                continue
            desk = self.desks[position]
            hits = desk.bidder.refusals.hits
            plan = desk.bidder.plan_alone(lot, now)
            self.lookups += 1
            self.plans += desk.bidder.refusals.hits == hits
            if plan is None:
                continue
            if best is None or bid_rank(plan.score, plan.region) < bid_rank(best.plan.score, best.plan.region):
                best = Win(position, plan)
        if not self._remembers:
            self._forget()
        return best

    def idle_gpus(self, region: int) -> int:
        """GPUs that nobody holds on machines that take work."""
        return self.desks[region].inventory.idle_gpus

    def verdict(self, lot: Lot, eligible: Sequence[int], now: float) -> Verdict:
        """The same auction with all its sentences: for logs, where it costs nothing that matters."""
        answers: dict[RegionId, Answer] = {}
        for position in self._by_name:
            desk = self.desks[position]
            abandoned = desk.bidder.abandons(lot.workload.specification)
            if position in eligible:
                answers[desk.region] = desk.bidder.answer_alone(lot, now)
            elif abandoned is not None:
                answers[desk.region] = abandoned
        return decide_lot(lot, answers)

    def _forget(self) -> None:
        for desk in self.desks:
            desk.bidder.refusals.clear()
