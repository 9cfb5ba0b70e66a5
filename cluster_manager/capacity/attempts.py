"""The live attempts in arrays: what each holds, machine by machine, and the order in which they would be evicted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from cluster_manager.capacity.charging import ENTRY_COLUMNS, GPU_BITS, MACHINE, ROW
from cluster_manager.capacity.tables import RESOURCES, Integers, Reals
from domain.placement import AttemptKey, Holding
from domain.rank import Standing
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY
from kernels.compiled import compiled_part

OrderKey: TypeAlias = tuple[int, int, float, str, int]

# Columns of the table `rows`.
PRIORITY = 0
LEVEL = 1
EVICTABLE = 2
"""1 unless the attempt is already being evicted."""
FIRST_ENTRY = 3
END_ENTRY = 4
SPARED = 5
"""1 if newcomers that are not guaranteed must leave it alone."""
WEIGHT = 6
"""Of the whole attempt: see `domain.work_destroyed.work_weight`."""
ATTEMPT_COLUMNS = 7


class AttemptArrays(NamedTuple):
    """What the kernels need of the live attempts (rows and entries of ended ones are used again)."""

    live: Integers  # [1] how many attempts there are: so many ranks of the order are in use
    order: Integers  # [rank] rows, worst standing first, then longest running, then id
    rows: Integers  # [row, PRIORITY | LEVEL | EVICTABLE | FIRST_ENTRY | END_ENTRY | SPARED | WEIGHT]
    evictable_from_s: Reals  # [row]
    started_s: Reals  # [row]
    saved_s: Reals  # [row] since when its work would be lost ...
    checkpoint_interval_s: Reals  # [row] ... but for what it saved every so many seconds since; 0: nothing
    entries: Integers  # [entry, amounts | MACHINE | GPU_BITS | ROW]


class EvictionFacts(NamedTuple):
    """What says whether an attempt may be evicted, and how dear that is."""

    priority: int
    level: int
    evictable: bool
    spared: bool
    evictable_from_s: float
    started_s: float
    weight: int
    saved_s: float
    checkpoint_interval_s: float


NO_ATTEMPT = -1
CHANGES_REMEMBERED = 4096
NO_ORDER_KEY: OrderKey = (0, 0, 0.0, "", 0)


@dataclass(slots=True)
class HeldAttempt:
    """A live attempt: what is held, whether it is being evicted, and where it stands in the arrays."""

    holding: Holding
    entries: Integers  # as in AttemptArrays; ROW only counts there
    leaving: bool = False
    row: int = NO_ATTEMPT
    first_entry: int = 0
    order_key: OrderKey = NO_ORDER_KEY


class ChangedAttempt(NamedTuple):
    """What an attempt holds now, after a change."""

    key: AttemptKey
    holding: Holding | None
    """None: it is gone."""
    leaving: bool


@compiled_part
def insert_attempt(
    attempts: AttemptArrays, row: int, rank: int, first: int, entries: Integers, facts: EvictionFacts
) -> None:
    """Stores an attempt: its entries from `first` on, what else is known of it, and its row at this rank of the order."""
    attempts.rows[row, PRIORITY] = facts.priority
    attempts.rows[row, LEVEL] = facts.level
    attempts.rows[row, EVICTABLE] = facts.evictable
    attempts.rows[row, SPARED] = facts.spared
    attempts.evictable_from_s[row] = facts.evictable_from_s
    attempts.started_s[row] = facts.started_s
    attempts.rows[row, WEIGHT] = facts.weight
    attempts.saved_s[row] = facts.saved_s
    attempts.checkpoint_interval_s[row] = facts.checkpoint_interval_s
    attempts.rows[row, FIRST_ENTRY] = first
    attempts.rows[row, END_ENTRY] = first + len(entries)
    for entry in range(len(entries)):
        for column in range(ROW):
            attempts.entries[first + entry, column] = entries[entry, column]
        attempts.entries[first + entry, ROW] = row
    live = attempts.live[0]
    for place in range(live, rank, -1):
        attempts.order[place] = attempts.order[place - 1]
    attempts.order[rank] = row
    attempts.live[0] = live + 1


@compiled_part
def drop_attempt(attempts: AttemptArrays, row: int) -> int:
    """Forgets the entries of the attempt in this row, and takes it out of the order; returns the rank that it had there."""
    for entry in range(attempts.rows[row, FIRST_ENTRY], attempts.rows[row, END_ENTRY]):
        attempts.entries[entry, ROW] = NO_ATTEMPT
    # From the end on, each takes the place before its own, down to that of this attempt.
    rank = attempts.live[0] - 1
    worse = attempts.order[rank]
    while worse != row:
        rank -= 1
        at_rank = attempts.order[rank]
        attempts.order[rank] = worse
        worse = at_rank
    attempts.live[0] -= 1
    return int(rank)


def order_key(holding: Holding) -> OrderKey:
    """Ascending order of this key: lowest priority and worst level first, longest running first, then id."""
    standing = holding.standing
    return (-standing.priority, -standing.level, holding.started_s, holding.key.workload, holding.key.attempt)


def check_priority(standing: Standing) -> None:
    """Raises ValueError for a priority that there is not."""
    if not HIGHEST_PRIORITY <= standing.priority <= LOWEST_PRIORITY:
        raise ValueError(f"priority {standing.priority} is not in {HIGHEST_PRIORITY} to {LOWEST_PRIORITY}")


class HeldAttempts:
    """All live attempts of a cluster, by key and in arrays."""

    def __init__(self, publish: Callable[[AttemptArrays], None]) -> None:
        """Empty. The arrays are published whenever they are replaced by larger ones, and now."""
        self.by_key: dict[AttemptKey, HeldAttempt] = {}
        self.by_row: list[HeldAttempt | None] = []
        self._publish = publish
        self._live = np.zeros(1, np.int64)
        self._order = np.zeros(64, np.int64)
        self._rows = np.zeros((64, ATTEMPT_COLUMNS), np.int64)
        self._evictable_from_s = np.zeros(64, np.float64)
        self._started_s = np.zeros(64, np.float64)
        self._saved_s = np.zeros(64, np.float64)
        self._checkpoint_interval_s = np.zeros(64, np.float64)
        self._entries = _no_entries(1024)
        self._free_rows: list[int] = []
        self.order_keys: list[OrderKey] = []
        """[rank] in the order of eviction. Read only."""
        self._used_entries = 0
        self._wasted_entries = 0
        self._changed: list[AttemptKey] = []
        self._changes_forgotten = 0
        self.arrays = self._published()
        """As they are now; the next attempt may replace them."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.order_keys)

    @property
    def changes(self) -> int:
        """How many changes of what attempts hold, or of whether they are leaving, there have been; undone ones count too."""
        return self._changes_forgotten + len(self._changed)

    def changed_since(self, changes: int) -> list[ChangedAttempt] | None:
        """The attempts that came, changed or went since there had been so many changes; None: that is too long ago."""
        if changes < self._changes_forgotten:
            return None
        keys = dict.fromkeys(self._changed[changes - self._changes_forgotten :])
        found = ((key, self.by_key.get(key)) for key in keys)
        return [
            ChangedAttempt(key, None, False) if live is None else ChangedAttempt(key, live.holding, live.leaving)
            for key, live in found
        ]

    def _has_changed(self, key: AttemptKey) -> None:
        if len(self._changed) == CHANGES_REMEMBERED:
            self._changes_forgotten += CHANGES_REMEMBERED // 2
            del self._changed[: CHANGES_REMEMBERED // 2]
        self._changed.append(key)

    @property
    def used_entries(self) -> int:
        """How many rows of the entries are in use, or were by attempts that have ended (ROW says NO_ATTEMPT)."""
        return self._used_entries

    def prepare(self, live: HeldAttempt) -> int:
        """Gives an attempt that is to be added its row and the place of its entries; returns its rank in the order."""
        if not self._free_rows:
            self._free_rows.append(self._another_row())
        if self._used_entries + len(live.entries) > len(self._entries):
            self._make_space(len(live.entries))
        live.row, live.first_entry = self._free_rows[-1], self._used_entries
        live.order_key = key = order_key(live.holding)
        keys = self.order_keys
        # Where all stand alike, the newest comes last.
        return len(keys) if keys and keys[-1] < key else bisect_left(keys, key)

    def add(self, live: HeldAttempt, rank: int) -> None:
        """Takes in an attempt that was prepared and whose entries are stored: see `insert_attempt`."""
        row, holding = self._free_rows.pop(), live.holding
        self._used_entries += len(live.entries)
        self.order_keys.insert(rank, live.order_key)
        self.by_row[row] = live
        self.by_key[holding.key] = live
        self._has_changed(holding.key)

    def remove(self, live: HeldAttempt, rank: int) -> None:
        """Forgets an attempt whose entries are no longer stored: see `drop_attempt`."""
        entries = len(live.entries)
        if live.first_entry + entries == self._used_entries:
            self._used_entries = live.first_entry
        else:
            self._wasted_entries += entries
        del self.order_keys[rank]
        self.by_row[live.row] = None
        self._free_rows.append(live.row)
        del self.by_key[live.holding.key]
        self._has_changed(live.holding.key)
        live.row = NO_ATTEMPT

    def rerank(self, live: HeldAttempt, holding: Holding) -> None:
        """Gives the attempt another holding with the same placements, and its new place in the order."""
        self._unrank(live)
        live.holding = holding
        self._evictable_from_s[live.row] = holding.evictable_from_s
        self._started_s[live.row] = holding.started_s
        self._rows[live.row, WEIGHT] = holding.weight
        self._saved_s[live.row] = holding.unsaved_since_s
        self._checkpoint_interval_s[live.row] = holding.checkpoint_interval_s
        self._rank(live)
        self._has_changed(holding.key)

    def set_leaving(self, live: HeldAttempt, leaving: bool) -> None:
        """Whether the attempt is being evicted; then it is no candidate."""
        live.leaving = leaving
        self._rows[live.row, EVICTABLE] = not leaving
        self._has_changed(live.holding.key)

    def set_evictable(self, live: HeldAttempt, *, evictable: bool) -> None:
        """Whether the attempt may be chosen as a victim."""
        self._rows[live.row, EVICTABLE] = evictable

    def span(self, live: HeldAttempt) -> tuple[int, int]:
        """Where the attempt's entries begin and end."""
        return live.first_entry, live.first_entry + len(live.entries)

    def on_machine(self, machine: int) -> list[AttemptKey]:
        """The attempts that hold something there, sorted by workload and attempt."""
        used = self._entries[: self._used_entries]
        rows = used[used[:, MACHINE] == machine, ROW].tolist()
        keys = [live.holding.key for row in rows if row != NO_ATTEMPT and (live := self.by_row[row]) is not None]
        return sorted(keys, key=lambda key: (key.workload, key.attempt))

    def _published(self) -> AttemptArrays:
        arrays = AttemptArrays(
            self._live,
            self._order,
            self._rows,
            self._evictable_from_s,
            self._started_s,
            self._saved_s,
            self._checkpoint_interval_s,
            self._entries,
        )
        self._publish(arrays)
        return arrays

    def _rank(self, live: HeldAttempt) -> None:
        standing = live.holding.standing
        self._rows[live.row, PRIORITY] = standing.priority
        self._rows[live.row, LEVEL] = standing.level
        live.order_key = key = order_key(live.holding)
        keys, order = self.order_keys, self._order
        rank, count = bisect_left(keys, key), len(keys)
        if rank < count:
            order[rank + 1 : count + 1] = order[rank:count]
        order[rank] = live.row
        keys.insert(rank, key)
        self._live[0] = count + 1

    def _unrank(self, live: HeldAttempt) -> None:
        keys, order = self.order_keys, self._order
        rank, count = bisect_left(keys, live.order_key), len(keys)
        if rank < count - 1:
            order[rank : count - 1] = order[rank + 1 : count]
        del keys[rank]
        self._live[0] = count - 1

    def _another_row(self) -> int:
        """A row behind all others."""
        row = len(self.by_row)
        self.by_row.append(None)
        if row == len(self._order):
            self._order = np.concatenate((self._order, np.zeros_like(self._order)))
            self._rows = np.concatenate((self._rows, np.zeros_like(self._rows)))
            self._evictable_from_s = np.concatenate((self._evictable_from_s, np.zeros_like(self._evictable_from_s)))
            self._started_s = np.concatenate((self._started_s, np.zeros_like(self._started_s)))
            self._saved_s = np.concatenate((self._saved_s, np.zeros_like(self._saved_s)))
            interval_s = self._checkpoint_interval_s
            self._checkpoint_interval_s = np.concatenate((interval_s, np.zeros_like(interval_s)))
            self.arrays = self._published()
        return row

    def _make_space(self, newcomers: int) -> None:
        """Moves all entries together, into larger arrays unless half of the old ones were waste."""
        needed = self._used_entries - self._wasted_entries + newcomers
        size = len(self._entries)
        while 2 * needed > size:
            size *= 2
        self._entries = _no_entries(size)
        self.arrays = self._published()
        self._used_entries = self._wasted_entries = 0
        for live in self.by_row:
            if live is not None:
                self._move(live)

    def _move(self, live: HeldAttempt) -> None:
        """Stores the entries of an attempt behind the others."""
        first, end = self._used_entries, self._used_entries + len(live.entries)
        self._entries[first:end] = live.entries
        self._entries[first:end, ROW] = live.row
        live.first_entry = first
        self._rows[live.row, FIRST_ENTRY] = first
        self._rows[live.row, END_ENTRY] = end
        self._used_entries = end


def _no_entries(size: int) -> Integers:
    entries = np.zeros((size, ENTRY_COLUMNS), np.int64)
    entries[:, ROW] = NO_ATTEMPT
    return entries


def is_part_of(entries: Integers, whole: Integers) -> bool:
    """Whether everything in these entries is held by the others too."""
    if not np.all(np.isin(entries[:, MACHINE], whole[:, MACHINE])):
        return False
    there = whole[np.searchsorted(whole[:, MACHINE], entries[:, MACHINE])]
    same_gpus = np.all((entries[:, GPU_BITS] & ~there[:, GPU_BITS]) == 0)
    return bool(same_gpus and np.all(entries[:, :RESOURCES] <= there[:, :RESOURCES]))
