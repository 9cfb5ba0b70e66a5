"""Late-acceptance search over single, gathering, swapping and group moves, after hill climbing.

Hill climbing moves one table at a time, and so cannot bring together a training job whose tables lie in three regions:
every first step costs and gains nothing. Here a step may move all tables of a job, exchange two tables, or move a group
of tables that the same jobs read; a step is accepted when it is no worse than the placement some hundred steps ago
(Burke and Bykov, "The late acceptance hill-climbing heuristic", 2017). The best placement that was met is the result.

Invariant: every accepted placement is legal, within the limits of copying, and makes no exceeded limit worse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_placement.objective.placement_state import (
    AT_HOME,
    READS,
    PlacementState,
    Scratch,
    apply_move,
    price,
    scratch_of,
    state_of,
)
from data_placement.objective.problem import PlacementProblem
from data_placement.solvers.copying import CopyingBudget, allows, charge, copying_budget, exceeded
from data_placement.solvers.hill_climbing import LEAST_GAIN, climb, ledger_of, moves_of
from data_placement.solvers.plan import MoveLimits, Moves, Progress, Solution, Start, undisturbed
from domain.warehouse import Floats, Indices, Integers
from kernels.compiled import compiled, compiled_part

_CHUNK = 20_000
"""Steps between two looks at whether to go on."""
_LARGEST_GROUP_BITS = 7
_LARGEST_GROUP = 1 << _LARGEST_GROUP_BITS
"""Tables that one step moves at most."""
_LOOKS = 4
"""Jobs, or regions, that are looked at to choose the most loaded, or the least."""
_READERS_SEEN = 24
"""Of a table's readers so many lead on to further tables of a group."""
_ROUNDING = 1e-9
_PATIENCE_LENGTHS = 10
"""A search that has found nothing better in so many lengths of its history is heated."""
_HEATS = (0.001, 0.01, 0.1, 0.003, 0.03, 0.3, 1.0)
"""By which part of the best cost a placement may then be worse at first, one after the other."""

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
    seen_table: Integers
    """(T,) the step in which the table was put into a group"""
    journal_table: Indices
    """What has moved since the best placement, and from where."""
    journal_source: Indices
    journal_length: Integers
    """(1,)"""


