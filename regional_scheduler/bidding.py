"""A region's part in the auction: it answers rounds and dispatches what it wins (MAST §4.3; decision 003).

Rule: each lot of the window is planned, in queue order, on the region's inventory with those earlier lots placed that
the region assumes to win: the ones that it is expected to win, and the ones of which nothing is expected, if it has a
plan for them. So the first lot is always planned on what is really there, which is what keeps the auction moving.

Invariant: answering leaves the inventory as it was; only `confirm` changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from data_placement.catalog import Catalog
from domain.eviction import EvictionRule
from domain.fleet import Region
from domain.identifiers import RegionId
from domain.plan import Plan
from domain.rank import QueuePosition
from domain.workload import Workload, WorkloadSpecification
from regional_scheduler.alike_lots import first_alike
from regional_scheduler.dispatching import Confirmation, StartWith, confirm_wins, withdraw_wins
from regional_scheduler.eligibility import abandonment
from regional_scheduler.hosting import EmptyRegion
from regional_scheduler.idle_outline import outline_of
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.planner import plan_or_no_place, plan_workload
from regional_scheduler.refusal import Refusal, planning_failed, set_aside
from regional_scheduler.refusal_in_cells import in_words_of_cells
from regional_scheduler.refusals.memory import RefusalMemory
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.rounds import Abandoned, Answer, Bid, Lot, NoPlan, PlanSummary, RegionResponse, Round


class PlaceLost(Exception):
    """What the region has won has no place any more: machines were lost, or something else has changed since."""


class RegionBidder:
    """Answers rounds for one region, from memory: its inventory, what it has no place for, the catalog of tables."""

    __slots__ = ("_catalog", "_empty_region", "_inventory", "refusals")

    def __init__(
        self,
        region: Region,
        inventory: RegionCapacity,
        catalog: Catalog,
    ) -> None:
        self._empty_region = EmptyRegion(region)
        self._inventory = inventory
        self._catalog = catalog
        self.refusals = RefusalMemory(inventory)
        """What the region has no place for."""

    @property
    def region(self) -> RegionId:
        """For which it answers."""
        return self._inventory.region

    @property
    def rule(self) -> EvictionRule:
        """How far evictions are bounded in this region."""
        return self._inventory.rule

    @property
    def catalog_revision(self) -> int:
        """Of the catalog by which it says whether the region holds what a workload reads."""
        return self._catalog.revision

    @property
    def releases(self) -> int:
        """How often capacity was released in the region."""
        return self._inventory.releases

    @property
    def tenants_apart(self) -> bool:
        """Whether the region may have room for one tenant's workload and none for the same of another one."""
        return bool(self._inventory.in_cells) or self._inventory.faults.has_guarded_mechanisms

    def still_refuses(self, workload: Workload, position: QueuePosition) -> bool:
        """Whether it is known, without planning, that the region has no place for such a workload, whatever is kept for whom."""
        if self.abandons(workload.specification) is not None:
            return True
        question = self.refusals.question(workload.specification, within_quota=position.within_quota, kept_off=False)
        return self.refusals.refuses(question, position.standing)

    def answer(self, auction_round: Round, now: float, won: Sequence[Lot] = ()) -> RegionResponse:
        """The region's answers to the lots of the round that are to be answered; `now` only says when they were given.

        `won`: lots of the same round before these which it has won, in queue order; it answers with them placed. Raises
        PlaceLost when it has no place for one of them any more.
        """
        self._inventory.pass_time(auction_round.opened_s)
        answers: list[Answer] = []
        assumed: list[Lot] = []
        with self._inventory.tentatively(), ExitStack() as suppositions:
            if won:
                suppositions.enter_context(self.refusals.supposing())
                self._place(won, auction_round.opened_s)
            outline = outline_of(self._inventory)
            for lot in auction_round.lots_to_answer:
                answer, plan = self._answer_lot(lot, auction_round.opened_s, assumes_wins=bool(assumed))
                answers.append(answer)
                if plan is not None and lot.expected_winner in (None, self._inventory.region):
                    if not (assumed or won):
                        # What is refused with assumed wins placed says nothing about the region as it is. It does say
                        # something about the later lots of this window: wins are only ever added.
                        suppositions.enter_context(self.refusals.supposing())
                    apply_plan(self._inventory, plan, auction_round.opened_s, lot)
                    assumed.append(lot)
        return RegionResponse(
            round_number=auction_round.number,
            region=self._inventory.region,
            answered_s=now,
            answers=tuple(answers),
            assumed_wins=tuple(lot.workload.workload for lot in assumed),
            gpus=outline.gpus,
            cpus=outline.cpus,
            idle=outline.idle,
            tenants_apart=self.tenants_apart,
            # What is kept for a gang is open to whom it is kept for, and to what says that it ends before.
            alike=() if self.tenants_apart or self._inventory.reserved else first_alike(auction_round.lots_to_answer),
        )

    def _place(self, won: Sequence[Lot], planned_s: float) -> None:
        for lot in won:
            _, plan = self._answer_lot(lot, planned_s, assumes_wins=True)
            if plan is None:
                raise PlaceLost(f"{self.region} has no place any more for {lot.workload.workload}, which it has won")
            apply_plan(self._inventory, plan, planned_s, lot)

    def plan_alone(self, lot: Lot, now: float) -> Plan | None:
        """The plan of the bid for one lot on the inventory as it is; None when the region does not bid.

        What a window of one lot would come to, for a workload whose auction the region does not abandon, and of which
        `refusals` knows nothing.
        """
        self._inventory.pass_time(now)
        workload, standing, within_quota = lot.workload, lot.position.standing, lot.position.within_quota
        plan = plan_or_no_place(self._inventory, workload, standing, now, within_quota=within_quota)
        if not isinstance(plan, Plan):
            self.refusals.remember(workload, standing, plan, now, within_quota=within_quota)
            return None
        return self._with_hint(plan, workload.specification)

    def answer_alone(self, lot: Lot, now: float) -> Answer:
        """The answer to one lot on the inventory as it is, with its diagnosis or its summary."""
        self._inventory.pass_time(now)
        return self._answer_lot(lot, now, assumes_wins=False)[0]

    def abandons(self, specification: WorkloadSpecification) -> Abandoned | None:
        """Why the region would leave the auction of such a workload without planning; None when it would plan."""
        return abandonment(self._empty_region, specification, self._catalog)

    def confirm(self, won: Sequence[Lot], now: float, start: StartWith | None = None) -> tuple[Confirmation, ...]:
        """Plans and places what the region won, in queue order: see `confirm_wins`.

        What is known of refusals stays right: what is placed only takes capacity, and what is being evicted stays charged
        until it is released.
        """
        return confirm_wins(self._inventory, self._empty_region, self._catalog, won, now, start)

    def withdraw(self, confirmations: Sequence[Confirmation]) -> bool:
        """Undoes what `confirm` has done: see `withdraw_wins`."""
        return withdraw_wins(self._inventory, confirmations)

    def _answer_lot(self, lot: Lot, planned_s: float, *, assumes_wins: bool) -> tuple[Answer, Plan | None]:
        """The answer to one lot on the inventory as it is at this point of the window, with the plan of a bid.

        A refusal by the region as it is also holds with assumed wins placed: a placed win takes free capacity, and
        turns victims into attempts that are leaving, whose capacity counts as taken. Both only take away from what a
        later lot could use. Lots of the same window are no victims of each other by their standing, for they are in queue order; what
        leaves its cells to a later lot's owner counts as taken, too.
        """
        try:
            return self._answer_or_raise(lot, planned_s, assumes_wins=assumes_wins)
        except Exception as error:
            if not self._inventory.faults.contained:
                raise
            failed = planning_failed(self._inventory, lot.workload.workload, error, planned_s)
            return NoPlan(failed.diagnosis, failed.sentence, assumes_wins), None

    def _answer_or_raise(self, lot: Lot, planned_s: float, *, assumes_wins: bool) -> tuple[Answer, Plan | None]:
        """The same; an error that does not come from planning itself is raised."""
        abandoned = self.abandons(lot.workload.specification)
        if abandoned is not None:
            return abandoned, None
        if self._inventory.faults.is_set_aside(lot.workload.workload, planned_s):
            failed = set_aside(self._inventory, planned_s)
            return NoPlan(failed.diagnosis, failed.sentence, assumes_wins), None
        position = lot.position
        known = self.refusals.why_it_fails(
            lot.workload, position.standing, planned_s, within_quota=position.within_quota
        )
        if known is not None:
            return self._no_plan(lot, known.refusal, planned_s, assumes_wins=known.supposed), None
        plan = self._plan(lot, planned_s)
        if isinstance(plan, Refusal):
            return self._no_plan(lot, plan, planned_s, assumes_wins=assumes_wins), None
        plan = self._with_hint(plan, lot.workload.specification)
        return Bid(plan.score, summary_of(plan)), plan

    def _with_hint(self, plan: Plan, specification: WorkloadSpecification) -> Plan:
        """The plan with what the slow path thinks of it: of equally good ones that of the region counts in which the last plan
        of homes has the recurring workload run (MAST §6).
        """
        if not self._catalog.expects_elsewhere(self._inventory.region, specification):
            return plan
        return plan._replace(score=plan.score._replace(hint=1))

    def _no_plan(self, lot: Lot, refusal: Refusal, now: float, *, assumes_wins: bool) -> NoPlan:
        position = lot.position
        refusal = in_words_of_cells(
            self._inventory,
            lot.workload.specification,
            refusal,
            position.standing,
            now,
            within_quota=position.within_quota,
        )
        return NoPlan(refusal.diagnosis, refusal.sentence, assumes_wins)

    def _plan(self, lot: Lot, now: float) -> Plan | Refusal:
        """Plans the lot on the inventory as it is, and remembers a refusal."""
        workload, standing, within_quota = lot.workload, lot.position.standing, lot.position.within_quota
        plan = plan_workload(self._inventory, workload, standing, now, within_quota=within_quota)
        if isinstance(plan, Refusal):
            self.refusals.remember(workload, standing, plan, now, within_quota=within_quota)
        return plan


def summary_of(plan: Plan) -> PlanSummary:
    """The summary of a plan that goes with its bid."""
    return PlanSummary(
        clusters=tuple(sorted({placement.cluster for placement in plan.placements})),
        machines=len({placement.machine for placement in plan.placements}),
        evictions=len(plan.evictions),
    )
