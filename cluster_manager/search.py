"""The one kernel call per job: every cluster of the region is tried, and the place with the best score is returned.

The parts of the score that differ between the clusters of a region, in the order of importance (design §4): evicted
workloads by priority from 0 on, minus the seconds they have been running, spread, fragmentation. Ties go to the first
cluster of the fleet file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cluster_manager.attempts import AttemptArrays, EntryArrays
from cluster_manager.charging import charge
from cluster_manager.compiled import compiled
from cluster_manager.machines import GPUS, MILLICPUS, FleetArrays, Integers, Reals
from cluster_manager.needs import Needs, new_needs, work_out_needs
from cluster_manager.packing import NONE, Choice, choose_machines
from cluster_manager.preemption import (
    Victims,
    open_clusters,
    scan_candidates,
    spare_needless,
    take_back,
)
from cluster_manager.quality import fragmentation_of, sort_choice, spread_of
from cluster_manager.requests import Request
from domain.rank import Standing
from domain.tenant import LOWEST_PRIORITY

PRIORITIES = LOWEST_PRIORITY + 1
RUNNING_S = PRIORITIES
SPREAD = PRIORITIES + 1
FRAGMENTATION = PRIORITIES + 2
QUALITY_FIELDS = PRIORITIES + 3
"""Fields of a quality: counts by priority, RUNNING_S, SPREAD, FRAGMENTATION; smaller is better, first field first."""
LOAD = QUALITY_FIELDS
"""Behind them, the same for all clusters: the share of the region in use before this job is placed."""


class Workspace(NamedTuple):
    """Arrays that the search writes to: scratch space, and the result."""

    needs: Needs
    trial: Choice
    best: Choice
    victims: Victims
    trial_victims: Integers  # [candidate]
    best_victims: Integers  # [rank] rows of the attempts to evict
    trial_quality: Reals  # [QUALITY_FIELDS]
    best_quality: Reals  # [QUALITY_FIELDS + 1], the last is LOAD


@compiled
def is_better(quality: Reals, than: Reals, first_field: int, end_field: int) -> bool:
    """Whether one quality is strictly better, looking at these fields only."""
    for field in range(first_field, end_field):
        if quality[field] != than[field]:
            return bool(quality[field] < than[field])
    return False


@compiled
def choose_and_judge(
    fleet: FleetArrays, needs: Needs, tiers: int, request: Request, cluster: int, choice: Choice, quality: Reals
) -> int:
    """Chooses machines in the cluster and fills in spread and fragmentation; the number of machines, or NONE."""
    count = choose_machines(fleet, needs, tiers, request, cluster, choice)
    if count != NONE:
        if request.consolidate:
            sort_choice(choice, count)
        quality[SPREAD] = spread_of(fleet, request, choice, count)
        quality[FRAGMENTATION] = fragmentation_of(fleet, needs, request, choice, count)
    return count


@compiled
def keep_best(trial: Choice, best: Choice, count: int, trial_quality: Reals, best_quality: Reals) -> None:
    """Copies the trial over the best."""
    best.machine[:count] = trial.machine[:count]
    best.tasks[:count] = trial.tasks[:count]
    best_quality[:QUALITY_FIELDS] = trial_quality


@compiled
def search_free(
    fleet: FleetArrays, tiers: int, request: Request, first_cluster: int, end_cluster: int, space: Workspace
) -> tuple[int, int]:
    """The best place that evicts nobody: (cluster, number of machines), or (NONE, 0). Exact: NONE means no room."""
    space.trial_quality[:] = 0.0
    best_cluster = NONE
    best_count = 0
    for cluster in range(first_cluster, end_cluster):
        count = choose_and_judge(fleet, space.needs, tiers, request, cluster, space.trial, space.trial_quality)
        if count == NONE:
            continue
        if best_cluster == NONE or is_better(space.trial_quality, space.best_quality, SPREAD, QUALITY_FIELDS):
            keep_best(space.trial, space.best, count, space.trial_quality, space.best_quality)
            best_cluster = cluster
            best_count = count
            if space.best_quality[SPREAD] == 0.0 and space.best_quality[FRAGMENTATION] == 0.0:
                break
    return best_cluster, best_count


@compiled
def judge_victims(attempts: AttemptArrays, victims: Victims, chosen: Integers, now_s: float, quality: Reals) -> None:
    """Fills in the counts by priority and the seconds that the chosen candidates have been running."""
    quality[:] = 0.0
    for candidate in chosen:
        row = victims.row[candidate]
        quality[attempts.priority[row]] += 1.0
        quality[RUNNING_S] -= max(now_s - attempts.started_s[row], 0.0)


@compiled
def place_after_eviction(
    fleet: FleetArrays,
    tiers: int,
    request: Request,
    cluster: int,
    entries: EntryArrays,
    chosen: Integers,
    space: Workspace,
) -> int:
    """Chooses machines in the cluster as if the chosen candidates were gone; the number of machines."""
    victims = space.victims
    for candidate in chosen:
        charge(
            fleet,
            entries.machine,
            entries.amounts,
            entries.gpu_bits,
            victims.first[candidate],
            victims.end[candidate],
            -1,
        )
    count = choose_and_judge(fleet, space.needs, tiers, request, cluster, space.trial, space.trial_quality)
    for candidate in chosen:
        charge(
            fleet,
            entries.machine,
            entries.amounts,
            entries.gpu_bits,
            victims.first[candidate],
            victims.end[candidate],
            1,
        )
    return count


@compiled
def search_evicting(
    fleet: FleetArrays,
    tiers: int,
    request: Request,
    standing: Standing,
    now_s: float,
    attempts: AttemptArrays,
    attempt_count: int,
    entries: EntryArrays,
    first_cluster: int,
    end_cluster: int,
    space: Workspace,
) -> tuple[int, int, int]:
    """The best place with evictions: (cluster, number of machines, number of victims), or (NONE, 0, 0).

    NONE is exact; then `victims.room` says for how many tasks there would be room in each cluster.
    """
    victims = space.victims
    opened = open_clusters(fleet, space.needs, request, first_cluster, end_cluster, space.trial.rack_room, victims)
    scanned, enough = scan_candidates(
        fleet, space.needs, tiers, request, standing, attempts, attempt_count, entries, opened, victims
    )
    best_cluster, best_count, best_victims = NONE, 0, 0
    for cluster in range(first_cluster, end_cluster):
        if enough == 0 or not victims.closed[cluster] or victims.room[cluster] < request.tasks:
            continue
        chosen_count = spare_needless(
            fleet, space.needs, request, attempts, entries, cluster, scanned, victims, space.trial_victims
        )
        chosen = space.trial_victims[:chosen_count]
        for candidate in chosen:
            take_back(fleet, space.needs, request, entries, victims, candidate)
        judge_victims(attempts, victims, chosen, now_s, space.trial_quality)
        if best_cluster != NONE and is_better(space.best_quality, space.trial_quality, 0, SPREAD):
            continue
        count = place_after_eviction(fleet, tiers, request, cluster, entries, chosen, space)
        if best_cluster == NONE or is_better(space.trial_quality, space.best_quality, 0, QUALITY_FIELDS):
            keep_best(space.trial, space.best, count, space.trial_quality, space.best_quality)
            space.best_victims[:chosen_count] = victims.row[chosen]
            best_cluster, best_count, best_victims = cluster, count, chosen_count
    for candidate in range(scanned):
        take_back(fleet, space.needs, request, entries, victims, candidate)
    return best_cluster, best_count, best_victims


@compiled
def share_in_use(fleet: FleetArrays, resource: int) -> float:
    """The share of the region's GPUs (CPUs) in use, on machines that take work; 1 when it has none."""
    idle = 0
    in_service = 0
    for cluster in range(len(fleet.clusters.idle)):
        idle += fleet.clusters.idle[cluster, resource]
        in_service += fleet.clusters.in_service[cluster, resource]
    return 1.0 - idle / in_service if in_service > 0 else 1.0


