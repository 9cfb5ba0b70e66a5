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
from typing import TypeAlias

from cluster_manager.capacity.attempts import order_key
from cluster_manager.capacity.inventory import Inventory
from cluster_manager.capacity.requests import Request, request_of
from cluster_manager.packing.placing import Place
from domain.placement import AttemptKey, Holding, Score, TaskPlacement
from domain.plan import PREEMPTS, Action, Evict, Plan, Start
from domain.rank import Standing
from domain.tenant import LOWEST_PRIORITY
from domain.workload import JobSpecification, Workload
from regional_scheduler.explaining import no_room_alone, no_room_together
from regional_scheduler.gpu_indices import indices_of
from regional_scheduler.refusal import Refusal, RefusalReason

__all__ = ["Refusal", "RefusalReason", "plan_workload"]


def plan_workload(inventory: Inventory, workload: Workload, standing: Standing, now: float) -> Plan | Refusal:
    """The plan of the best score found for the whole workload, or why there is none. The inventory is as before.

    `now` (seconds since the epoch) only says how long victims have been running. Raises ValueError for a workload
    without jobs, and for a job that asks for no tasks, for negative amounts, or for neither GPUs nor a stated amount of
    CPUs and memory.
    """
    if not workload.specification.jobs:
        raise ValueError(f"workload {workload.workload} has no jobs")
    if len(workload.specification.jobs) == 1:
        return _plan_one_job(inventory, workload, standing, now)
    demands = _most_demanding_first(inventory, workload.specification.jobs)
    for demand in demands:
        if inventory.finds_nothing(demand.request, standing):
            return no_room_alone(inventory, demand.job, inventory.room_for(demand.request), standing)
    placed = _place_all(inventory, demands, standing, now, evicting=False)
    if isinstance(placed, _Failure):
        placed = _place_all(inventory, demands, standing, now, evicting=True)
    if isinstance(placed, _Failure):
        if placed.alone:
            return no_room_alone(inventory, placed.demand.job, placed.room, standing)
        return no_room_together(inventory, placed.demand.job)
    victims = [row for _, place in placed for row in place.victims]
    if len(placed) > 1 and victims:
        placed, victims = _spare_needless(inventory, placed, victims, standing, now)
    return _plan(inventory, workload, placed, victims, now)


def _plan_one_job(inventory: Inventory, workload: Workload, standing: Standing, now: float) -> Plan | Refusal:
    """The same for the usual case: a job alone evicts only where it finds no place otherwise, and nobody needlessly."""
    job = workload.specification.jobs[0]
    request = request_of(inventory.layout, job)
    if inventory.finds_nothing(request, standing):
        return no_room_alone(inventory, job, inventory.room_for(request), standing)
    place = inventory.find_place(request, standing, now)
    if not isinstance(place, Place):
        return no_room_alone(inventory, job, place, standing)
    victims = sorted((inventory.holding_in_row(row) for row in place.victims), key=lambda victim: _by_id(victim.key))
    return Plan(
        workload=workload.workload,
        region=inventory.region,
        actions=_actions(victims, _placements(inventory, job, place)),
        score=_score([place], victims, now),
    )


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
    room: tuple[int, ...]


_Placed: TypeAlias = list[tuple[_Demand, Place]]


def _most_demanding_first(inventory: Inventory, jobs: Sequence[JobSpecification]) -> list[_Demand]:
    """By GPUs, then CPUs, then memory of all tasks; equal ones as submitted. An open share of CPUs or memory is last."""
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
    inventory: Inventory, demands: Sequence[_Demand], standing: Standing, now: float, *, evicting: bool
) -> _Placed | _Failure:
    """Places all jobs, in another order where one fails."""
    order = list(demands)
    went_first = {order[0].position}
    while True:
        places = inventory.find_places([demand.request for demand in order], standing, now, evicting=evicting)
        if places.all_found:
            return list(zip(order, places.found, strict=True))
        failed = order[len(places.found)]
        alone = not places.found
        if alone or failed.position in went_first:
            return _Failure(failed, alone, places.room)
        went_first.add(failed.position)
        order.remove(failed)
        order.insert(0, failed)


