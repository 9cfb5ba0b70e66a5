"""From how many tasks attempts are to have to the actions that do it: what shrinks first, then what grows, and where.

Rule: a job shrinks by its last flexible tasks. Those that grow are placed by decreasing GPUs per task (best fit
decreasing, Lyra §5.3) by the cluster's mechanism, without evictions: where machines are on loan, first on machines
without base tasks, so that flexible tasks are on machines of their own, which go back without a preemption, and only then
anywhere. What finds no room because of how idle GPUs are scattered is asked for no more, and its GPUs are given to others.

Invariant: each action is possible when those before it are; base tasks stay where they are (I2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from cluster_manager.elastic.demand import ElasticDemand
from domain.fleet import MachineState
from domain.identifiers import MachineId
from domain.placement import AttemptKey, TaskPlacement
from domain.plan import ScaleIn, ScaleOut
from domain.scaling import Scaling
from regional_scheduler.adjustment import AdjustableAttempt, Resize
from regional_scheduler.elastic.candidates import ElasticAttempt, elastic_attempts, flexible_gpus, idle_gpus
from regional_scheduler.plan_application import apply_actions
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.requested_plans import place_in

Allocate: TypeAlias = Callable[[Sequence[ElasticDemand], int], Mapping[AttemptKey, int]]
"""How many tasks each is to have of so many GPUs for flexible tasks, or of so many idle ones."""

TRIALS_ONE_BY_ONE = 4
"""How often what found no room is distributed anew while only those that found none are asked for less."""
MOST_TRIALS = 12
"""How often in all: from then on nobody is asked for more whose tasks take what found no room, such as GPUs of one model."""


def resizes(
    region: RegionCapacity,
    attempts: Sequence[AdjustableAttempt],
    scaling: Scaling,
    now: float,
    allocate: Allocate,
    *,
    redistributes: bool,
) -> tuple[Resize, ...]:
    """What makes the attempts as `allocate` says, cluster by cluster, as far as there is room. The region is as before.

    `redistributes`: it is told of the GPUs of all flexible tasks with those that are idle; else of idle ones only.
    """
    actions: list[Resize] = []
    for position, here in elastic_attempts(region, attempts, scaling, now).items():
        gpus = idle_gpus(region, position) + (flexible_gpus(here) if redistributes else 0)
        actions += _resizes_in_cluster(region, position, here, allocate, gpus, now)
    return tuple(actions)


def _resizes_in_cluster(
    region: RegionCapacity, position: int, attempts: Sequence[ElasticAttempt], allocate: Allocate, gpus: int, now: float
) -> tuple[Resize, ...]:
    """The same for attempts that have their tasks in the cluster at this position."""
    most = {one.demand.key: one.demand.most_tasks for one in attempts}
    reached: Mapping[AttemptKey, int] = {}
    for trial in range(MOST_TRIALS):
        wanted = allocate([one.demand.up_to(most[one.demand.key]) for one in attempts], gpus)
        actions, reached = _try(region, position, attempts, wanted, now)
        short = {key: tasks for key, tasks in reached.items() if tasks < wanted[key]}
        if not short:
            return actions
        if trial >= TRIALS_ONE_BY_ONE:
            kinds = {one.job.resources for one in attempts if one.demand.key in short}
            short = {
                one.demand.key: max(reached[one.demand.key], one.demand.tasks)
                for one in attempts
                if one.job.resources in kinds
            }
        most |= short
    # Nobody gives up anything for those that find no room.
    stays = {one.demand.key: max(reached[one.demand.key], one.demand.tasks) for one in attempts}
    actions, _ = _try(region, position, attempts, stays, now)
    return actions


def _try(
    region: RegionCapacity,
    position: int,
    attempts: Sequence[ElasticAttempt],
    wanted: Mapping[AttemptKey, int],
    now: float,
) -> tuple[tuple[Resize, ...], Mapping[AttemptKey, int]]:
    """The actions, and how many tasks each attempt has after them."""
    scale_ins = [
        ScaleIn(one.demand.key, one.flexible[wanted[one.demand.key] - one.demand.tasks :])
        for one in attempts
        if wanted[one.demand.key] < one.demand.tasks
    ]
    growing = [one for one in attempts if wanted[one.demand.key] > one.demand.tasks]
    growing.sort(key=lambda one: (-one.demand.gpus_per_task, one.demand.key))
    added: dict[AttemptKey, tuple[TaskPlacement, ...]] = {one.demand.key: () for one in growing}
    with region.tentatively():
        apply_actions(region, scale_ins, now)
        for closed in _closed_one_after_the_other(region, position) if growing else ():
            more = _grow(region, position, growing, wanted, added, closed, now)
            apply_actions(region, [ScaleOut(key, placements) for key, placements in more.items()], now)
            for key, placements in more.items():
                added[key] += placements
    scale_outs = [ScaleOut(key, placements) for key, placements in added.items() if placements]
    reached = {
        one.demand.key: (
            one.demand.tasks + len(added[one.demand.key]) if one.demand.key in added else wanted[one.demand.key]
        )
        for one in attempts
    }
    return (*scale_ins, *sorted(scale_outs)), reached


def _grow(
    region: RegionCapacity,
    position: int,
    growing: Sequence[ElasticAttempt],
    wanted: Mapping[AttemptKey, int],
    added: Mapping[AttemptKey, tuple[TaskPlacement, ...]],
    closed: Sequence[MachineId],
    now: float,
) -> dict[AttemptKey, tuple[TaskPlacement, ...]]:
    """What each gets beyond `added` while these machines take nothing; the region is as before."""
    found: dict[AttemptKey, tuple[TaskPlacement, ...]] = {}
    with region.tentatively():
        for machine in closed:
            region.set_machine_state(machine, MachineState.DRAINING)
        for one in growing:
            key = one.demand.key
            missing = wanted[key] - one.demand.tasks - len(added[key])
            placements = _place(region, position, one, added[key], missing, now)
            if placements:
                apply_actions(region, [ScaleOut(key, placements)], now)
                found[key] = placements
    return found


def _place(
    region: RegionCapacity,
    position: int,
    one: ElasticAttempt,
    added: Sequence[TaskPlacement],
    missing: int,
    now: float,
) -> tuple[TaskPlacement, ...]:
    """As many of so many more tasks as there is room for, numbered by what is free."""
    counts = region.free_counts(region.kind_of(one.job))
    tasks = missing if counts is None else min(missing, int(counts[position]))
    while tasks > 0:
        job = replace(one.job, tasks=tasks)
        placements = place_in(region, one.attempt, (job,), region.cluster_ids[position], now)
        if placements:
            taken = {placement.task for placement in (*one.attempt.placements, *added)}
            numbers = [number for number in range(one.job.tasks, one.job.greatest_tasks) if number not in taken]
            return tuple([p._replace(task=number) for p, number in zip(placements, numbers, strict=False)])
        tasks //= 2
    return ()


def _closed_one_after_the_other(region: RegionCapacity, position: int) -> tuple[tuple[MachineId, ...], ...]:
    """Which machines take no flexible tasks at first, and in the end: none do not."""
    cluster = region.clusters[position]
    on_loan = [
        machine for machine in cluster.layout.machine_ids if region.machine_state(machine) is MachineState.ON_LOAN
    ]
    if not on_loan:
        return ((),)
    with_base_tasks = {
        placement.machine
        for holding, _ in cluster.held()
        for placement in set(holding.placements).difference(holding.flexible)
    }
    closed = tuple([machine for machine in on_loan if machine in with_base_tasks])
    return (closed, ()) if closed else ((),)
