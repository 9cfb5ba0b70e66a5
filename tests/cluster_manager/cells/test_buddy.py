"""Buddy allocation against a twin that keeps plain sets of free cells, and what it prefers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from cluster_manager.cells.buddy import BuddyCells, NotFree
from cluster_manager.cells.hierarchy import Chain
from cluster_manager.cells.occupancy import Occupancy, Occupant
from cluster_manager.cells.safety import first_shortage, stays_safe
from domain.identifiers import TenantId
from tests.cluster_manager.cells.worlds import Choices, chain_of, choices, random_chain
from tests.examples import examples


class PlainBuddies:
    """Algorithm 1 as it stands in the paper, on sets."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.free: list[set[int]] = [set() for _ in range(chain.top + 1)]
        self.free[chain.top] = set(range(chain.counts[chain.top]))

    def allocate(self, level: int, cell: int) -> None:
        if cell not in self.free[level]:
            parent = cell // self.chain.splits[level + 1]
            self.allocate(level + 1, parent)
            self.free[level] |= set(self.chain.children(level + 1, parent))
        self.free[level].remove(cell)

    def release(self, level: int, cell: int) -> None:
        self.free[level].add(cell)
        if level < self.chain.top:
            parent = cell // self.chain.splits[level + 1]
            buddies = set(self.chain.children(level + 1, parent))
            if buddies <= self.free[level]:
                self.free[level] -= buddies
                self.release(level + 1, parent)

    def layout(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(sorted(cells)) for cells in self.free)


def buddies(chain: Chain) -> BuddyCells:
    return BuddyCells(Occupancy(chain))


@settings(max_examples=examples(200))
@given(choices())
def test_never_differs_from_the_sets_of_algorithm_1(choose: Choices) -> None:
    chain = random_chain(choose, "chain")
    cells, plain = buddies(chain), PlainBuddies(chain)
    allocated: list[tuple[int, int]] = []
    for _ in range(40):
        if allocated and choose.one_in(3):
            level, cell = allocated.pop(choose.below(len(allocated)))
            cells.release(level, cell)
            plain.release(level, cell)
        elif choose.one_in(8):
            machine = choose.below(len(chain.machines))
            cells.occupancy.set_usable(machine, usable=choose.one_in(2))
            cells.machine_changed(machine)
        elif choose.one_in(4):
            machine, gpu = choose.below(len(chain.machines)), choose.below(chain.gpus_per_machine)
            cells.occupancy.add(machine, Occupant("work", 1 << gpu, guaranteed=False, tenant=TenantId("t")))
            cells.machine_changed(machine)
        else:
            level = 1 + choose.below(chain.top)
            lowest = [k for k in range(level, chain.top + 1) if plain.free[k]]
            if not lowest:
                with pytest.raises(NotFree):
                    cells.choose(level)
                continue
            cell = cells.choose(level)
            _check_choice(cells, plain, level, cell, lowest[0])
            cells.allocate(level, cell)
            plain.allocate(level, cell)
            allocated.append((level, cell))
        assert cells.layout() == plain.layout()
        assert cells.free == [len(free) for free in plain.free]
    for level, cell in allocated:
        cells.release(level, cell)
    assert cells.layout() == PlainBuddies(chain).layout()


def _check_choice(cells: BuddyCells, plain: PlainBuddies, level: int, cell: int, lowest: int) -> None:
    """Nothing is owed to anybody here, so all levels may be split: usable first, then from the lowest level."""
    chain, cost = cells.chain, cells.occupancy.cost
    usable = [
        (k, free) for k in range(level, chain.top + 1) for free in plain.free[k]
        if any(not cost(level, part)[0] for part in _parts(chain, k, free, level))
    ]  # fmt: skip
    assert bool(usable) == (not cost(level, cell)[0])
    source = min(k for k, _ in usable) if usable else lowest
    taken_from = chain.above(level, cell, source)
    assert taken_from in plain.free[source]
    if not any(cost(source, free)[0] for free in plain.free[source]):
        best = min((cost(source, free)[1], free) for free in plain.free[source])
        assert (cost(source, taken_from)[1], taken_from) == best, "fewest opportunistic GPUs, then the lowest number"


def _parts(chain: Chain, level: int, cell: int, part: int) -> range:
    size = chain.sizes[level] // chain.sizes[part]
    return range(cell * size, (cell + 1) * size)


def test_a_cell_that_is_not_free_is_not_allocated_and_nothing_changes() -> None:
    chain = chain_of((2, 2, 2), 4, 2)
    cells = buddies(chain)
    cells.allocate(3, 1)
    before = cells.layout()
    for level, cell in ((3, 1), (1, 4), (4, 0), (2, 2)):
        with pytest.raises(NotFree):
            cells.allocate(level, cell)
    with pytest.raises(NotFree):
        cells.release(2, 2)
    assert cells.layout() == before


def test_a_higher_cell_is_split_for_a_usable_one_only_where_nobody_is_owed_it() -> None:
    chain = chain_of((2,), 1, 2)
    for owed, expected in ((0, 2), (1, 1)):
        cells = buddies(chain)
        cells.allocate(1, 0)
        cells.occupancy.set_usable(1, usable=False)
        cells.machine_changed(1)
        cells.owed = [0, 1, owed]
        assert cells.choose(1) == expected


@settings(max_examples=examples(300))
@given(choices(60))
def test_never_calls_a_state_safe_from_which_what_is_owed_cannot_be_had(choose: Choices) -> None:
    """The invariant says the same as trying: all that is owed, from the highest level down."""
    splits = [0, 1, *(2 + choose.below(2) for _ in range(1 + choose.below(3)))]
    free = [0, *(choose.below(4) for _ in splits[1:])]
    owed = [0, *(choose.below(4) for _ in splits[1:])]
    assert (first_shortage(free, owed, splits) is None) == _can_have(free, owed, splits)
    for level in range(1, len(free)):
        for source in range(level, len(free)):
            if owed[level] and free[source]:
                after, left = list(free), list(owed)
                after[source] -= 1
                for k in range(source - 1, level - 1, -1):
                    after[k] += splits[k + 1] - 1
                left[level] -= 1
                assert stays_safe(free, owed, splits, level, source) == _can_have(after, left, splits)


def _can_have(free: list[int], owed: list[int], splits: list[int]) -> bool:
    free = list(free)
    for level in range(len(free) - 1, 0, -1):
        for _ in range(owed[level]):
            source = next((k for k in range(level, len(free)) if free[k]), None)
            if source is None:
                return False
            free[source] -= 1
            for k in range(source - 1, level - 1, -1):
                free[k] += splits[k + 1] - 1
    return True