def _spare_needless(
    inventory: Inventory, placed: _Placed, victims: list[int], standing: Standing, now: float
) -> tuple[_Placed, list[int]]:
    """Spares, the last in the order of eviction first, whoever the jobs can do without in the same clusters.

    One job alone never has such a victim. Of several, each sought its victims with the places of the earlier jobs
    given, and before those of the later ones were known.
    """
    demands = [demand for demand, _ in placed]
    requests = [demand.request for demand in demands]
    clusters = [place.cluster for _, place in placed]
    needed = inventory.find_required_victims(requests, clusters, victims)
    candidates = [row for row, must_go in zip(victims, needed, strict=True) if not must_go]
    candidates.sort(key=lambda row: order_key(inventory.holding_in_row(row)), reverse=True)
    spared = bool(candidates)
    while spared:
        spared = False
        for row in candidates:
            fewer = [victim for victim in victims if victim != row]
            places = inventory.find_places(requests, standing, now, evicting=False, clusters=clusters, gone=fewer)
            if places.all_found:
                placed, victims, spared = list(zip(demands, places.found, strict=True)), fewer, True
        candidates = [row for row in candidates if row in victims]
    return placed, victims


def _plan(inventory: Inventory, workload: Workload, placed: _Placed, rows: Sequence[int], now: float) -> Plan:
    victims = sorted((inventory.holding_in_row(row) for row in rows), key=lambda victim: _by_id(victim.key))
    in_submitted_order = sorted(placed, key=lambda pair: pair[0].position)
    placements: list[TaskPlacement] = []
    for demand, place in in_submitted_order:
        placements += _placements(inventory, demand.job, place)
    return Plan(
        workload=workload.workload,
        region=inventory.region,
        actions=_actions(victims, placements),
        score=_score([place for _, place in in_submitted_order], victims, now),
    )


def _actions(victims: Sequence[Holding], placements: Sequence[TaskPlacement]) -> tuple[Action, ...]:
    """Victims first: a newcomer may only be charged beyond what is free where somebody is leaving."""
    return (*[Evict(victim.key) for victim in victims], Start(tuple(placements)))


def _by_id(key: AttemptKey) -> tuple[str, int]:
    return key.workload, key.attempt


def _score(places: Sequence[Place], victims: Sequence[Holding], now: float) -> Score:
    """The score of the whole plan: localities summed over the jobs, every victim counted once."""
    if not victims:
        return Score(
            spread=sum([place.spread for place in places]),
            fragmentation=sum([place.fragmentation for place in places]),
            load=max([place.load for place in places]),
        )
    by_priority = [0] * (LOWEST_PRIORITY + 1)
    for victim in victims:
        by_priority[victim.standing.priority] += 1
    return Score(
        reclaim_class=PREEMPTS,
        preempted_by_priority=tuple(by_priority),
        preempted_running_s=0.0 - sum(max(now - victim.started_s, 0.0) for victim in victims),
        spread=sum(place.spread for place in places),
        fragmentation=sum(place.fragmentation for place in places),
        load=max(place.load for place in places),
    )


def _placements(inventory: Inventory, job: JobSpecification, place: Place) -> list[TaskPlacement]:
    """The job's tasks, numbered in machine order."""
    machine_ids = inventory.layout.machine_ids
    cluster = inventory.layout.cluster_ids[place.cluster]
    name = job.name
    return [
        TaskPlacement(name, task, cluster, machine_ids[machine], indices_of(gpu_bits), millicpus, mebibytes)
        for task, (machine, millicpus, mebibytes, gpu_bits) in enumerate(place.tasks.tolist())
    ]
