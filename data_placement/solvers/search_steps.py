"""The steps of the late-acceptance search, compiled: which tables to move, whether to keep it, and the way back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_placement.objective.group_moves import MOST_PAIRS, GroupScratch, pairs_of, price_group
from data_placement.objective.placement_state import READS, PlacementState, Scratch, apply_move, price
from data_placement.objective.problem import PlacementProblem
from data_placement.solvers.copying import CopyingBudget, allows, charge, exceeded
from data_placement.solvers.single_moves import LEAST_GAIN
from domain.warehouse import Floats, Indices, Integers
from kernels.compiled import compiled, compiled_part

_LARGEST_GROUP_BITS = 7
LARGEST_GROUP = 1 << _LARGEST_GROUP_BITS
"""Tables that one step moves at most."""
_LOOKS = 4
"""Jobs, or regions, that are looked at to choose the most loaded, or the least."""
_READERS_SEEN = 24
"""Of a table's readers so many lead on to further tables of a group."""
HEATS = (0.001, 0.01, 0.1, 0.003, 0.03, 0.3, 1.0)
"""By which part of the best cost a placement may be worse at first after a heating, one after the other."""

NDArrayUint = NDArray[np.uint64]


class Search(NamedTuple):
    """What the search remembers from step to step."""

    history: Floats
    """Costs of the last steps: what a step is compared with."""
    step: Integers
    """(1,) steps so far"""
    best: Floats
    """(1,) the lowest cost so far"""
    heated: Integers
    """(2,) the step of the last new best or heating, and how often it was heated"""
    patience: int
    """Steps without a new best after which worse placements are accepted again"""
    random: NDArrayUint
    """(1,) the state of the generator"""
    group: Indices
    """The tables that a step moves."""
    group_source: Indices
    """Where they were before."""
    group_target: Indices
    """Where they go."""
    seen_table: Integers
    """(T,) the step in which the table was put into a group"""
    journal_table: Indices
    """What has moved since the best placement, and from where."""
    journal_source: Indices
    journal_length: Integers
    """(1,)"""