@dataclass(frozen=True, slots=True)
class LateAcceptance:
    """Hill climbing, then late acceptance for so many steps per table, or until it is stopped."""

    steps_per_table: int = 50
    fewest_steps: int = 200_000
    history_length: int = 500

    def solve(
        self,
        problem: PlacementProblem,
        start: Start,
        limits: MoveLimits,
        rng: np.random.Generator,
        progress: Progress = undisturbed,
    ) -> Solution:
        """The best placement met; deterministic by the generator's seed unless it was stopped by the clock."""
        state = state_of(problem, start.home)
        budget = copying_budget(problem, start, limits)
        finished = climb(problem, state, budget, ledger_of(problem), 100, progress)
        steps = max(self.fewest_steps, self.steps_per_table * len(start.home))
        if finished and len(start.home) and problem.regions > 1:
            finished = self._search(problem, state, budget, steps, int(rng.integers(1, 2**62)), progress)
        # What was moved and moved back has left rounding behind.
        state = state_of(problem, state.home)
        return Solution(state.home, moves_between(problem, start, state), finished=finished)

    def _search(
        self,
        problem: PlacementProblem,
        state: PlacementState,
        budget: CopyingBudget,
        steps: int,
        seed: int,
        progress: Progress,
    ) -> bool:
        scratch = scratch_of(problem)
        tables = len(state.home)
        cost = state.sums[READS] + state.gpu_cell_cost.sum() + state.storage_cell_cost.sum()
        journal = max(100_000, tables)
        search = Search(
            history=np.full(self.history_length, cost),
            step=np.zeros(1, np.int64),
            best=np.array([cost]),
            heated=np.array([-_PATIENCE_LENGTHS * self.history_length, 0], np.int64),
            patience=max(_PATIENCE_LENGTHS * self.history_length, tables // 4),
            random=np.array([seed], np.uint64),
            group=np.zeros(_LARGEST_GROUP, np.int32),
            group_source=np.zeros(_LARGEST_GROUP, np.int32),
            seen_table=np.full(tables, -1, np.int64),
            journal_table=np.zeros(journal, np.int32),
            journal_source=np.zeros(journal, np.int32),
            journal_length=np.zeros(1, np.int64),
        )
        finished = True
        for first in range(0, steps, _CHUNK):
            if not progress("searching for better placements", first / steps):
                finished = False
                break
            _search_steps(problem, state, scratch, budget, search, min(_CHUNK, steps - first))
        _return_to_best(problem, state, scratch, budget, search)
        return finished


def moves_between(problem: PlacementProblem, start: Start, state: PlacementState) -> Moves:
    """The moves; what each gains is how much worse each term were if that table alone went back."""
    ledger = ledger_of(problem)
    moved = np.flatnonzero(state.home != start.home)
    _gains_of_going_back(
        problem, state, scratch_of(problem), start.home, moved, ledger.reads, ledger.gpu, ledger.storage
    )
    gains = ledger.reads + ledger.gpu + ledger.storage
    ledger.order[moved[np.lexsort((moved, -gains[moved]))]] = np.arange(1, len(moved) + 1)
    return moves_of(problem, start, state, ledger)


@compiled
def _gains_of_going_back(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    home: Indices,
    moved: Integers,
    reads: Floats,
    gpu: Floats,
    storage: Floats,
) -> None:
    for table in moved:
        change = price(problem, state, scratch, table, home[table])
        reads[table], gpu[table], storage[table] = change.reads, change.gpu, change.storage


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


@compiled
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


@compiled
def _within_limits(
    problem: PlacementProblem,
    state: PlacementState,
    stored: Floats,
    cpu: Floats,
    demand: Floats,
    at_home: float,
) -> bool:
    """Whether no limit is exceeded, or not by more than before; what was before is given."""
    regions = len(stored)
    if problem.storage_limited:
        for region in range(regions):
            if state.stored[region] > max(problem.storage_supply[region], stored[region] * (1.0 + _ROUNDING)):
                return False
    if problem.cpu_limited:
        for application in range(cpu.shape[0]):
            for region in range(regions):
                most = max(problem.cpu_supply[application, region], cpu[application, region] * (1.0 + _ROUNDING))
                if state.cpu[application, region] > most:
                    return False
    if problem.gpu_limited:
        for gpu in range(demand.shape[0]):
            for region in range(regions):
                before = demand[gpu, :, region].sum() * (1.0 + _ROUNDING)
                if state.demand[gpu, :, region].sum() > max(problem.gpu_supply[gpu, region], before):
                    return False
    return bool(state.sums[AT_HOME] >= min(problem.home_least, at_home) * (1.0 - _ROUNDING))


@compiled
def _try_group(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    budget: CopyingBudget,
    search: Search,
    length: int,
    targets: Indices,
    accept_up_to: float,
) -> int:
    """Moves a group, table by table to the regions; back again where that is worse or not allowed. Returns how many stay moved."""
    stored = state.stored.copy()
    cpu = state.cpu.copy()
    demand = state.demand.copy()
    cells = state.gpu_cell_cost.copy()
    storage_cells = state.storage_cell_cost.copy()
    sums = state.sums.copy()
    moved = 0
    for index in range(length):
        table = search.group[index]
        present = state.home[table]
        target = targets[index] if len(targets) > 1 else targets[0]
        if present == target:
            continue
        charge(problem, budget, table, present, target)
        apply_move(problem, state, scratch, table, target)
        search.group[moved] = table
        search.group_source[moved] = present
        moved += 1
    if moved == 0:
        return 0
    good = _cost(state) <= accept_up_to and not exceeded(budget)
    if good and _within_limits(problem, state, stored, cpu, demand, sums[AT_HOME]):
        return moved
    for index in range(moved - 1, -1, -1):
        table = search.group[index]
        charge(problem, budget, table, state.home[table], search.group_source[index])
        apply_move(problem, state, scratch, table, search.group_source[index])
    state.stored[:] = stored
    state.cpu[:] = cpu
    state.demand[:] = demand
    state.gpu_cell_cost[:] = cells
    state.storage_cell_cost[:] = storage_cells
    state.sums[:] = sums
    return 0


@compiled
def _return_to_best(
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


@compiled
def _step(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    budget: CopyingBudget,
    search: Search,
    accept_up_to: float,
    current: float,
) -> int:
    """One step; the tables that it has moved are in the group, and their number is returned."""
    tables, regions = len(state.home), len(state.stored)
    kind = _random_below(search.random, 10)
    target = _random_below(search.random, regions)
    targets = np.full(1, target, np.int32)
    if kind < 4 or len(problem.training) == 0:
        table = _random_below(search.random, tables)
        if kind < 2 and problem.reader_start[table + 1] > problem.reader_start[table]:
            readers = problem.reader_start[table + 1] - problem.reader_start[table]
            job = problem.readers[problem.reader_start[table] + _random_below(search.random, readers)]
            pairs = problem.table_start[job + 1] - problem.table_start[job]
            target = state.home[problem.tables[problem.table_start[job] + _random_below(search.random, pairs)]]
        present = state.home[table]
        if target == present or not allows(problem, budget, table, present, target):
            return 0
        change = price(problem, state, scratch, table, target)
        if not change.legal or current + change.reads + change.gpu + change.storage > accept_up_to:
            return 0
        search.group[0] = table
        search.group_source[0] = present
        charge(problem, budget, table, present, target)
        apply_move(problem, state, scratch, table, target)
        return 1
    if kind == 4:
        first, second = _random_below(search.random, tables), _random_below(search.random, tables)
        search.group[0], search.group[1] = first, second
        targets = np.array([state.home[second], state.home[first]], np.int32)
        length = 2 if first != second else 0
    else:
        job = _choose_job(problem, state, search)
        if problem.table_start[job + 1] == problem.table_start[job]:
            return 0
        targets[0] = _choose_target(problem, state, search, job)
        if kind < 7:
            length = _choose_tables_of_job(problem, search, job)
        else:
            limit = 1 << (1 + _random_below(search.random, _LARGEST_GROUP_BITS))
            length = _choose_group(problem, state, search, job, min(limit, len(search.group)))
        if _random_below(search.random, 4) == 0 and length > 0:
            targets[0] = state.home[search.group[_random_below(search.random, length)]]
    return _try_group(problem, state, scratch, budget, search, length, targets, accept_up_to)


@compiled
def _search_steps(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    budget: CopyingBudget,
    search: Search,
    steps: int,
) -> None:
    current = _cost(state)
    for _ in range(steps):
        place = search.step[0] % len(search.history)
        search.step[0] += 1
        if search.step[0] - search.heated[0] > search.patience:
            _return_to_best(problem, state, scratch, budget, search)
            current = _cost(state)
            search.history[:] = current * (1.0 + _HEATS[search.heated[1] % len(_HEATS)])
            search.heated[0] = search.step[0]
            search.heated[1] += 1
        moved = _step(problem, state, scratch, budget, search, max(current, search.history[place]), current)
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
                _return_to_best(problem, state, scratch, budget, search)
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
