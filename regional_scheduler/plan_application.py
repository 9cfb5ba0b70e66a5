"""Applies plans to the capacity of a region: the same for the service and the simulator, for won lots and for rounds.

An attempt that starts is charged at once, also on capacity that others have yet to leave. What a running attempt gives
up is free at once, too: an attempt that starts there waits until it is really gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from cluster_manager.capacity.errors import UnexpectedHolding
from domain.cells import cells_after
from domain.eviction import evictable_from_s, is_spared
from domain.machine_life_cycle import MachineHappening, next_machine_state
from domain.placement import Holding
from domain.placement_changes import placements_after
from domain.plan import (
    Action,
    Downgrade,
    Evict,
    Migrate,
    Plan,
    Reclaim,
    Restore,
    Retune,
    ScaleIn,
    ScaleOut,
    Start,
    execute,
)
from domain.rank import Standing
from domain.tenant import HIGHEST_PRIORITY
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.rounds import Lot

RESERVED = Standing(HIGHEST_PRIORITY, 0)
"""At which the place of a migrating attempt is kept: none is strictly better, so nothing makes it a victim."""


def apply_plan(inventory: RegionCapacity, plan: Plan, now: float, lot: Lot | None = None) -> None:
    """Does to the region's capacity what the plan says. `lot` is what a `Start` starts: only such a plan needs it.

    Raises InventoryError, MachineTransitionRefused or ImpossibleAction when an action is not possible. Then those
    before it were applied: a caller that does not know that all are possible tries them first, in
    `RegionCapacity.tentatively`.
    """
    apply_actions(inventory, plan.actions, now, lot)


def apply_actions(inventory: RegionCapacity, actions: Iterable[Action], now: float, lot: Lot | None = None) -> None:
    """As `apply_plan`, for actions that are of no plan for one workload: a lender's."""
    execute(actions, _CapacityExecution(inventory, now, lot))


class _CapacityExecution:
    """Charges and gives back."""

    __slots__ = ("_inventory", "_lot", "_now")

    def __init__(self, inventory: RegionCapacity, now: float, lot: Lot | None) -> None:
        self._inventory = inventory
        self._now = now
        self._lot = lot

    def start(self, action: Start) -> None:
        if self._lot is None:
            raise ValueError("a plan that starts a workload is applied for its lot")
        lot, now = self._lot, self._now
        rule, standing = self._inventory.rule, lot.position.standing
        from_s = evictable_from_s(rule, now, None, lot.preempted_s)
        spared = is_spared(rule, guaranteed=lot.position.within_quota)
        specification = lot.workload.specification
        cells, base_tasks, tenant = action.cells, specification.base_tasks, specification.tenant
        self._inventory.hold(
            Holding(
                lot.key,
                standing,
                now,
                action.placements,
                from_s,
                spared,
                cells,
                base_tasks,
                tenant,
                checkpoint_interval_s=specification.checkpoint_interval_s,
            )
        )

    def evict(self, action: Evict) -> None:
        self._inventory.begin_eviction(action.victim)

    def downgrade(self, action: Downgrade) -> None:
        self._replace_cells(action)

    def restore(self, action: Restore) -> None:
        self._replace_cells(action)

    def scale_in(self, action: ScaleIn) -> None:
        self._replace(action)

    def scale_out(self, action: ScaleOut) -> None:
        self._replace(action)

    def retune(self, action: Retune) -> None:
        self._replace(action)

    def migrate(self, action: Migrate) -> None:
        # Its own region may be another one: that lets it leave when it hears of the place that is kept here.
        if self._inventory.holding(action.attempt) is not None:
            self._inventory.begin_eviction(action.attempt)
        self._inventory.hold(Holding(action.attempt.successor, RESERVED, self._now, action.placements))

    def reclaim(self, action: Reclaim) -> None:
        for victim in action.victims:
            self._inventory.begin_eviction(victim)
        for machine in action.machines:
            state = self._inventory.machine_state(machine)
            self._inventory.set_machine_state(machine, next_machine_state(machine, state, MachineHappening.ASKED_BACK))

    def _replace_cells(self, action: Downgrade | Restore) -> None:
        holding = self._inventory.holding(action.attempt)
        if holding is None:
            raise UnexpectedHolding(action.attempt, "holds nothing here")
        self._inventory.replace_cells(action.attempt, cells_after(holding.cells, action.cells))

    def _replace(self, action: ScaleIn | ScaleOut | Retune) -> None:
        holding = self._inventory.holding(action.attempt)
        if holding is None:
            raise UnexpectedHolding(action.attempt, "holds nothing here")
        self._inventory.replace_placements(action.attempt, placements_after(action, holding.placements))
