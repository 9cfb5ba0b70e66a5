"""Kernels that suppose candidates for eviction gone, one by one, and how large they are."""

from __future__ import annotations

from cluster_manager.capacity.charging import MACHINE
from cluster_manager.capacity.tables import GPUS, MILLICPUS, NO_WORK, WORKS_AS, ClusterArrays, Integers
from cluster_manager.capacity.task_kinds import PREFERRED, TIER
from cluster_manager.eviction.supposed_release import BOTH_TIERS, RELEASE, TAKE_BACK, suppose_released
from cluster_manager.kernel_scratch import CANDIDATE_END, CANDIDATE_FIRST, RELEASED, Newcomer
from kernels.compiled import compiled_part


@compiled_part
def take_back(
    cluster: ClusterArrays, newcomer: Newcomer, entries: Integers, candidates: Integers, candidate: int
) -> int:
    """Ends the supposed release of a candidate; returns the change in room."""
    change, _ = suppose_released(
        cluster,
        newcomer.needs,
        newcomer.tasks,
        entries,
        candidates[candidate, CANDIDATE_FIRST],
        candidates[candidate, CANDIDATE_END],
        candidates[candidate, RELEASED],
        TAKE_BACK,
    )
    candidates[candidate, RELEASED] = 0
    return change


@compiled_part
def release_all(
    cluster: ClusterArrays, newcomer: Newcomer, entries: Integers, candidates: Integers, candidate: int
) -> int:
    """Supposes released what of the candidate is not yet; returns the change in room."""
    change, _ = suppose_released(
        cluster,
        newcomer.needs,
        newcomer.tasks,
        entries,
        candidates[candidate, CANDIDATE_FIRST],
        candidates[candidate, CANDIDATE_END],
        BOTH_TIERS & ~candidates[candidate, RELEASED],
        RELEASE,
    )
    candidates[candidate, RELEASED] = BOTH_TIERS
    return change


@compiled_part
def size_of(cluster: ClusterArrays, newcomer: Newcomer, entries: Integers, candidates: Integers, candidate: int) -> int:
    """How large a candidate is in its cluster: GPUs, or thousandths of a CPU on machines without GPUs."""
    resource = GPUS if newcomer.gpus > 0 else MILLICPUS
    size = 0
    for entry in range(candidates[candidate, CANDIDATE_FIRST], candidates[candidate, CANDIDATE_END]):
        shape = cluster.state[entries[entry, MACHINE], WORKS_AS]
        if shape != NO_WORK and newcomer.needs.table[shape, TIER] == PREFERRED:
            size += entries[entry, resource]
    return size
