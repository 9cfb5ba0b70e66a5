"""Chains of moves, of which the first ones make room for the others, or need it.

Rule: a group of tables goes to each region, gain or none; then whatever lowers the cost of the whole chain most goes where it does
so, until the chain has its greatest length. The best chain that gains and is legal moves at once (Kernighan and Lin's way, of
1970, to divide graphs). A quota that is used up, or a group that would overload where it goes, holds single moves back for ever.

Groups are single tables, and the tables of one training job. Each is tried after each, so only the weightiest take part: those
on which most of the objective and of the quotas hangs. In a small warehouse these are all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from data_placement.objective.group_moves import MOST_PAIRS, GroupScratch, pairs_of, price_group
from data_placement.objective.placement_state import Change, PlacementState, Scratch
from data_placement.objective.problem import TINY, PlacementProblem
from data_placement.solvers.copying import CopyingBudget
from data_placement.solvers.gathering import GroupRoom, Groups, groups_of_jobs, move_together
from data_placement.solvers.moves import Ledger
from data_placement.solvers.single_moves import LEAST_GAIN
from domain.warehouse import Floats, Indices
from kernels.compiled import compiled, compiled_part

LONGEST = 5
"""Groups in a chain"""
_MOST_WORK = 200_000_000
"""Pairs of a job and a table that are looked at in a pass: some seconds, however large the warehouse is."""
_IN_CHAIN = -1


def weightiest_groups(problem: PlacementProblem) -> Groups:
    """Single tables and the tables of training jobs, the weightiest first, as many as can be tried with each other."""
    tables, jobs = len(problem.table_bytes), groups_of_jobs(problem)
    stake = _stakes(problem)
    lengths = np.diff(problem.table_start)[jobs.order]
    first = problem.table_start[jobs.order] - np.cumsum(lengths) + lengths
    places = np.repeat(first, lengths) + np.arange(lengths.sum())
    members = problem.tables[places]
    of_job = np.repeat(np.arange(len(lengths)), lengths)
    job_stake = np.bincount(of_job, weights=stake[members], minlength=len(lengths))
    all_stakes = np.concatenate([stake, job_stake])
    order = np.lexsort((np.arange(len(all_stakes)), -all_stakes))
    start = np.concatenate([np.arange(tables + 1), tables + np.cumsum(lengths)]).astype(np.int64)
    groups = Groups(start, np.concatenate([np.arange(tables, dtype=np.int32), members]).astype(np.int32), order)
    return groups._replace(order=order[: _how_many(problem, groups)])


def _how_many(problem: PlacementProblem, groups: Groups) -> int:
    """So many of the groups can be tried after each other in the time of a pass."""
    readers = np.concatenate([[0], np.cumsum(np.diff(problem.reader_start)[groups.tables])])
    pairs = (readers[groups.start[1:]] - readers[groups.start[:-1]])[groups.order]
    count = np.arange(1, len(pairs) + 1, dtype=np.float64)
    # A chain is half as long as it can be, in the mean.
    looked_at = count * problem.regions * LONGEST * problem.regions * (count + LONGEST / 2 * np.cumsum(pairs))
    return int(np.searchsorted(looked_at, _MOST_WORK, side="right"))


def _stakes(problem: PlacementProblem) -> Floats:
    """(T,) which part of the objective, and of the quotas of CPU, hangs on each table, roughly."""
    of_job = problem.read_cost * problem.read_bytes
    on_gpus = np.flatnonzero(problem.gpu_model >= 0)
    model, priority = problem.gpu_model[on_gpus], problem.priority[on_gpus]
    share = problem.gpu_hours[on_gpus] / problem.demand_total[model, priority]
    of_job[on_gpus] += problem.priority_cost[priority] * share
    applied = np.flatnonzero(problem.application >= 0)
    quotas = np.maximum(np.where(np.isfinite(problem.cpu_supply), problem.cpu_supply, 0.0).sum(axis=1), TINY)
    of_job[applied] += np.minimum(1.0, problem.cpu_hours[applied] / quotas[problem.application[applied]])
    job_of_pair = np.repeat(np.arange(len(of_job)), np.diff(problem.table_start))
    read = np.bincount(problem.tables, weights=of_job[job_of_pair], minlength=len(problem.table_bytes))
    return np.asarray(read + problem.storage_cost * problem.table_bytes / problem.stored_total)


class Link(NamedTuple):
    """What a chain is continued with."""

    number: int
    """The group; -1: there is none"""
    target: int
    change: Change
    """What the whole chain changes then."""


@compiled_part
def _add(
    problem: PlacementProblem,
    groups: Groups,
    number: int,
    room: GroupRoom,
    length: int,
    homes: Indices,
    target: int,
) -> int:
    """Adds the tables of a group to the room; returns how many are in it, 0 if one is in it already or they are read too often."""
    pairs = 0
    for index in range(length):
        pairs += pairs_of(problem, room.tables[index])
    longer = length
    for place in range(groups.start[number], groups.start[number + 1]):
        table = groups.tables[place]
        if homes[table] == _IN_CHAIN:
            return 0
        if homes[table] == target:
            continue
        room.tables[longer] = table
        room.targets[longer] = target
        pairs += pairs_of(problem, table)
        longer += 1
    return longer if longer > length and pairs <= MOST_PAIRS else 0


@compiled_part
def _best_link(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    group: GroupScratch,
    groups: Groups,
    room: GroupRoom,
    length: int,
    homes: Indices,
) -> Link:
    """What lowers the cost of the chain most; something that is legal before anything that is not."""
    best = Link(-1, -1, Change(0.0, 0.0, 0.0, 0.0, False))
    least = np.inf
    for place in range(len(groups.order)):
        number = groups.order[place]
        for target in range(len(state.stored)):
            longer = _add(problem, groups, number, room, length, homes, target)
            if longer == 0:
                continue
            change = price_group(problem, state, scratch, group, room.tables, room.targets, longer)
            cost = change.reads + change.gpu + change.storage
            if (change.legal and not best.change.legal) or (change.legal == best.change.legal and cost < least):
                least = cost
                best = Link(number, target, change)
    return best


@compiled_part
def _mark(groups: Groups, number: int, homes: Indices) -> None:
    """Notes that the group is in the chain."""
    for place in range(groups.start[number], groups.start[number + 1]):
        homes[groups.tables[place]] = _IN_CHAIN


@compiled_part
def _unmark(groups: Groups, number: int, homes: Indices, state: PlacementState) -> None:
    """The group is in no chain any more, and where the state says."""
    for place in range(groups.start[number], groups.start[number + 1]):
        homes[groups.tables[place]] = state.home[groups.tables[place]]


@compiled
def move_chains(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    group: GroupScratch,
    budget: CopyingBudget,
    ledger: Ledger,
    groups: Groups,
    room: GroupRoom,
    best: GroupRoom,
    homes: Indices,
    first: int,
    last: int,
) -> int:
    """Begins a chain with each of these groups, by their places in the order; returns how many chains moved.

    `homes` (T,): room for where tables are, and for what is in the chain.
    """
    moved = 0
    chain = np.zeros(LONGEST, np.int64)
    homes[:] = state.home
    for place in range(first, last):
        chain[0] = groups.order[place]
        best_moving = 0
        least = -LEAST_GAIN
        gained = Change(0.0, 0.0, 0.0, 0.0, True)
        for target in range(len(state.stored)):
            length = _add(problem, groups, chain[0], room, 0, homes, target)
            if length == 0:
                continue
            links = 1
            _mark(groups, chain[0], homes)
            while links < LONGEST:
                link = _best_link(problem, state, scratch, group, groups, room, length, homes)
                if link.number < 0:
                    break
                length = _add(problem, groups, link.number, room, length, homes, link.target)
                chain[links] = link.number
                links += 1
                _mark(groups, link.number, homes)
                cost = link.change.reads + link.change.gpu + link.change.storage
                if link.change.legal and cost < least:
                    least = cost
                    gained = link.change
                    best_moving = length
                    best.tables[:length] = room.tables[:length]
                    best.targets[:length] = room.targets[:length]
            for index in range(links):
                _unmark(groups, chain[index], homes, state)
        if best_moving > 0 and move_together(problem, state, scratch, budget, ledger, best, best_moving, gained):
            moved += 1
            for index in range(best_moving):
                homes[best.tables[index]] = best.targets[index]
    return moved
