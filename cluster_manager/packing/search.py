"""Kernels that try every cluster of the region for one job and keep the place with the best score.

The parts of the score that differ between the clusters of a region, in the order of importance (design §4): evicted
workloads by priority from 0 on, minus the seconds they have been running, spread, fragmentation. Ties go to the first
cluster of the fleet file.
"""

from __future__ import annotations

from cluster_manager.capacity.attempts import PRIORITY, AttemptArrays
from cluster_manager.capacity.charging import CHARGE, GIVE_BACK, charge
from cluster_manager.capacity.machines import FleetArrays, Reals
from cluster_manager.eviction.victims import open_clusters, scan_candidates, spare_needless, take_back
from cluster_manager.kernel_scratch import (
    CANDIDATE_END,
    CANDIDATE_FIRST,
    CANDIDATE_ROW,
    CLOSED,
    FRAGMENTATION,
    ROOM,
    RUNNING_S,
    SCORE_FIELDS,
    SPREAD,
    KernelScratch,
    Newcomer,
)
from cluster_manager.kernels.compiled import compiled_part, constant
from cluster_manager.packing.best_fit import NONE, choose_machines
from cluster_manager.packing.locality_score import fragmentation_of, sort_choice, spread_of

FIRST_FIELD = constant(0)
FIRST_OF_LOCALITY = constant(SPREAD)
END_FIELD = constant(SCORE_FIELDS)


@compiled_part
def is_better(quality: Reals, than: Reals, first_field: int, end_field: int) -> bool:
    """Whether one quality is strictly better, looking at these fields only."""
    for field in range(first_field, end_field):
        if quality[field] != than[field]:
            return bool(quality[field] < than[field])
    return False


@compiled_part
def choose_and_judge(fleet: FleetArrays, newcomer: Newcomer, cluster: int, space: KernelScratch) -> bool:
    """Fills the trial and its spread and fragmentation from one cluster; False when there is no room."""
    request = newcomer.request
    if not choose_machines(fleet, newcomer, cluster, space):
        return False
    if request.consolidate:
        sort_choice(space.trial, space)
    space.trial_score[SPREAD] = spread_of(fleet, request, space.trial)
    space.trial_score[FRAGMENTATION] = fragmentation_of(fleet, newcomer.needs, request, space.trial)
    return True


@compiled_part
def keep_trial(space: KernelScratch) -> None:
    """The trial is the best so far."""
    space.best.length[0] = space.trial.length[0]
    for position in range(space.trial.length[0]):
        space.best.machine[position] = space.trial.machine[position]
        space.best.tasks[position] = space.trial.tasks[position]
    for field in range(SCORE_FIELDS):
        space.best_score[field] = space.trial_score[field]


