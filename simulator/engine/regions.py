"""The regions of a simulation, and the auction between them: one lot at a time.

Rounds over windows of lots decide exactly what one-at-a-time auctions in queue order would (decision 003, I11), so the
simulator holds these: there are no round trips here. Bids, scores and placements are the live service's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cluster_manager.recently_used import RecentlyUsed
from data_placement.catalog import Catalog
from domain.eviction import DEFAULT_RULE, EvictionRule
from domain.fleet import Fleet, Region
from domain.identifiers import RegionId
from domain.plan import EVICTS_NOTHING, Plan
from domain.rank import Standing
from domain.reservation import ReservationRule
from domain.workload import WorkloadSpecification
from regional_scheduler.auction import Verdict, bid_rank, decide_lot
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.refusals.entries import Scope
from regional_scheduler.refusals.memory import RefusalMemory
from regional_scheduler.refusals.questions import Question
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.rounds import Abandoned, Answer, Lot
from simulator.engine.ways_to_run import WayToRun
from simulator.engine.workloads import SimulatedWorkload

MOST_WAYS = 3
"""To run a workload."""
SHAPES_REMEMBERED = 65_536
"""Shapes of workloads whose questions are kept; they are made anew for others."""


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedRegion:
    """One region: what it has, and its bidder."""

    region: RegionId
    inventory: RegionCapacity
    bidder: RegionBidder

    @staticmethod
    def of(region: Region, catalog: Catalog, rule: EvictionRule) -> SimulatedRegion:
        inventory = RegionCapacity(region, rule=rule)
        return SimulatedRegion(region.region, inventory, RegionBidder(region, inventory, catalog))


class _AskedRegion(NamedTuple):
    """A region, by position, and the question that all workloads of one shape ask it."""

    position: int
    refusals: RefusalMemory
    question: Question


class Win(NamedTuple):
    """A region has the best plan for what was put up."""

    region: int
    plan: Plan
    lot: Lot
    way: WayToRun | None = None
    """Where there are several ways to run it."""


class SimulatedRegions:
    """All regions, in the order of their positions in the fleet; asked in the order of their names."""

    def __init__(
        self,
        fleet: Fleet,
        catalog: Catalog,
        *,
        remembers: bool = True,
        beyond_walks: bool = True,
        rule: EvictionRule = DEFAULT_RULE,
        reservations: ReservationRule | None = None,
    ) -> None:
        """`remembers`: whether refusals are kept at all; `beyond_walks`: whether from one pass to the next."""
        self.members = tuple(SimulatedRegion.of(region, catalog, rule) for region in fleet.regions)
        if reservations is not None:
            for member in self.members:
                member.inventory.reserved.begin_use(reservations.start_up_s)
        self._by_name = sorted(range(len(self.members)), key=lambda position: self.members[position].region)
        self._remembers = remembers
        self.keeps_refusals = remembers and beyond_walks
        """False: what has no place is only known from what was planned since the pass began, or not even from that."""
        self.lookups = 0
        """How often a region was asked for room."""
        self.plans = 0
        """How often it had to plan to answer."""
        self._questions: RecentlyUsed[int, tuple[_AskedRegion, ...]] = RecentlyUsed(SHAPES_REMEMBERED)

    def begin_pass(self, now: float) -> None:
        """A pass along the queue begins: attempts that became evictable by `now` count as room from now on, and what is not
        to be kept from the last pass is forgotten."""
        for member in self.members:
            member.inventory.pass_time(now)
        if not self.keeps_refusals:
            self._forget()

    def eligible(self, specification: WorkloadSpecification) -> tuple[int, ...]:
        """The regions that would not abandon the auction of such a workload, by position."""
        return tuple(
            position for position, member in enumerate(self.members) if member.bidder.abandons(specification) is None
        )

    def answers(self, specification: WorkloadSpecification) -> dict[RegionId, Abandoned]:
        """Why each region that abandons does."""
        said = {member.region: member.bidder.abandons(specification) for member in self.members}
        return {region: answer for region, answer in sorted(said.items()) if answer is not None}

    def scopes(self, specification: WorkloadSpecification, eligible: Sequence[int]) -> tuple[Scope, ...]:
        """What the mechanisms of these regions look at beside what its jobs ask for: see `scope_of`."""
        return tuple(
            [
                scope
                for position in eligible
                for within_quota in (False, True)
                for scope in self.members[position].bidder.refusals.scopes(specification, within_quota=within_quota)
            ]
        )

    def refuses(self, work: SimulatedWorkload, standing: Standing) -> bool:
        """True when all eligible regions are known to have no place, not even by evicting; costs next to nothing.

        Always False where refusals are not kept: then it takes a plan to know.
        """
        if not self.keeps_refusals:
            return False
        asked = self._asked_regions(work, 0)
        if work.ways:
            for way in range(1, len(work.ways)):
                asked += self._asked_regions(work, way)
        for _, refusals, question in asked:
            if not refusals.refuses(question, standing):
                return False
        self.lookups += len(asked)
        return True

    def _asked_regions(self, work: SimulatedWorkload, way: int) -> tuple[_AskedRegion, ...]:
        """The eligible regions by name, each with the question about workloads like this one that run in this way."""
        key = MOST_WAYS * (2 * work.shape + work.within_quota) + way
        regions = self._questions.get(key)
        if regions is None:
            asked: list[_AskedRegion] = []
            workload = work.ways[way].workload if work.ways else work.workload
            for position in self._by_name:
                if position in work.eligible:
                    refusals = self.members[position].bidder.refusals
                    question = refusals.question(workload.specification, within_quota=work.within_quota)
                    asked.append(_AskedRegion(position, refusals, question))
            regions = tuple(asked)
            self._questions.put(key, regions)
        return regions

    def auction(self, work: SimulatedWorkload, standing: Standing, eligible: Sequence[int], now: float) -> Win | None:
        """The winner of its lot among these of its regions: the best score, ties go to the first by name.

        Of several ways to run it one that takes nothing from others is better than one that does; else the preferred one.
        """
        if not work.ways:
            best = self._auction(work, standing, eligible, now, 0)
        else:
            best = None
            for number, way in enumerate(work.ways):
                win = self._auction(work, standing, eligible, now, number)
                if win is not None and (best is None or win.plan.score.reclaim_class < best.plan.score.reclaim_class):
                    best = win._replace(way=way)
                if best is not None and best.plan.score.reclaim_class == EVICTS_NOTHING:
                    break
        if not self._remembers:
            self._forget()
        return best

    def _auction(
        self, work: SimulatedWorkload, standing: Standing, eligible: Sequence[int], now: float, way: int
    ) -> Win | None:
        """The same for one way to run it."""
        best: Win | None = None
        lot: Lot | None = None
        for position, refusals, of_its_shape in self._asked_regions(work, way):
            if position not in eligible:
                continue
            self.lookups += 1
            # Whether the region has no place, as far as the settings let it know.
            known = refusals.refuses if self.keeps_refusals else refusals.is_remembered
            question = of_its_shape
            reserved = self.members[position].inventory.reserved
            if reserved.in_use and reserved.of(work.submitted.workload) is not None:
                # What others are kept off is no refusal for the one that it is kept for.
                specification = work.ways[way].workload.specification if work.ways else work.workload.specification
                question = refusals.question(specification, within_quota=work.within_quota, kept_off=False)
            if known(question, standing):
                continue
            self.plans += 1
            if lot is None:
                lot = work.lot_at(standing, work.ways[way].workload if work.ways else None)
            plan = self.members[position].bidder.plan_alone(lot, now)
            if plan is None:
                continue
            if best is None or bid_rank(plan.score, plan.region) < bid_rank(best.plan.score, best.plan.region):
                best = Win(position, plan, lot)
        return best

    def idle_gpus(self, region: int) -> int:
        """Free GPUs on machines that take work."""
        return self.members[region].inventory.idle_gpus

    def verdict(self, lot: Lot, eligible: Sequence[int], now: float) -> Verdict:
        """The same auction with all its sentences: for logs, where it costs nothing that matters."""
        answers: dict[RegionId, Answer] = {}
        for position in self._by_name:
            member = self.members[position]
            abandoned = member.bidder.abandons(lot.workload.specification)
            if position in eligible:
                answers[member.region] = member.bidder.answer_alone(lot, now)
            elif abandoned is not None:
                answers[member.region] = abandoned
        return decide_lot(lot, answers)

    def _forget(self) -> None:
        for member in self.members:
            member.bidder.refusals.clear()
