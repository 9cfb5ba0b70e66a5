"""Moves of whole groups of tables to the region that is best for them together, group after group.

Rule: a group goes to the region with the lowest cost among those that are legal and can be copied to, and stays where no
region is better. The tables of one training job are a group: where they lie in three regions, no single first step
gains anything, but all steps together may. A community of tables that are read together is another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from data_placement.objective.group_moves import MOST_PAIRS, GroupScratch, pairs_of, price_group
from data_placement.objective.placement_state import Change, PlacementState, Scratch, apply_move
from data_placement.objective.problem import PlacementProblem
from data_placement.solvers.copying import CopyingBudget, charge, exceeded
from data_placement.solvers.moves import Ledger
from data_placement.solvers.single_moves import LEAST_GAIN
from domain.warehouse import Indices, Integers
from kernels.compiled import compiled, compiled_part


class Groups(NamedTuple):
    """Groups of tables: group g has the tables `tables[start[g] : start[g + 1]]`, each once."""

    start: Integers
    tables: Indices
    order: Integers
    """In which order to move them"""


class GroupRoom(NamedTuple):
    """The tables of a group that are not at a target yet, and where they are."""

    tables: Indices
    sources: Indices
    targets: Indices


def room_for(groups: Groups, together: int = 1) -> GroupRoom:
    """Room for so many of the largest of the groups together."""
    largest = together * int(np.diff(groups.start).max(initial=0))
    return GroupRoom(np.zeros(largest, np.int32), np.zeros(largest, np.int32), np.zeros(largest, np.int32))


def groups_of_jobs(problem: PlacementProblem) -> Groups:
    """The tables of each training job that reads several; the most important first."""
    several = np.diff(problem.table_start) > 1
    jobs = np.flatnonzero(problem.training & several)
    return Groups(
        problem.table_start,
        problem.tables,
        jobs[np.lexsort((jobs, -problem.gpu_hours[jobs], problem.priority[jobs]))],
    )


def pieces_of_communities(community: Indices, state: PlacementState) -> Groups:
    """The tables of a community that are in one region now are a group; the largest first. `community`: (T,), -1 for none."""
    members = np.flatnonzero(community >= 0)
    piece = community[members].astype(np.int64) * len(state.stored) + state.home[members]
    order = np.argsort(piece, kind="stable")
    _, first = np.unique(piece[order], return_index=True)
    start = np.append(first, len(members)).astype(np.int64)
    return Groups(start, members[order].astype(np.int32), np.argsort(-np.diff(start), kind="stable"))


def no_groups() -> Groups:
    """Nothing to move."""
    return Groups(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64))


@compiled_part
def not_there_yet(
    problem: PlacementProblem, state: PlacementState, groups: Groups, number: int, room: GroupRoom, target: int
) -> int:
    """Fills the room with what is to move to the target; returns how many, none if they are read too often."""
    moving = 0
    pairs = 0
    for place in range(groups.start[number], groups.start[number + 1]):
        table = groups.tables[place]
        if state.home[table] != target:
            room.tables[moving] = table
            room.targets[moving] = target
            pairs += pairs_of(problem, table)
            moving += 1
    return moving if pairs <= MOST_PAIRS else 0


@compiled_part
def take(problem: PlacementProblem, state: PlacementState, budget: CopyingBudget, room: GroupRoom, moving: int) -> bool:
    """Charges the budget for what is in the room; gives everything back, and returns False, where that is too much."""
    for index in range(moving):
        table = room.tables[index]
        room.sources[index] = state.home[table]
        charge(problem, budget, table, room.sources[index], room.targets[index])
    if not exceeded(budget):
        return True
    for index in range(moving - 1, -1, -1):
        charge(problem, budget, room.tables[index], room.targets[index], room.sources[index])
    return False


@compiled_part
def move_together(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    budget: CopyingBudget,
    ledger: Ledger,
    room: GroupRoom,
    moving: int,
    change: Change,
) -> bool:
    """Moves what is in the room, which changes so much, if the budget allows it; the tables share the gain equally."""
    if not take(problem, state, budget, room, moving):
        return False
    for index in range(moving):
        table = room.tables[index]
        apply_move(problem, state, scratch, table, room.targets[index])
        ledger.clock[0] += 1
        ledger.order[table] = ledger.clock[0]
        ledger.reads[table] -= change.reads / moving
        ledger.gpu[table] -= change.gpu / moving
        ledger.storage[table] -= change.storage / moving
    return True


@compiled
def gather_groups(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    group: GroupScratch,
    budget: CopyingBudget,
    ledger: Ledger,
    groups: Groups,
    room: GroupRoom,
    first: int,
    last: int,
) -> int:
    """Moves these of the groups, by their places in the order, to their best regions; returns how many moved."""
    moved = 0
    for place in range(first, last):
        number = groups.order[place]
        best = -1
        least = -LEAST_GAIN
        gained = Change(0.0, 0.0, 0.0, 0.0, True)
        for target in range(len(state.stored)):
            moving = not_there_yet(problem, state, groups, number, room, target)
            if moving == 0:
                continue
            change = price_group(problem, state, scratch, group, room.tables, room.targets, moving)
            cost = change.reads + change.gpu + change.storage
            if change.legal and cost < least:
                least = cost
                best = target
                gained = change
        if best < 0:
            continue
        moving = not_there_yet(problem, state, groups, number, room, best)
        if move_together(problem, state, scratch, budget, ledger, room, moving, gained):
            moved += 1
    return moved
