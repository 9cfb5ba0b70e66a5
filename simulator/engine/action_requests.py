"""What is asked of running workloads in a simulation, at given times: planned as in the service, and carried out.

What is not possible at its time is left alone, as an operator would be refused; `refused` has the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from cluster_manager.capacity.errors import InventoryError
from domain.identifiers import AttemptNumber
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.placement_changes import ImpossibleAction
from domain.plan import Plan
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.requested_plans import AttemptToChange, plan_migration, plan_resize, plan_retune
from simulator.engine.attempts import Attempts
from simulator.engine.event_queue import Happens
from simulator.engine.world import World
from simulator.inputs.actions import ActionAt, MigrateAt, ResizeAt, RetuneAt


class ActionRequests:
    """Carries out what was asked for when its time has come."""

    def __init__(self, world: World, attempts: Attempts, actions: Sequence[ActionAt]) -> None:
        self.refused: list[tuple[ActionAt, str]] = []
        self._world = world
        self._attempts = attempts
        self._actions = tuple(actions)
        self._positions = {member.region: position for position, member in enumerate(world.regions.members)}

    def begin(self, start_s: float) -> None:
        """Each happens at its time, or at once if that is over."""
        for number, action in enumerate(self._actions):
            self._world.events.add(max(start_s, action.t_s), Happens.ACTION, number)

    def carry_out(self, number: int, now: float) -> None:
        """Plans the request of that number, tries the plan, and carries it out."""
        action = self._actions[number]
        try:
            region, plan = self._plan(action, now)
            inventory = self._world.regions.members[region].inventory
            with inventory.tentatively():
                apply_plan(inventory, plan, now)
        except (ImpossibleAction, InventoryError) as impossible:
            self.refused.append((action, str(impossible)))
        else:
            self._attempts.carry_out(region, plan.actions)

    def _plan(self, action: ActionAt, now: float) -> tuple[int, Plan]:
        work = self._world.by_name.get(action.workload)
        if work is None or work.state is not State.RUNNING:
            raise ImpossibleAction(AttemptKey(action.workload, AttemptNumber(0)), f"{action.workload} does not run")
        if self._attempts.change_waits(work) and not isinstance(action, MigrateAt):
            raise ImpossibleAction(work.key, f"the last change of {action.workload} is not carried out yet")
        here = self._world.regions.members[work.region].inventory
        holding = here.holding(work.key)
        placements = holding.placements if holding is not None else ()
        running = AttemptToChange(work.key, work.workload.specification, placements, work.within_quota)
        match action:
            case ResizeAt():
                return work.region, plan_resize(here, running, action.job, action.tasks, now)
            case RetuneAt():
                return work.region, plan_retune(here, running, action.job, action.cpus, action.memory_gib)
            case MigrateAt():
                to = self._positions[action.region]
                if to not in work.eligible:
                    raise ImpossibleAction(work.key, f"region {action.region} lacks its tables or its hardware")
                return to, plan_migration(self._world.regions.members[to].inventory, running, action.cluster, now)
            case _:
                assert_never(action)
