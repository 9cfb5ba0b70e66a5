"""Trials in simulations: the skew of a row's model is known once one of its attempts has run for `placement.trial_s`.

Until then the workload is placed as one of unknown skew. What is known then holds for the workload and, where its trace names
the model, for all workloads of its tenant that train this model: in the service, for those of one name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from cluster_manager.capacity.errors import InventoryError
from cluster_manager.skew.spread import most_gpus_of_machines
from domain.life_cycle import State
from domain.placement_changes import ImpossibleAction
from domain.workload import WorkloadSpecification
from formats.trace_workload import model_of
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.requested_plans import AttemptToChange
from regional_scheduler.trial import plan_after_trial
from simulator.engine.attempts import Attempts
from simulator.engine.event_queue import Happens
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World

_Trained: TypeAlias = tuple[int, str, str]
"""Tenant, model, and the workload's name where its trace names no model."""


class Trials:
    """Which skews are known by now. Workloads that were made without theirs are `on_trial` until it is."""

    def __init__(
        self, world: World, attempts: Attempts, learn_skew: Callable[[SimulatedWorkload], None], trial_s: float
    ) -> None:
        """`learn_skew` makes a workload what it is with its skew known."""
        self._world = world
        self._attempts = attempts
        self._learn_skew = learn_skew
        self._trial_s = trial_s
        self._known: set[_Trained] = set()
        self._unknown: dict[_Trained, list[SimulatedWorkload]] = {}
        """Those that have waited since nothing was known of what they train."""
        clusters = [cluster for region in world.fleet.regions for cluster in region.clusters]
        self._most_gpus = most_gpus_of_machines(clusters)

    def comes_to_queue(self, work: SimulatedWorkload) -> None:
        """It is about to wait: by its skew, if that is known by now."""
        if not work.on_trial:
            return
        trained = _trained(work)
        if trained in self._known:
            self._learn_skew(work)
        else:
            self._unknown.setdefault(trained, []).append(work)

    def started(self, work: SimulatedWorkload) -> None:
        """An attempt runs from now on: if nothing was known when it was placed, this is its trial."""
        if work.on_trial:
            now = self._world.clock.now()
            self._world.events.add(now + self._trial_s, Happens.TRIAL_OVER, work.index, work.attempts)

    def completed(self, work: SimulatedWorkload) -> None:
        """It shows nothing any more."""

    def is_over(self, work: SimulatedWorkload, attempt: int) -> None:
        """That attempt has run for so long, if it still runs: the skew is known, and it may go on on fewer machines."""
        if work.attempts != attempt or work.state is not State.RUNNING:
            return
        world, now, placed_as = self._world, self._world.clock.now(), work.workload.specification
        self._learn_skew(work)
        self._others_learn(_trained(work), now)
        inventory = world.regions.members[work.region].inventory
        holding = inventory.holding(work.key)
        if holding is None or self._attempts.change_waits(work):
            return
        running = AttemptToChange(work.key, placed_as, holding.placements, work.within_quota)
        try:
            plan = plan_after_trial(inventory, running, work.workload.specification, self._most_gpus, now)
            with inventory.tentatively():
                apply_plan(inventory, plan, now)
        except (ImpossibleAction, InventoryError):
            return  # It stays: its next start follows its skew.
        self._attempts.carry_out(work.region, plan.actions)

    def _others_learn(self, trained: _Trained, now: float) -> None:
        """Those that wait are asked for by their skew from now on; those that run have trials of their own."""
        self._known.add(trained)
        for work in self._unknown.pop(trained, ()):
            if work.on_trial and work.state is State.PENDING:
                self._world.queue.remove(work)
                self._learn_skew(work)
                self._world.queue.add(work, now)
                self._world.news = True


def _trained(work: SimulatedWorkload) -> _Trained:
    specification: WorkloadSpecification = work.workload.specification
    model = model_of(specification)
    return work.tenant, model, "" if model else specification.name
