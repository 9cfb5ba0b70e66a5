"""Resizes and retunes for attempts of which each carries out one change at a time (Lyra §5.2, Synergy §4.2).

Rule: an attempt that is resized is not retuned in the same round. What others are to release and to take becomes one change for each of them, in an order in which each is possible when
those before it are done. What could only be exchanged both ways at once is left out: a later round sees what is free then.

Invariant: every change is possible when those before it are, and no attempt has two.
"""

from __future__ import annotations

from collections.abc import Iterable

from cluster_manager.capacity.errors import InventoryError
from domain.placement import AttemptKey
from domain.placement_changes import ImpossibleAction
from domain.plan import Action, Retune, ScaleIn, ScaleOut, TaskAmounts, TaskName
from regional_scheduler.plan_application import apply_actions
from regional_scheduler.region_capacity import RegionCapacity


def one_change_each(region: RegionCapacity, actions: Iterable[Action], now: float) -> tuple[Action, ...]:
    """The actions with at most one for each attempt; the region is as before. An attempt that is resized is not retuned.

    Raises ImpossibleAction for an attempt that is resized twice.
    """
    others: list[Action] = []
    amounts: dict[AttemptKey, dict[TaskName, TaskAmounts]] = {}
    resized: set[AttemptKey] = set()
    for action in actions:
        if isinstance(action, ScaleIn | ScaleOut):
            if action.attempt in resized:
                raise ImpossibleAction(action.attempt, f"{action.attempt.workload} is resized twice in one round")
            resized.add(action.attempt)
        if not isinstance(action, Retune):
            others.append(action)
        elif action.attempt not in resized:
            amounts.setdefault(action.attempt, {}).update({each.name: each for each in action.amounts})
    waiting = [Retune(key, tuple([of_task[name] for name in sorted(of_task)])) for key, of_task in amounts.items()]
    found: list[Action] = list(others)
    with region.tentatively():
        apply_actions(region, others, now)
        while True:
            possible = [retune for retune in waiting if _applied(region, retune, now)]
            if not possible:
                return tuple(found)
            found += possible
            waiting = [retune for retune in waiting if retune not in possible]


def _applied(region: RegionCapacity, retune: Retune, now: float) -> bool:
    """Whether it is possible; then it is done."""
    try:
        with region.tentatively():
            apply_actions(region, [retune], now)
    except (InventoryError, ImpossibleAction):
        return False
    apply_actions(region, [retune], now)
    return True
