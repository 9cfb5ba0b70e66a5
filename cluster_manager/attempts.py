"""The live attempts in arrays: what each holds, machine by machine, and the order in which they would be evicted."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from cluster_manager.machines import RESOURCES, Booleans, Integers, Reals
from domain.placement import AttemptKey, Holding

OrderKey: TypeAlias = tuple[int, int, float, str, int]


class AttemptArrays(NamedTuple):
    """What the kernels need of each live attempt (rows of ended attempts are used again)."""

    order: Integers  # [rank] rows, worst standing first, then longest running, then id
    priority: Integers  # [row]
    level: Integers  # [row]
    started_s: Reals  # [row]
    evictable: Booleans  # [row] not already being evicted
    first_entry: Integers  # [row]
    end_entry: Integers  # [row]


class EntryArrays(NamedTuple):
    """What an attempt holds on one machine is an entry; an attempt's entries are contiguous, in machine order."""

    machine: Integers  # [entry]
    amounts: Integers  # [entry, resource]
    gpu_bits: Integers  # [entry]
    cluster_end: Integers  # [entry] the attempt's first entry after this one that is in another cluster, or its end
    row: Integers  # [entry] the attempt; NOBODY where nothing is stored


NOBODY = -1


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of one attempt, not yet stored with the others."""

    machine: Integers
    amounts: Integers
    gpu_bits: Integers
    cluster_end: Integers  # relative to the first


@dataclass(slots=True)
class Live:
    """A live attempt: what is held, whether it is being evicted, and where it stands in the arrays."""

    holding: Holding
    entries: Entries
    leaving: bool = False
    row: int = NOBODY


def order_key(holding: Holding) -> OrderKey:
    """Ascending order of this key: lowest priority and worst level first, longest running first, then id."""
    standing = holding.standing
    return (-standing.priority, -standing.level, holding.started_s, holding.key.workload, holding.key.attempt)


@dataclass(slots=True)
class LiveAttempts:
    """All live attempts of a region, by key and in the arrays."""

    arrays: AttemptArrays = field(default_factory=lambda: _attempt_arrays(64))
    entries: EntryArrays = field(default_factory=lambda: _entry_arrays(1024))
    by_key: dict[AttemptKey, Live] = field(default_factory=dict)
    by_row: list[Live | None] = field(default_factory=list)
    _free_rows: list[int] = field(default_factory=list)
    _order_keys: list[OrderKey] = field(default_factory=list)
    _used_entries: int = 0
    _wasted_entries: int = 0

    @property
    def count(self) -> int:
        """How many there are: so many ranks of the order are in use."""
        return len(self._order_keys)

    @property
    def used_entries(self) -> int:
        """How many of the entries are in use, or were by attempts that have ended (row NOBODY)."""
        return self._used_entries

    def add(self, live: Live) -> None:
        """Takes an attempt in: gives it a row, stores its entries, and sorts it into the order."""
        live.row = self._new_row(live)
        self.by_key[live.holding.key] = live
        first = self._store(live)
        row = live.row
        self.arrays.first_entry[row] = first
        self.arrays.end_entry[row] = self._used_entries
        self.arrays.started_s[row] = live.holding.started_s
        self.arrays.evictable[row] = not live.leaving
        self._rank(live)

    def remove(self, live: Live) -> None:
        """Forgets an attempt."""
        row = live.row
        first, end = int(self.arrays.first_entry[row]), int(self.arrays.end_entry[row])
        self.entries.row[first:end] = NOBODY
        if end == self._used_entries:
            self._used_entries = first
        else:
            self._wasted_entries += end - first
        self._unrank(live)
        self.arrays.evictable[row] = False
        self.by_row[row] = None
        self._free_rows.append(row)
        del self.by_key[live.holding.key]
        live.row = NOBODY

    def rerank(self, live: Live, holding: Holding) -> None:
        """Gives the attempt another holding with the same placements, and its new place in the order."""
        self._unrank(live)
        live.holding = holding
        self._rank(live)

    def span(self, live: Live) -> tuple[int, int]:
        """Where the attempt's entries begin and end."""
        return int(self.arrays.first_entry[live.row]), int(self.arrays.end_entry[live.row])

    def _rank(self, live: Live) -> None:
        standing = live.holding.standing
        self.arrays.priority[live.row] = standing.priority
        self.arrays.level[live.row] = standing.level
        key = order_key(live.holding)
        rank = bisect_left(self._order_keys, key)
        order = self.arrays.order
        order[rank + 1 : self.count + 1] = order[rank : self.count]
        order[rank] = live.row
        insort(self._order_keys, key)

    def _unrank(self, live: Live) -> None:
        rank = bisect_left(self._order_keys, order_key(live.holding))
        order = self.arrays.order
        order[rank : self.count - 1] = order[rank + 1 : self.count]
        del self._order_keys[rank]

    def _new_row(self, live: Live) -> int:
        if self._free_rows:
            row = self._free_rows.pop()
            self.by_row[row] = live
            return row
        row = len(self.by_row)
        self.by_row.append(live)
        if row == len(self.arrays.order):
            larger = _attempt_arrays(2 * row)
            for old, new in zip(self.arrays, larger, strict=True):
                new[:row] = old
            self.arrays = larger
        return row

    def _store(self, live: Live) -> int:
        """Stores the entries behind the others; returns where they begin."""
        entries = live.entries
        needed = len(entries.machine)
        if self._used_entries + needed > len(self.entries.machine):
            self._make_space(needed, live)
        first, end = self._used_entries, self._used_entries + needed
        self.entries.machine[first:end] = entries.machine
        self.entries.amounts[first:end] = entries.amounts
        self.entries.gpu_bits[first:end] = entries.gpu_bits
        self.entries.cluster_end[first:end] = entries.cluster_end + first
        self.entries.row[first:end] = live.row
        self._used_entries = end
        return first

    def _make_space(self, needed: int, newcomer: Live) -> None:
        """Moves all entries but the newcomer's together, into larger arrays unless half of the old ones were waste."""
        in_use = self._used_entries - self._wasted_entries
        size = len(self.entries.machine)
        while 2 * (in_use + needed) > size:
            size *= 2
        self.entries = _entry_arrays(size)
        self._used_entries = self._wasted_entries = 0
        for live in self.by_row:
            if live is not None and live is not newcomer:
                first = self._store(live)
                self.arrays.first_entry[live.row] = first
                self.arrays.end_entry[live.row] = self._used_entries


def _attempt_arrays(rows: int) -> AttemptArrays:
    return AttemptArrays(
        order=np.zeros(rows, np.int64),
        priority=np.zeros(rows, np.int64),
        level=np.zeros(rows, np.int64),
        started_s=np.zeros(rows, np.float64),
        evictable=np.zeros(rows, np.bool_),
        first_entry=np.zeros(rows, np.int64),
        end_entry=np.zeros(rows, np.int64),
    )


def _entry_arrays(size: int) -> EntryArrays:
    return EntryArrays(
        machine=np.zeros(size, np.int64),
        amounts=np.zeros((size, RESOURCES), np.int64),
        gpu_bits=np.zeros(size, np.int64),
        cluster_end=np.zeros(size, np.int64),
        row=np.full(size, NOBODY, np.int64),
    )
