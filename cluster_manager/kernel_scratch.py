"""What the search for a place writes to: allocated once per call, so that nothing below allocates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.tables import Integers
from cluster_manager.capacity.task_kinds import Needs
from domain.rank import Standing
from kernels.compiled import compiled

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
    guaranteed: bool  # see `domain.eviction.Evictor`
    fills: bool  # rather on machines that are partly taken
    spares_work: bool  # see `domain.eviction.VictimChoice`
    restart_cost_s: float


class Choice(NamedTuple):
    """Machines and the number of tasks on each, one after the other."""

    length: Integers  # [1] how many positions are filled
    machine: Integers  # [position]
    tasks: Integers  # [position]


class KernelScratch(NamedTuple):
    """Results and scratch space, for one cluster after the other."""

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
    # For the choice of victims that spares work:
    cost: Integers  # [candidate] units of work that its eviction destroys
    gain: Integers  # [candidate] for how many tasks more there may be capacity at most when it goes
    ratio: Integers  # [candidate] the units for each of these tasks, rounded down
    least_ratio_after: Integers  # [place in `pool`] the least of the ratios from there on
    pool: Integers  # [place] candidates between which is chosen, the dearest first
    best: Integers  # [place in `pool`] 1 where it leaves in the best choice so far
    chosen: Integers  # [place in `pool`] UNDECIDED, STAYS or LEAVES


class ScratchSizes(NamedTuple):
    """How much space a search needs: the most of what any of its clusters has."""

    machines: int  # to be chosen
    racks: int
    largest_rack: int  # in machines
    attempts: int  # 0 where none is evicted
    all_attempts: int  # of all clusters together
    work: int  # the attempts once more where work is spared, else 0


@compiled
def new_choice(machines: int) -> Choice:
    """An empty choice of so many machines at most."""
    return Choice(np.zeros(1, np.int64), np.empty(machines, np.int64), np.empty(machines, np.int64))


@compiled
def new_kernel_scratch(sizes: ScratchSizes) -> KernelScratch:
    """Space to search for one job in clusters of such sizes, one after the other."""
    longest = max(sizes.machines, sizes.largest_rack, sizes.attempts)
    return KernelScratch(
        new_choice(sizes.machines),
        np.empty(sizes.racks, np.int64),
        np.empty(sizes.largest_rack, np.int64),
        np.empty(sizes.largest_rack, np.int64),
        np.empty(sizes.largest_rack, np.int64),
        np.empty((sizes.all_attempts, CANDIDATE_COLUMNS), np.int64),
        np.empty(sizes.all_attempts, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty(sizes.work, np.int64),
        np.empty(sizes.work, np.int64),
        np.empty(sizes.work, np.int64),
        np.empty(sizes.work, np.int64),
        np.empty(sizes.work, np.int64),
        np.empty(sizes.work, np.int64),
        np.empty(sizes.work, np.int64),
    )


@compiled
def of_candidates(space: KernelScratch, first: int, end: int) -> KernelScratch:
    """The same space, with these places for candidates and victims only."""
    return KernelScratch(
        space.choice,
        space.rack_tasks,
        space.candidate,
        space.room,
        space.greatest_after,
        space.candidates[first:end],
        space.victims[first:end],
        space.key,
        space.order,
        space.spare,
        space.cost,
        space.gain,
        space.ratio,
        space.least_ratio_after,
        space.pool,
        space.best,
        space.chosen,
    )
