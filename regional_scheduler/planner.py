"""Plans one workload in one region: every job in every cluster, with evictions only where it must be (MAST §4.3).

Rule: the jobs are placed one after the other, the most demanding first, each in the cluster where its score is best,
with the earlier ones charged. A job that finds no place then goes first in another try, at most once each. First
without evictions; if that fails, jobs that find no place otherwise evict. Victims that turn out needless once all
jobs have their clusters are spared.

Invariant: the plan places every task or there is none (I2), never beyond what is free and what its victims release
(I1), and evicts only attempts of strictly worse standing (I5). A workload of one job is refused only when it fits in
no cluster with every possible victim gone.

Ignores: that several jobs might fit in clusters that are not the best for each; that case may be refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster_manager.attempts import order_key
from cluster_manager.draft import Draft, Grant, Place
from cluster_manager.inventory import Inventory
from cluster_manager.requests import Request, request_of
from domain.placement import AttemptKey, Holding, Plan, Score, TaskPlacement
from domain.rank import Standing
from domain.tenant import LOWEST_PRIORITY
from domain.workload import JobSpecification, Workload
from regional_scheduler.explaining import no_room_alone, no_room_together
from regional_scheduler.gpu_indices import indices_of
from regional_scheduler.refusal import Refusal, RefusalReason

__all__ = ["Refusal", "RefusalReason", "plan_workload"]

SCALES_NOTHING, PREEMPTS = 0, 2


@dataclass(frozen=True, slots=True)
class _Demand:
    """A job of the workload: at which position it was submitted, and what it asks for."""

    position: int
    job: JobSpecification
    request: Request


@dataclass(frozen=True, slots=True)
class _Failure:
    """Which job found no place; alone, when nothing else of the workload was placed before it."""

    demand: _Demand
    alone: bool


def plan_workload(inventory: Inventory, workload: Workload, standing: Standing, now: float) -> Plan | Refusal:
    """The plan of the best score found for the whole workload, or why there is none. The inventory is as before.

    `now` (seconds since the epoch) only says how long victims have been running. Raises ValueError for a job that asks
    for no tasks, for negative amounts, or for neither GPUs nor a stated amount of CPUs and memory.
    """
    demands = _most_demanding_first(inventory, workload.specification.jobs)
    draft = inventory.draft()
    try:
        outcome = _place_all(draft, demands, standing, now, evicting=False)
        if isinstance(outcome, _Failure):
            outcome = _place_all(draft, demands, standing, now, evicting=True)
        if isinstance(outcome, _Failure):
            return _refusal(inventory, draft, outcome, standing)
        if sum(bool(grant.place.victims) for _, grant in outcome) > 1:
            outcome = _spare_needless(draft, outcome, standing, now)
        victims = tuple(draft.holding_of(row) for row in draft.lifted)
        return _plan(inventory, workload, outcome, victims, now)
    finally:
        draft.undo()


def _most_demanding_first(inventory: Inventory, jobs: Sequence[JobSpecification]) -> list[_Demand]:
    """By GPUs, then CPUs, then memory of all tasks; equal ones as submitted."""
    demands = [_Demand(position, job, request_of(inventory.layout, job)) for position, job in enumerate(jobs)]
    if len(demands) > 1:
        demands.sort(
            key=lambda demand: (
                -demand.request.tasks * demand.request.gpus,
                -demand.request.tasks * demand.request.millicpus,
                -demand.request.tasks * demand.request.mebibytes,
                demand.position,
            )
        )
    return demands


def _place_all(
    draft: Draft, demands: Sequence[_Demand], standing: Standing, now: float, *, evicting: bool
) -> list[tuple[_Demand, Grant]] | _Failure:
    """Places all jobs, in another order where one fails; what is placed stays charged, or nothing does."""
    order = list(demands)
    went_first = {order[0].position} if order else set()
    while True:
        granted = _place_in_order(draft, order, standing, now, evicting=evicting)
        if not isinstance(granted, _Failure):
            return granted
        draft.undo()
        if granted.alone or granted.demand.position in went_first:
            return granted
        went_first.add(granted.demand.position)
        order.remove(granted.demand)
        order.insert(0, granted.demand)


def _place_in_order(
    draft: Draft, order: Sequence[_Demand], standing: Standing, now: float, *, evicting: bool
) -> list[tuple[_Demand, Grant]] | _Failure:
    granted: list[tuple[_Demand, Grant]] = []
    for demand in order:
        place = draft.find(demand.request, standing, now, evicting=evicting)
        if place is None:
            return _Failure(demand, alone=not granted)
        for row in place.victims:
            draft.lift(row)
        granted.append((demand, draft.take(place)))
    return granted


def _spare_needless(
    draft: Draft, granted: list[tuple[_Demand, Grant]], standing: Standing, now: float
) -> list[tuple[_Demand, Grant]]:
    """Puts back, the last in the order of eviction first, whoever the jobs can do without in the same clusters."""
    places = [(demand, grant.place) for demand, grant in granted]
    candidates = sorted(draft.lifted, key=lambda row: order_key(draft.holding_of(row)), reverse=True)
    draft.give_back()
    for row in candidates:
        draft.drop(row)
        found = _place_in_same_clusters(draft, places, standing, now)
        draft.give_back()
        if found is None:
            draft.lift(row)
        else:
            places = found
    return [(demand, draft.take(place)) for demand, place in places]


def _place_in_same_clusters(
    draft: Draft, places: Sequence[tuple[_Demand, Place]], standing: Standing, now: float
) -> list[tuple[_Demand, Place]] | None:
    found: list[tuple[_Demand, Place]] = []
    for demand, place in places:
        again = draft.find(demand.request, standing, now, evicting=False, cluster=place.cluster)
        if again is None:
            return None
        draft.take(again)
        found.append((demand, again))
    return found


def _refusal(inventory: Inventory, draft: Draft, failure: _Failure, standing: Standing) -> Refusal:
    if failure.alone:
        return no_room_alone(inventory, failure.demand.job, draft.room_with_evictions(), standing)
    return no_room_together(inventory, failure.demand.job)


def _plan(
    inventory: Inventory,
    workload: Workload,
    granted: Sequence[tuple[_Demand, Grant]],
    victims: Sequence[Holding],
    now: float,
) -> Plan:
    in_submitted_order = sorted(granted, key=lambda pair: pair[0].position)
    return Plan(
        workload=workload.workload,
        region=inventory.region,
        placements=tuple(
            placement for demand, grant in in_submitted_order for placement in _placements(inventory, demand.job, grant)
        ),
        evictions=tuple(sorted((victim.key for victim in victims), key=_by_id)),
        score=_score(
            [grant.place for _, grant in in_submitted_order], sorted(victims, key=lambda v: _by_id(v.key)), now
        ),
    )


def _by_id(key: AttemptKey) -> tuple[str, int]:
    return key.workload, key.attempt


def _score(places: Sequence[Place], victims: Sequence[Holding], now: float) -> Score:
    """The score of the whole plan: localities summed over the jobs, every victim counted once."""
    by_priority = [0] * (LOWEST_PRIORITY + 1)
    for victim in victims:
        by_priority[victim.standing.priority] += 1
    return Score(
        reclaim_class=PREEMPTS if victims else SCALES_NOTHING,
        preempted_by_priority=tuple(by_priority),
        preempted_running_s=0.0 - sum(max(now - victim.started_s, 0.0) for victim in victims),
        spread=sum(place.spread for place in places),
        fragmentation=sum(place.fragmentation for place in places),
        load=max((place.load for place in places), default=0.0),
    )


def _placements(inventory: Inventory, job: JobSpecification, grant: Grant) -> list[TaskPlacement]:
    """The job's tasks, numbered in machine order."""
    place = grant.place
    layout = inventory.layout
    cluster = layout.cluster_ids[place.cluster]
    name = job.name
    placements: list[TaskPlacement] = []
    task = 0
    gpu_bits = grant.task_gpu_bits.tolist()
    for number, tasks, (_, millicpus, mebibytes) in zip(
        place.machines.tolist(), place.tasks_on.tolist(), place.need.tolist(), strict=True
    ):
        machine = layout.machine_ids[number]
        for _ in range(tasks):
            gpus = indices_of(gpu_bits[task])
            placements.append(TaskPlacement(name, task, cluster, machine, gpus, millicpus, mebibytes))
            task += 1
    return placements