@compiled_part
def best_thinkable_spread(newcomer: Newcomer) -> int:
    """No place has less: one rack, and as few machines as the largest ones would do when empty."""
    if not newcomer.request.consolidate:
        return 0
    most_on_one = 1
    for room in newcomer.needs.whole_room:
        most_on_one = max(most_on_one, room)
    return int((newcomer.request.tasks + most_on_one - 1) // most_on_one - 1)


@compiled_part
def search_free(
    fleet: FleetArrays, newcomer: Newcomer, first_cluster: int, end_cluster: int, space: KernelScratch
) -> int:
    """The cluster of the best place that evicts nobody. NONE is exact: there is no room without evictions."""
    best_cluster = NONE
    least_spread = best_thinkable_spread(newcomer)
    for field in range(SCORE_FIELDS):
        space.trial_score[field] = 0.0
    for cluster in range(first_cluster, end_cluster):
        if not choose_and_judge(fleet, newcomer, cluster, space):
            continue
        if best_cluster == NONE or is_better(space.trial_score, space.best_score, FIRST_OF_LOCALITY, END_FIELD):
            best_cluster = cluster
            keep_trial(space)
            if space.best_score[SPREAD] <= least_spread and space.best_score[FRAGMENTATION] <= 0.0:
                break
    return best_cluster


@compiled_part
def judge_victims(attempts: AttemptArrays, count: int, now_s: float, space: KernelScratch) -> None:
    """Fills in the counts by priority and the seconds that the chosen candidates have been running."""
    for field in range(SCORE_FIELDS):
        space.trial_score[field] = 0.0
    for position in range(count):
        row = space.candidates[space.mine[position], CANDIDATE_ROW]
        space.trial_score[attempts.rows[row, PRIORITY]] += 1.0
        space.trial_score[RUNNING_S] -= max(now_s - attempts.started_s[row], 0.0)


@compiled_part
def charge_chosen(fleet: FleetArrays, attempts: AttemptArrays, count: int, sign: int, space: KernelScratch) -> None:
    """Charges (sign 1) or gives back (-1) what the chosen candidates hold in their cluster, summaries included."""
    for position in range(count):
        candidate = space.mine[position]
        first, end = space.candidates[candidate, CANDIDATE_FIRST], space.candidates[candidate, CANDIDATE_END]
        charge(fleet, attempts.entries, first, end, sign)


@compiled_part
def search_evicting(
    fleet: FleetArrays,
    newcomer: Newcomer,
    attempts: AttemptArrays,
    first_cluster: int,
    end_cluster: int,
    space: KernelScratch,
) -> tuple[int, int]:
    """The cluster of the best place for a job that finds none without evictions, and the number of victims.

    NONE is exact: there is no room with evictions either. Then `clusters` says how much there would be.
    """
    open_clusters(fleet, newcomer, first_cluster, end_cluster, space)
    scanned, enough = scan_candidates(fleet, newcomer, attempts, space)
    best_cluster = NONE
    victims = 0
    for cluster in range(first_cluster, end_cluster):
        if enough == 0 or not space.clusters[cluster, CLOSED] or space.clusters[cluster, ROOM] < newcomer.request.tasks:
            continue
        count = spare_needless(fleet, newcomer, attempts, cluster, scanned, space)
        for position in range(count):
            take_back(fleet, newcomer, attempts.entries, space.candidates, space.mine[position])
        judge_victims(attempts, count, newcomer.now_s, space)
        if best_cluster != NONE and is_better(space.best_score, space.trial_score, FIRST_FIELD, FIRST_OF_LOCALITY):
            continue
        charge_chosen(fleet, attempts, count, GIVE_BACK, space)
        choose_and_judge(fleet, newcomer, cluster, space)
        charge_chosen(fleet, attempts, count, CHARGE, space)
        if best_cluster == NONE or is_better(space.trial_score, space.best_score, FIRST_FIELD, END_FIELD):
            best_cluster = cluster
            victims = count
            keep_trial(space)
            for position in range(count):
                space.best_victims[position] = space.candidates[space.mine[position], CANDIDATE_ROW]
    for candidate in range(scanned):
        take_back(fleet, newcomer, attempts.entries, space.candidates, candidate)
    return best_cluster, victims


@compiled_part
def search(
    fleet: FleetArrays,
    newcomer: Newcomer,
    attempts: AttemptArrays,
    evicting: bool,
    first_cluster: int,
    end_cluster: int,
    space: KernelScratch,
) -> tuple[int, int]:
    """The cluster (or NONE) of the best place for a job in clusters [first, end), and the number of victims.

    Evicts only if wanted, and only if it must be. The machines are in `best`, in machine order, the victims in
    `best_victims`, in scan order.
    """
    victims = 0
    cluster = search_free(fleet, newcomer, first_cluster, end_cluster, space)
    if cluster == NONE and evicting:
        cluster, victims = search_evicting(fleet, newcomer, attempts, first_cluster, end_cluster, space)
    if cluster != NONE:
        sort_choice(space.best, space)
    return cluster, victims
