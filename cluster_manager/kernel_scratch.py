"""What the search for places writes to: allocated once per call, so that nothing below allocates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.attempts import AttemptArrays
from cluster_manager.capacity.machines import FleetArrays, Integers, Reals
from cluster_manager.capacity.needs import Needs
from cluster_manager.capacity.requests import Request
from cluster_manager.kernels.compiled import compiled
from domain.rank import Standing
from domain.tenant import LOWEST_PRIORITY

# Fields of a quality: the counts of victims by priority, and then these. Smaller is better, the first field first.
RUNNING_S = LOWEST_PRIORITY + 1
SPREAD = LOWEST_PRIORITY + 2
FRAGMENTATION = LOWEST_PRIORITY + 3
SCORE_FIELDS = LOWEST_PRIORITY + 4

# Columns of a table of candidates: an attempt with what it holds in one cluster.
CANDIDATE_ROW = 0
CANDIDATE_FIRST = 1
"""Its entries in the cluster: from here ..."""
CANDIDATE_END = 2
"""... up to here."""
CANDIDATE_CLUSTER = 3
RELEASED = 4
"""Bit t: what it holds on machines of tier t is now added to what is free."""
CANDIDATE_COLUMNS = 5

# Columns of a table of clusters.
ROOM = 0
"""Tasks that find room, with what all candidates that are released in thought would release."""
CLOSED = 1
"""1: nothing more to scan, for there is enough, or could not be even if all were empty."""
CLUSTER_COLUMNS = 2


class Newcomer(NamedTuple):
    """The job for which a place is sought."""

    request: Request
    needs: Needs
    tiers: int
    standing: Standing
    now_s: float


class Choice(NamedTuple):
    """Machines and the number of tasks on each, one after the other."""

    length: Integers  # [1] how many positions are filled
    machine: Integers  # [position]
    tasks: Integers  # [position]


class KernelScratch(NamedTuple):
    """Results and scratch space."""

    trial: Choice
    best: Choice
    trial_score: Reals  # [field]
    best_score: Reals  # [field]
    best_victims: Integers  # [victim] rows
    # For packing:
    rack_room: Integers  # [rack]
    candidate: Integers  # [candidate] a machine of one rack
    room: Integers  # [candidate]
    greatest_after: Integers  # [position]
    # For preemption:
    clusters: Integers  # [cluster, ROOM | CLOSED]
    candidates: Integers  # [candidate, CANDIDATE_ROW | ...]
    mine: Integers  # [position] candidates in one cluster
    # For sorting:
    key: Integers
    order: Integers
    spare: Integers


@compiled
def new_kernel_scratch(fleet: FleetArrays, attempts: AttemptArrays, tasks: int, evicting: bool) -> KernelScratch:
    """Space to search for jobs of at most so many tasks."""
    machines = min(tasks, len(fleet.state))
    candidates = min(attempts.live * len(fleet.cluster_room), len(attempts.entries)) if evicting else 0
    longest = max(machines, fleet.largest_rack, candidates)
    return KernelScratch(
        Choice(np.zeros(1, np.int64), np.empty(machines, np.int64), np.empty(machines, np.int64)),
        Choice(np.zeros(1, np.int64), np.empty(machines, np.int64), np.empty(machines, np.int64)),
        np.zeros(SCORE_FIELDS, np.float64),
        np.zeros(SCORE_FIELDS, np.float64),
        np.empty(attempts.live, np.int64),
        np.empty(len(fleet.racks), np.int64),
        np.empty(fleet.largest_rack, np.int64),
        np.empty(fleet.largest_rack, np.int64),
        np.empty(fleet.largest_rack, np.int64),
        np.zeros((len(fleet.cluster_room), CLUSTER_COLUMNS), np.int64),
        np.empty((candidates, CANDIDATE_COLUMNS), np.int64),
        np.empty(candidates, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
    )