@compiled
def search(
    fleet: FleetArrays,
    request: Request,
    evicting: bool,
    standing: Standing,
    now_s: float,
    attempts: AttemptArrays,
    attempt_count: int,
    entries: EntryArrays,
    first_cluster: int,
    end_cluster: int,
    space: Workspace,
) -> tuple[int, int, int]:
    """The best place for a job in clusters [first, end): (cluster, number of machines, number of victims).

    With `evicting` victims are sought only when there is no place otherwise. (NONE, 0, 0) means that there is no room,
    exactly. Machines and tasks are the first so many of `space.best`, in machine order; victims the first so many rows
    of `space.best_victims`; the quality is in `space.best_quality`.
    """
    tiers = work_out_needs(fleet, request, space.needs)
    space.best_quality[LOAD] = share_in_use(fleet, GPUS if request.gpus > 0 else MILLICPUS)
    victims = 0
    cluster, count = search_free(fleet, tiers, request, first_cluster, end_cluster, space)
    if cluster == NONE and evicting:
        cluster, count, victims = search_evicting(
            fleet,
            tiers,
            request,
            standing,
            now_s,
            attempts,
            attempt_count,
            entries,
            first_cluster,
            end_cluster,
            space,
        )
    if cluster != NONE:
        sort_choice(space.best, count)
    return cluster, count, victims


def new_workspace(fleet: FleetArrays, attempts: AttemptArrays, entries: EntryArrays) -> Workspace:
    """Arrays large enough for this fleet and as many attempts as fit into these arrays."""
    attempt_rows = len(attempts.order)
    machines = len(fleet.machines.shape)
    racks = len(fleet.racks.shape)
    clusters = len(fleet.clusters.first_rack) - 1
    segments = min(attempt_rows * clusters, len(entries.machine))

    def choice() -> Choice:
        return Choice(*(np.zeros(size, np.int64) for size in (machines, machines, racks, machines, machines, machines)))

    return Workspace(
        needs=new_needs(fleet),
        trial=choice(),
        best=choice(),
        victims=Victims(
            room=np.zeros(clusters, np.int64),
            closed=np.zeros(clusters, np.bool_),
            row=np.zeros(segments, np.int64),
            first=np.zeros(segments, np.int64),
            end=np.zeros(segments, np.int64),
            cluster=np.zeros(segments, np.int64),
            released=np.zeros(segments, np.int64),
            size=np.zeros(segments, np.int64),
        ),
        trial_victims=np.zeros(segments, np.int64),
        best_victims=np.zeros(attempt_rows, np.int64),
        trial_quality=np.zeros(QUALITY_FIELDS, np.float64),
        best_quality=np.zeros(QUALITY_FIELDS + 1, np.float64),
    )
