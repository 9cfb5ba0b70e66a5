"""What the search for a place writes to: allocated once per call, so that nothing below allocates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.attempts import AttemptArrays
from cluster_manager.capacity.tables import ClusterArrays, Integers
from cluster_manager.capacity.task_kinds import Needs
from cluster_manager.kernels.compiled import compiled
from domain.rank import Standing

# Columns of a table of candidates.
CANDIDATE_ROW = 0
CANDIDATE_FIRST = 1
"""Its entries: from here ..."""
CANDIDATE_END = 2
"""... up to here."""
RELEASED = 3
"""Bit t: what it holds on machines of tier t is now added to what is free."""
CANDIDATE_COLUMNS = 4


class Newcomer(NamedTuple):
    """The job for which a place is sought, as kernels take it."""

    tasks: int
    gpus: int  # of each task
    consolidate: bool
    tiers: int
    needs: Needs
    standing: Standing
    now_s: float
    victims_from_priority: int
    guaranteed: bool  # see `domain.eviction.Newcomer`


class Choice(NamedTuple):
    """Machines and the number of tasks on each, one after the other."""

    length: Integers  # [1] how many positions are filled
    machine: Integers  # [position]
    tasks: Integers  # [position]


class KernelScratch(NamedTuple):
    """Results and scratch space."""

    choice: Choice
    # For packing:
    rack_tasks: Integers  # [rack]
    candidate: Integers  # [candidate] a machine of one rack
    room: Integers  # [candidate]
    greatest_after: Integers  # [position]
    # For evictions:
    candidates: Integers  # [candidate, CANDIDATE_ROW | ...]
    victims: Integers  # [position] candidates that are evicted
    # For sorting:
    key: Integers
    order: Integers
    spare: Integers


@compiled
def new_kernel_scratch(cluster: ClusterArrays, attempts: AttemptArrays, tasks: int, evicting: bool) -> KernelScratch:
    """Space to search for one job of so many tasks."""
    machines = min(tasks, len(cluster.state))
    candidates = attempts.live if evicting else 0
    longest = max(machines, cluster.largest_rack, candidates)
    return KernelScratch(
        Choice(np.zeros(1, np.int64), np.empty(machines, np.int64), np.empty(machines, np.int64)),
        np.empty(len(cluster.rack_free), np.int64),
        np.empty(cluster.largest_rack, np.int64),
        np.empty(cluster.largest_rack, np.int64),
        np.empty(cluster.largest_rack, np.int64),
        np.empty((candidates, CANDIDATE_COLUMNS), np.int64),
        np.empty(candidates, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
    )
