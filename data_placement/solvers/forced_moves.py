"""Moves that are forced, and hill climbing around them: what neither chains nor random steps reach.

Rule: a group of tables is put into each other region, whatever that costs and exceeds. The other groups climb around it while
it is held there, then it climbs with them; exceeded limits cost so much meanwhile that they are mended first. The outcome stays
if it is legal and better, else everything goes back (an ejection chain without a bound on its length; Glover 1996). Where a large
table has to change places with many small ones, every shorter way there is worse or not legal.

The groups are the weightiest ones, as in chains, and they are what climbs, so a trial does not grow with the warehouse.
Ends when no group has gained since it was tried last, or when so many pairs of a table and a job have been looked at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from data_placement.objective.group_moves import GroupScratch, pairs_of
from data_placement.objective.placement_state import READS, PlacementState, Scratch, apply_move
from data_placement.objective.problem import PlacementProblem
from data_placement.objective.relaxed_limits import RelaxedLimits, price_beyond, within
from data_placement.solvers.copying import CopyingBudget, charge
from data_placement.solvers.gathering import GroupRoom, Groups, not_there_yet, take
from data_placement.solvers.single_moves import LEAST_GAIN
from domain.warehouse import Flags, Indices, Integers
from kernels.compiled import compiled, compiled_part

EXCEEDING = 5.0
"""Times the objective: what it costs to exceed a limit by the whole of it."""
MOST_PAIRS_LOOKED_AT = 500_000_000
"""Of all forced moves together: some tens of seconds, however large the warehouse is."""
_ROUNDS = 3
"""Of climbing while the group is held, and as many afterwards."""


class Trials(NamedTuple):
    """How far the forced moves are."""

    tried: Integers
    """(1,) groups, each time it was one's turn"""
    gained: Integers
    """(1,) how many were tried when the last one gained"""
    looked_at: Integers
    """(1,) pairs of a table and a job"""


def no_trials() -> Trials:
    """Before the first."""
    return Trials(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64))


def more_trials(trials: Trials, groups: Groups) -> bool:
    """Whether some group may still gain, and there is work left to try."""
    idle = int(trials.tried[0] - trials.gained[0])
    return idle < len(groups.order) and int(trials.looked_at[0]) < MOST_PAIRS_LOOKED_AT


@compiled_part
def _cost(state: PlacementState) -> float:
    return float(state.sums[READS] + state.gpu_cell_cost.sum() + state.storage_cell_cost.sum())


@compiled_part
def _put(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    budget: CopyingBudget,
    room: GroupRoom,
    moving: int,
) -> bool:
    """Moves what is in the room, legal or not, if it may be copied."""
    if not take(problem, state, budget, room, moving):
        return False
    for index in range(moving):
        apply_move(problem, state, scratch, room.tables[index], room.targets[index])
    return True


@compiled_part
def _is_held(groups: Groups, number: int, held: Flags) -> bool:
    found = False
    for place in range(groups.start[number], groups.start[number + 1]):
        found = found or held[groups.tables[place]]
    return found


@compiled_part
def _hold(groups: Groups, number: int, held: Flags, whether: bool) -> None:
    for place in range(groups.start[number], groups.start[number + 1]):
        held[groups.tables[place]] = whether


@compiled_part
def _climb(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    group: GroupScratch,
    budget: CopyingBudget,
    limits: RelaxedLimits,
    groups: Groups,
    room: GroupRoom,
    held: Flags,
    trials: Trials,
) -> None:
    """Moves each group that has no held table to its best region, round after round until nothing gains."""
    for _ in range(_ROUNDS):
        moved = False
        for turn in range(len(groups.order)):
            number = groups.order[turn]
            if _is_held(groups, number, held):
                continue
            best = -1
            least = -LEAST_GAIN
            for target in range(len(state.stored)):
                moving = not_there_yet(problem, state, groups, number, room, target)
                if moving == 0:
                    continue
                trials.looked_at[0] += 1
                for index in range(moving):
                    trials.looked_at[0] += pairs_of(problem, room.tables[index])
                cost = price_beyond(problem, state, scratch, group, limits, room.tables, room.targets, moving)
                if cost < least:
                    least = cost
                    best = target
            if best >= 0:
                moving = not_there_yet(problem, state, groups, number, room, best)
                moved = _put(problem, state, scratch, budget, room, moving) or moved
        if not moved:
            return


@compiled_part
def _go_back(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    budget: CopyingBudget,
    groups: Groups,
    homes: Indices,
) -> None:
    """Every table of the groups to its home before the trial."""
    for turn in range(len(groups.order)):
        number = groups.order[turn]
        for place in range(groups.start[number], groups.start[number + 1]):
            table = groups.tables[place]
            if state.home[table] != homes[table]:
                charge(problem, budget, table, state.home[table], homes[table])
                apply_move(problem, state, scratch, table, homes[table])


@compiled
def force_group(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    group: GroupScratch,
    budget: CopyingBudget,
    limits: RelaxedLimits,
    groups: Groups,
    room: GroupRoom,
    homes: Indices,
    held: Flags,
    trials: Trials,
) -> None:
    """Forces the group whose turn it is into each region; the state is as before, or better and within the limits.

    `homes` (T,): the homes of now, and so again afterwards. `held` (T,): no table is, before and afterwards.
    """
    number = groups.order[trials.tried[0] % len(groups.order)]
    trials.tried[0] += 1
    for target in range(len(state.stored)):
        before = _cost(state)
        moving = not_there_yet(problem, state, groups, number, room, target)
        if moving == 0 or not _put(problem, state, scratch, budget, room, moving):
            continue
        _hold(groups, number, held, True)
        _climb(problem, state, scratch, group, budget, limits, groups, room, held, trials)
        _hold(groups, number, held, False)
        _climb(problem, state, scratch, group, budget, limits, groups, room, held, trials)
        if _cost(state) < before - LEAST_GAIN and within(state, limits):
            trials.gained[0] = trials.tried[0]
            _remember(state, groups, homes)
        else:
            _go_back(problem, state, scratch, budget, groups, homes)


@compiled_part
def _remember(state: PlacementState, groups: Groups, homes: Indices) -> None:
    for turn in range(len(groups.order)):
        number = groups.order[turn]
        for place in range(groups.start[number], groups.start[number + 1]):
            homes[groups.tables[place]] = state.home[groups.tables[place]]