@compiled_part
def _random_below(random: NDArrayUint, below: int) -> int:
    """A number in [0, below), by xorshift64*."""
    value = random[0]
    value ^= value >> np.uint64(12)
    value ^= value << np.uint64(25)
    value ^= value >> np.uint64(27)
    random[0] = value
    drawn = ((value * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(33)) % np.uint64(below)
    # Signed: with unsigned numbers and signed ones together compiled code makes floats.
    return int(np.int64(drawn))


@compiled_part
def _cost(state: PlacementState) -> float:
    return float(state.sums[READS] + state.gpu_cell_cost.sum() + state.storage_cell_cost.sum())


@compiled_part
def _load(problem: PlacementProblem, state: PlacementState, gpu: int, region: int) -> float:
    """Demand over supply of a GPU model in a region, of all priorities by their weight."""
    demand = 0.0
    for priority in range(state.demand.shape[1]):
        demand += problem.priority_cost[priority] * state.demand[gpu, priority, region]
    return float(demand / max(problem.gpu_supply[gpu, region], 1e-9))


@compiled_part
def _choose_job(problem: PlacementProblem, state: PlacementState, search: Search) -> int:
    """A random job; half of the time that of several random ones whose region is the most loaded."""
    chosen = _random_below(search.random, len(problem.training))
    if _random_below(search.random, 2) == 0:
        return chosen
    most = -1.0
    for _ in range(_LOOKS):
        job = _random_below(search.random, len(problem.training))
        gpu, region = problem.gpu_model[job], state.job_region[job]
        load = _load(problem, state, gpu, region) if gpu >= 0 and region >= 0 else 0.0
        if load > most:
            most = load
            chosen = job
    return chosen


@compiled_part
def _choose_target(problem: PlacementProblem, state: PlacementState, search: Search, job: int) -> int:
    """A random region; half of the time that of several random ones that is the least loaded with what the job needs."""
    regions = len(state.stored)
    chosen = _random_below(search.random, regions)
    gpu = problem.gpu_model[job]
    if gpu < 0 or _random_below(search.random, 2) == 0:
        return chosen
    least = np.inf
    for _ in range(_LOOKS):
        region = _random_below(search.random, regions)
        if problem.gpu_supply[gpu, region] <= 0.0:
            continue
        load = _load(problem, state, gpu, region)
        if load < least:
            least = load
            chosen = region
    return chosen


@compiled_part
def _choose_group(problem: PlacementProblem, state: PlacementState, search: Search, seed_job: int, limit: int) -> int:
    """Tables that the same jobs read and that are in the same region as the first of them; returns how many."""
    first = problem.tables[problem.table_start[seed_job]]
    region = state.home[first]
    stamp = search.step[0]
    search.group[0] = first
    search.seen_table[first] = stamp
    length = 1
    place = 0
    while place < length < limit:
        table = search.group[place]
        place += 1
        start = problem.reader_start[table]
        readers = problem.reader_start[table + 1] - start
        for index in range(min(readers, _READERS_SEEN)):
            job = problem.readers[start + index]
            for pair in range(problem.table_start[job], problem.table_start[job + 1]):
                other = problem.tables[pair]
                if length < limit and search.seen_table[other] != stamp and state.home[other] == region:
                    search.seen_table[other] = stamp
                    search.group[length] = other
                    length += 1
    return int(length)


@compiled_part
def _choose_tables_of_job(problem: PlacementProblem, search: Search, job: int) -> int:
    """All tables of a job; none if they are too many."""
    start = problem.table_start[job]
    length = problem.table_start[job + 1] - start
    if length > len(search.group):
        return 0
    for index in range(length):
        search.group[index] = problem.tables[start + index]
    return int(length)


@compiled_part
def _try_group(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    group: GroupScratch,
    budget: CopyingBudget,
    search: Search,
    length: int,
    worst_change: float,
) -> int:
    """Moves those tables of the group that are not at their target yet, unless that is too bad or not allowed; how many moved."""
    moving = 0
    pairs = 0
    for index in range(length):
        table, target = search.group[index], search.group_target[index]
        if state.home[table] == target:
            continue
        pairs += pairs_of(problem, table)
        search.group[moving], search.group_target[moving] = table, target
        moving += 1
    if moving == 0 or pairs > MOST_PAIRS:
        return 0
    change = price_group(problem, state, scratch, group, search.group, search.group_target, moving)
    if not change.legal or change.reads + change.gpu + change.storage > worst_change:
        return 0
    for index in range(moving):
        table = search.group[index]
        search.group_source[index] = state.home[table]
        charge(problem, budget, table, state.home[table], search.group_target[index])
    if exceeded(budget):
        for index in range(moving):
            charge(problem, budget, search.group[index], search.group_target[index], search.group_source[index])
        return 0
    for index in range(moving):
        apply_move(problem, state, scratch, search.group[index], search.group_target[index])
    return moving


@compiled
def return_to_best(
    problem: PlacementProblem, state: PlacementState, scratch: Scratch, budget: CopyingBudget, search: Search
) -> None:
    """Takes back what has moved since the best placement."""
    for index in range(search.journal_length[0] - 1, -1, -1):
        table = search.journal_table[index]
        source = search.journal_source[index]
        if state.home[table] != source:
            charge(problem, budget, table, state.home[table], source)
            apply_move(problem, state, scratch, table, source)
    search.journal_length[0] = 0


@compiled_part
def _try_single(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    budget: CopyingBudget,
    search: Search,
    follow: bool,
    worst_change: float,
) -> int:
    """Moves a random table to a random region, or to where another table of one of its readers is."""
    table = _random_below(search.random, len(state.home))
    target = _random_below(search.random, len(state.stored))
    readers = pairs_of(problem, table)
    if follow and readers > 0:
        job = problem.readers[problem.reader_start[table] + _random_below(search.random, readers)]
        pairs = problem.table_start[job + 1] - problem.table_start[job]
        target = state.home[problem.tables[problem.table_start[job] + _random_below(search.random, pairs)]]
    present = state.home[table]
    if target == present or not allows(problem, budget, table, present, target):
        return 0
    change = price(problem, state, scratch, table, target)
    if not change.legal or change.reads + change.gpu + change.storage > worst_change:
        return 0
    search.group[0] = table
    search.group_source[0] = present
    charge(problem, budget, table, present, target)
    apply_move(problem, state, scratch, table, target)
    return 1


@compiled_part
def _choose_several(problem: PlacementProblem, state: PlacementState, search: Search, kind: int) -> int:
    """Tables to move together and their targets; returns how many."""
    tables = len(state.home)
    if kind == 4:
        first, second = _random_below(search.random, tables), _random_below(search.random, tables)
        search.group[0], search.group[1] = first, second
        search.group_target[0], search.group_target[1] = state.home[second], state.home[first]
        return 2 if first != second else 0
    job = _choose_job(problem, state, search)
    if problem.table_start[job + 1] == problem.table_start[job]:
        return 0
    target = _choose_target(problem, state, search, job)
    if kind < 7:
        length = _choose_tables_of_job(problem, search, job)
    else:
        limit = 1 << (1 + _random_below(search.random, _LARGEST_GROUP_BITS))
        length = _choose_group(problem, state, search, job, min(limit, len(search.group)))
    if length > 0 and _random_below(search.random, 4) == 0:
        target = state.home[search.group[_random_below(search.random, length)]]
    for index in range(length):
        search.group_target[index] = target
    return length


@compiled
def _step(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    group: GroupScratch,
    budget: CopyingBudget,
    search: Search,
    worst_change: float,
) -> int:
    """One step; the tables that it has moved are in the group, and their number is returned."""
    kind = _random_below(search.random, 10)
    if kind < 4 or len(problem.training) == 0:
        return _try_single(problem, state, scratch, budget, search, kind < 2, worst_change)
    length = _choose_several(problem, state, search, kind)
    return _try_group(problem, state, scratch, group, budget, search, length, worst_change)


@compiled
def search_steps(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    group: GroupScratch,
    budget: CopyingBudget,
    search: Search,
    steps: int,
) -> None:
    """So many steps; the search remembers everything else."""
    current = _cost(state)
    for _ in range(steps):
        place = search.step[0] % len(search.history)
        search.step[0] += 1
        if search.step[0] - search.heated[0] > search.patience:
            return_to_best(problem, state, scratch, budget, search)
            current = _cost(state)
            search.history[:] = current * (1.0 + HEATS[search.heated[1] % len(HEATS)])
            search.heated[0] = search.step[0]
            search.heated[1] += 1
        worst_change = max(current, search.history[place]) - current
        moved = _step(problem, state, scratch, group, budget, search, worst_change)
        if moved > 0:
            current = _cost(state)
            if search.journal_length[0] + moved > len(search.journal_table):
                # Too far from the best to remember the way: the search goes on from there.
                for index in range(moved - 1, -1, -1):
                    charge(
                        problem,
                        budget,
                        search.group[index],
                        state.home[search.group[index]],
                        search.group_source[index],
                    )
                    apply_move(problem, state, scratch, search.group[index], search.group_source[index])
                return_to_best(problem, state, scratch, budget, search)
                current = _cost(state)
            elif current < search.best[0] - LEAST_GAIN:
                search.best[0] = current
                search.heated[0] = search.step[0]
                search.journal_length[0] = 0
            else:
                for index in range(moved):
                    search.journal_table[search.journal_length[0]] = search.group[index]
                    search.journal_source[search.journal_length[0]] = search.group_source[index]
                    search.journal_length[0] += 1
        search.history[place] = min(search.history[place], current)
