"""What becomes of won lots: planned once more on what is confirmed, and placed (design §3.4).

The auction was held on what the region knew when it answered. Machines may have been lost since, or drained, and
what it was about to use may have been taken by a resize. So the winner plans each won lot again, in queue order, on
its inventory as it is now, and places it at once; what no longer fits goes back to the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from data_placement.catalog import Catalog
from domain.diagnosis import Diagnosis, Reason
from domain.placement import AttemptKey, Holding
from domain.plan import Evict, Plan, Retune, ScaleIn, Start
from regional_scheduler.eligibility import abandonment
from regional_scheduler.hosting import EmptyRegion
from regional_scheduler.needless_victims import needless_victims
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.planner import plan_workload
from regional_scheduler.refusal import Refusal, planning_failed
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.rounds import Abandoned, Lot


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Start this attempt: carry out the plan. The inventory already has it so."""

    lot: Lot
    plan: Plan
    needless: tuple[AttemptKey, ...] = ()
    """Victims that could have stayed: always none, unless planning is wrong."""
    before: tuple[Holding, ...] = ()
    """What attempts held that go on with less for it, before they did."""


@dataclass(frozen=True, slots=True)
class DispatchRefused:
    """The workload goes back to the queue; nothing was placed or evicted for it."""

    lot: Lot
    diagnosis: Diagnosis
    """Data that left the region, hardware that changed, or room that is gone since the auction."""
    sentence: str


Confirmation = Dispatch | DispatchRefused
StartWith: TypeAlias = Callable[[Plan, Lot], Plan]


def confirm_wins(
    inventory: RegionCapacity,
    empty_region: EmptyRegion,
    catalog: Catalog,
    won: Sequence[Lot],
    now: float,
    start: StartWith | None = None,
) -> tuple[Confirmation, ...]:
    """Plans and places the lots that the region won, in queue order; one confirmation for each of them. `start` makes of
    a plan the one with the CPUs and memory with which the workload starts; None: as planned.

    Changes the inventory: a dispatched attempt is held from `now` on, its victims are being evicted. A lot that is
    refused changes nothing. Raises ValueError when the lots are not in queue order: another order would be another
    outcome (I11).
    """
    keys = [lot.position.sort_key for lot in won]
    if any(earlier >= later for earlier, later in pairwise(keys)):
        raise ValueError(f"won lots of region {inventory.region} must come in queue order")
    return tuple(_confirm(inventory, empty_region, catalog, lot, now, start) for lot in won)


def withdraw_wins(inventory: RegionCapacity, confirmations: Sequence[Confirmation]) -> bool:
    """Undoes what `confirm_wins` has done, when nothing else has happened since; whether it did.

    False, and nothing is changed, when a plan does anything but start an attempt and have others leave or go on with less for it.
    """
    plans = [confirmation.plan for confirmation in confirmations if isinstance(confirmation, Dispatch)]
    undone = Start | Evict | ScaleIn | Retune
    if not all(isinstance(action, undone) for plan in plans for action in plan.actions):
        return False
    # The newcomers first: what they were given overlaps with what their victims get back.
    for confirmation in confirmations:
        if isinstance(confirmation, Dispatch):
            inventory.release(confirmation.lot.key)
    for victim in [victim for plan in plans for victim in plan.evictions]:
        holding = inventory.holding(victim)
        if holding is not None:
            changing = inventory.voluntary.is_changing(victim)
            inventory.release(victim)
            inventory.hold(holding)
            if changing:
                inventory.voluntary.begins_change(victim)
    for confirmation in reversed(confirmations):
        for holding in confirmation.before if isinstance(confirmation, Dispatch) else ():
            inventory.replace_placements(holding.key, holding.placements)
            inventory.voluntary.change_carried_out(holding.key)
    return True


def _scaled_or_tuned(inventory: RegionCapacity, plan: Plan) -> tuple[Holding, ...]:
    """What the attempts hold that the plan has go on with less."""
    keys = {action.attempt for action in plan.actions if isinstance(action, ScaleIn | Retune)}
    return tuple([holding for key in sorted(keys) if (holding := inventory.holding(key)) is not None])


def _confirm(
    inventory: RegionCapacity,
    empty_region: EmptyRegion,
    catalog: Catalog,
    lot: Lot,
    now: float,
    start: StartWith | None,
) -> Confirmation:
    try:
        plan = _plan(inventory, empty_region, catalog, lot, now, start)
    except Exception as error:
        if not inventory.faults.contained:
            raise
        plan = planning_failed(inventory, lot.workload.workload, error, now)
    if not isinstance(plan, Plan):
        if plan.diagnosis.reason is Reason.PLANNING_FAILED:
            inventory.faults.set_aside(lot.workload.workload, now)
        return DispatchRefused(lot, plan.diagnosis, plan.sentence)
    before = _scaled_or_tuned(inventory, plan)
    apply_plan(inventory, plan, now, lot)
    return Dispatch(lot, plan, _needless(inventory, lot, plan), before)


def _plan(
    inventory: RegionCapacity,
    empty_region: EmptyRegion,
    catalog: Catalog,
    lot: Lot,
    now: float,
    start: StartWith | None,
) -> Plan | Refusal | Abandoned:
    abandoned = abandonment(empty_region, lot.workload.specification, catalog)
    if abandoned is not None:
        return abandoned
    plan = plan_workload(inventory, lot.workload, lot.position.standing, now, within_quota=lot.position.within_quota)
    return start(plan, lot) if isinstance(plan, Plan) and start is not None else plan


def _needless(inventory: RegionCapacity, lot: Lot, plan: Plan) -> tuple[AttemptKey, ...]:
    """What looks back at a plan that was applied cannot undo it."""
    try:
        return needless_victims(inventory, lot.key, plan)
    except Exception as error:
        if not inventory.faults.contained:
            raise
        inventory.faults.planning_failed(lot.workload.workload, error)
        return ()
