"""Kernels that try every cluster of the region for one job and keep the place with the best score.

The parts of the score that differ between the clusters of a region, in the order of importance (design §4): evicted
workloads by priority from 0 on, minus the seconds they have been running, spread, fragmentation. Ties go to the first
cluster of the fleet file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cluster_manager.attempts import PRIORITY, AttemptArrays
from cluster_manager.charging import CHARGE, GIVE_BACK, charge
from cluster_manager.compiled import compiled_part, constant
from cluster_manager.machines import FleetArrays, Integers, Reals
from cluster_manager.packing import NONE, Choice, choose_machines, new_choice
from cluster_manager.preemption import (
    CANDIDATE_COLUMNS,
    CANDIDATE_END,
    CANDIDATE_FIRST,
    CANDIDATE_ROW,
    CLOSED,
    ROOM,
    Newcomer,
    open_clusters,
    scan_candidates,
    spare_needless,
    take_back,
)
from cluster_manager.quality import fragmentation_of, sort_choice, spread_of
from domain.tenant import LOWEST_PRIORITY

# Fields of a quality: the counts by priority, and then these. Smaller is better, the first field first.
FIRST_FIELD = constant(0)
RUNNING_S = LOWEST_PRIORITY + 1
SPREAD = constant(LOWEST_PRIORITY + 2)
FRAGMENTATION = LOWEST_PRIORITY + 3
QUALITY_FIELDS = constant(LOWEST_PRIORITY + 4)


class Found(NamedTuple):
    """The best place for a job: machines are those of the choice, in machine order."""

    cluster: int  # NONE: there is no room
    choice: Choice
    quality: Reals  # [field]
    victims: Integers  # rows of the attempts to evict, in scan order
    room: Integers  # [cluster] tasks that find room at most, with all evicted; empty unless evictions were sought


@compiled_part
def is_better(quality: Reals, than: Reals, first_field: int, end_field: int) -> bool:
    """Whether one quality is strictly better, looking at these fields only."""
    for field in range(first_field, end_field):
        if quality[field] != than[field]:
            return bool(quality[field] < than[field])
    return False


@compiled_part
def choose_and_judge(fleet: FleetArrays, newcomer: Newcomer, cluster: int, choice: Choice, quality: Reals) -> bool:
    """Chooses machines in the cluster and fills in spread and fragmentation; False when there is no room."""
    request = newcomer.request
    if not choose_machines(fleet, newcomer.needs, request, cluster, choice):
        return False
    if request.consolidate:
        sort_choice(choice)
    quality[SPREAD] = spread_of(fleet, request, choice)
    quality[FRAGMENTATION] = fragmentation_of(fleet, newcomer.needs, request, choice)
    return True


@compiled_part
def best_thinkable_spread(newcomer: Newcomer) -> int:
    """No place has less: one rack, and as few machines as the largest ones would do when empty."""
    if not newcomer.request.consolidate:
        return 0
    most_on_one = max(1, newcomer.needs.whole_room.max())
    return int((newcomer.request.tasks + most_on_one - 1) // most_on_one - 1)


@compiled_part
def search_free(fleet: FleetArrays, newcomer: Newcomer, first_cluster: int, end_cluster: int) -> Found:
    """The best place that evicts nobody. NONE is exact: there is no room without evictions."""
    tasks = newcomer.request.tasks
    trial = new_choice(fleet, tasks)
    best = new_choice(fleet, tasks)
    trial_quality = np.zeros(QUALITY_FIELDS, np.float64)
    best_quality = np.zeros(QUALITY_FIELDS, np.float64)
    best_cluster = NONE
    nobody = np.empty(0, np.int64)
    least_spread = best_thinkable_spread(newcomer)
    for cluster in range(first_cluster, end_cluster):
        if choose_and_judge(fleet, newcomer, cluster, trial, trial_quality) and (
            best_cluster == NONE or is_better(trial_quality, best_quality, SPREAD, QUALITY_FIELDS)
        ):
            trial, best = best, trial
            best_quality[:] = trial_quality
            best_cluster = cluster
            if best_quality[SPREAD] <= least_spread and best_quality[FRAGMENTATION] <= 0.0:
                break
    if best_cluster != NONE:
        sort_choice(best)
    return Found(best_cluster, best, best_quality, nobody, nobody)


@compiled_part
def judge_victims(
    attempts: AttemptArrays, candidates: Integers, chosen: Integers, now_s: float, quality: Reals
) -> None:
    """Fills in the counts by priority and the seconds that the chosen candidates have been running."""
    quality[:] = 0.0
    for candidate in chosen:
        row = candidates[candidate, CANDIDATE_ROW]
        quality[attempts.rows[row, PRIORITY]] += 1.0
        quality[RUNNING_S] -= max(now_s - attempts.started_s[row], 0.0)


@compiled_part
def charge_candidates(fleet: FleetArrays, entries: Integers, candidates: Integers, chosen: Integers, sign: int) -> None:
    """Charges (sign 1) or gives back (-1) what these candidates hold in their cluster, summaries included."""
    for candidate in chosen:
        charge(fleet, entries, candidates[candidate, CANDIDATE_FIRST], candidates[candidate, CANDIDATE_END], sign)


@compiled_part
def search_evicting(
    fleet: FleetArrays, newcomer: Newcomer, attempts: AttemptArrays, first_cluster: int, end_cluster: int
) -> Found:
    """The best place for a job that finds none without evictions. NONE is exact: there is none with them either."""
    tasks = newcomer.request.tasks
    entries = attempts.entries
    clusters = open_clusters(fleet, newcomer, first_cluster, end_cluster)
    most = min(attempts.live * len(clusters), len(entries))
    candidates = np.empty((most, CANDIDATE_COLUMNS), np.int64)
    scanned, enough = scan_candidates(fleet, newcomer, attempts, clusters, candidates)
    trial = new_choice(fleet, tasks)
    best = new_choice(fleet, tasks)
    trial_quality = np.zeros(QUALITY_FIELDS, np.float64)
    best_quality = np.zeros(QUALITY_FIELDS, np.float64)
    best_cluster = NONE
    victims = np.empty(0, np.int64)
    for cluster in range(first_cluster, end_cluster):
        if enough == 0 or not clusters[cluster, CLOSED] or clusters[cluster, ROOM] < tasks:
            continue
        chosen = spare_needless(fleet, newcomer, attempts, cluster, scanned, clusters, candidates)
        for candidate in chosen:
            take_back(fleet, newcomer, entries, candidates, candidate)
        judge_victims(attempts, candidates, chosen, newcomer.now_s, trial_quality)
        if best_cluster != NONE and is_better(best_quality, trial_quality, FIRST_FIELD, SPREAD):
            continue
        charge_candidates(fleet, entries, candidates, chosen, GIVE_BACK)
        choose_and_judge(fleet, newcomer, cluster, trial, trial_quality)
        charge_candidates(fleet, entries, candidates, chosen, CHARGE)
        if best_cluster == NONE or is_better(trial_quality, best_quality, FIRST_FIELD, QUALITY_FIELDS):
            trial, best = best, trial
            best_quality[:] = trial_quality
            best_cluster = cluster
            victims = candidates[:, CANDIDATE_ROW][chosen]
    for candidate in range(scanned):
        take_back(fleet, newcomer, entries, candidates, candidate)
    if best_cluster != NONE:
        sort_choice(best)
    return Found(best_cluster, best, best_quality, victims, clusters[:, ROOM].copy())


@compiled_part
def search(
    fleet: FleetArrays,
    newcomer: Newcomer,
    attempts: AttemptArrays,
    evicting: bool,
    first_cluster: int,
    end_cluster: int,
) -> Found:
    """The best place for a job in clusters [first, end), with evictions only if wanted and only if it must be."""
    found = search_free(fleet, newcomer, first_cluster, end_cluster)
    if found.cluster == NONE and evicting:
        return search_evicting(fleet, newcomer, attempts, first_cluster, end_cluster)
    return found
