"""With how much CPU and memory workloads ask and start, where the policy shares these out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

from domain.identifiers import JobName
from domain.placement import AttemptKey
from domain.workload import WorkloadSpecification
from regional_scheduler.asked_amounts import AskedAmounts
from regional_scheduler.static_asks import StaticAsks, has_static_demands
from regional_scheduler.tuned_start import tuned_start
from regional_scheduler.tuning import is_tunable
from regional_scheduler.tuning_reverts import AboveProportionalShare
from simulator.engine.regions import Win
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World

Ask: TypeAlias = Callable[[WorkloadSpecification], WorkloadSpecification]
Dispatch: TypeAlias = Callable[[SimulatedWorkload, Win], None]


def tuned_asks(world: World) -> Ask:
    """What workloads ask for instead of what they say: their best demand where a mechanism has static demands; else what
    they say, and their proportional share where that is open."""
    mechanism = world.policy.tuning
    if mechanism is None or not has_static_demands(mechanism):
        return _as_said
    asks, speed = StaticAsks(mechanism, world.fleet), world.speed
    return lambda specification: asks.of(specification, speed.profiles_of(specification))


def tuned_dispatch(world: World, dispatch: Dispatch) -> Dispatch:
    """Dispatches with the amounts with which a workload starts (`regional_scheduler.tuned_start`)."""
    mechanism = world.policy.tuning
    if mechanism is None or not mechanism.reverts_others:
        return dispatch
    asked = AskedAmounts(mechanism, world.fleet)

    def tuned(work: SimulatedWorkload, win: Win) -> None:
        inventory = world.regions.members[win.region].inventory
        profiles = world.speed.profiles_of(work.workload.specification)
        inventory.voluntary.will_begin(win.lot.key)
        plan = tuned_start(inventory, win.plan, win.lot, profiles, asked, world.clock.now())
        dispatch(work, win._replace(plan=plan))

    return tuned


def add_reverts(world: World) -> None:
    """Has regions plan with what tuned attempts hold beyond their proportional shares, where the mechanism takes it back."""
    mechanism = world.policy.tuning
    if mechanism is None or not mechanism.reverts_others:
        return

    def tunable_jobs(attempt: AttemptKey) -> Collection[JobName]:
        work = world.by_name.get(attempt.workload)
        if work is None:
            return ()
        specification = work.workload.specification
        profiles = world.speed.profiles_of(specification)
        return [job.name for job in specification.jobs if is_tunable(job, profiles)] if profiles else ()

    source = AboveProportionalShare(world.speed.shares, tunable_jobs)
    for member in world.regions.members:
        member.inventory.voluntary.add_source(source)


def _as_said(specification: WorkloadSpecification) -> WorkloadSpecification:
    return specification
