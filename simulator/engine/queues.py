"""Two ways to keep the queue in order, with one shape: kept as it was ranked, or ranked anew by each scan pass."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernels.compiled import compiled
from simulator.engine.columns import WorkloadColumns
from simulator.engine.one_workload import OneWorkload
from simulator.engine.workloads import SimulatedWorkload

_Entry: TypeAlias = tuple[int, int, float, float, int, SimulatedWorkload]
"""(priority, level, -credit, submit time, index): the one order (design §4), and whose place that is. The index is that of
(submit time, id), so two workloads are never compared themselves. Flat, for heaps compare entries all the time."""


class WorkloadQueue(Protocol):
    """What waits, in order, by kind."""

    def __len__(self) -> int: ...

    def add(self, work: SimulatedWorkload, now: float) -> None: ...

    def remove(self, work: SimulatedWorkload) -> None: ...

    def holds(self, work: SimulatedWorkload) -> bool:
        """Whether it waits here."""
        ...

    def rank_anew(self, now: float) -> None:
        """What policies are told has changed for all that wait."""
        ...

    def begin_pass(self) -> None:
        """From here on `next` begins at the head, and nothing is blocked."""
        ...

    def next(self) -> SimulatedWorkload | None:
        """The first that was not given out in this pass and is of no blocked kind."""
        ...

    def block(self, work: SimulatedWorkload) -> None:
        """None of its kind need be tried in this pass any more."""
        ...

    def block_kinds(self, finds_nothing: Callable[[SimulatedWorkload], bool], *, again: bool) -> int:
        """Blocks every kind whose first finds nothing: then its others find nothing either.

        `again`: what was blocked by the last call finds nothing still. So a queue need not ask for kinds of which nothing
        has come or gone since; returns for how many regions of their firsts it did not.
        """
        ...

    def heads(self) -> Sequence[SimulatedWorkload]:
        """The first of each kind that is not blocked, in queue order."""
        ...

    def in_order(self) -> Iterator[SimulatedWorkload]: ...


class RankedQueue:
    """Ranked once, when it comes in: for ordering policies whose credit does not change while a workload waits.

    Each kind is a heap; the head of the queue is the best of the heads of the kinds, which are a heap too. What it costs
    to find it does not depend on how many wait.
    """

    def __init__(self, one: OneWorkload) -> None:
        self._one = one
        self._heaps: dict[int, list[_Entry]] = {}
        """By kind. A kind of which none waits any more stays, so that kinds are always asked in the same order."""
        self._passed_over: list[_Entry] = []
        self._blocked: set[int] = set()
        self._hopeless: dict[int, int] = {}
        """The kinds that `block_kinds` has blocked and of which nothing has come or gone since, each with how many regions
        its first may run in."""
        self._heads: list[tuple[_Entry, int]] | None = None
        """A heap: the first of every kind that may still be given out, with its kind. None: not made yet."""
        self._waiting: dict[int, _Entry] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, work: SimulatedWorkload, now: float) -> None:
        entry = self._entry(work, now)
        work.credit = -entry[2]
        self._waiting[work.index] = entry
        self._hopeless.pop(work.kind, None)
        self._push(entry)
        self._heads = None

    def remove(self, work: SimulatedWorkload) -> None:
        # It stays in its heap until it comes to the head; what is not in `_waiting` does not count.
        del self._waiting[work.index]
        self._hopeless.pop(work.kind, None)

    def holds(self, work: SimulatedWorkload) -> bool:
        return work.index in self._waiting

    def rank_anew(self, now: float) -> None:
        entries = [entry for heap in (*self._heaps.values(), self._passed_over) for entry in heap if self._waits(entry)]
        for heap in self._heaps.values():
            heap.clear()
        self._passed_over.clear()
        for entry in entries:
            self.add(entry[-1], now)

    def begin_pass(self) -> None:
        self._blocked.clear()
        self._heads = None
        for entry in self._passed_over:
            if self._waits(entry):
                self._push(entry)
        self._passed_over.clear()

    def next(self) -> SimulatedWorkload | None:
        heads = self._heads
        if heads is None:
            heads = self._heads = self._open_heads()
        while heads:
            head, kind = heads[0]
            first = None if kind in self._blocked else self._first_of(kind)
            if first is None:
                heapq.heappop(heads)
            elif first is not head:
                heapq.heapreplace(heads, (first, kind))
            else:
                self._passed_over.append(heapq.heappop(self._heaps[kind]))
                following = self._first_of(kind)
                if following is None:
                    heapq.heappop(heads)
                else:
                    heapq.heapreplace(heads, (following, kind))
                return first[-1]
        return None

    def block(self, work: SimulatedWorkload) -> None:
        self._blocked.add(work.kind)

    def block_kinds(self, finds_nothing: Callable[[SimulatedWorkload], bool], *, again: bool) -> int:
        hopeless, waiting, heads = self._hopeless, self._waiting, []
        if not again:
            hopeless.clear()
        spared = sum(hopeless.values()) if hopeless else 0
        for kind, heap in self._heaps.items():
            if not heap or kind in hopeless:
                continue
            while heap:
                first = heap[0]
                work = first[-1]
                if waiting.get(work.index) is first:
                    if finds_nothing(work):
                        hopeless[kind] = len(work.eligible)
                    else:
                        heads.append((first, kind))
                    break
                heapq.heappop(heap)
        self._blocked.update(hopeless)
        heapq.heapify(heads)
        self._heads = heads
        return spared

    def heads(self) -> Sequence[SimulatedWorkload]:
        firsts = [self._first_of(kind) for kind in self._heaps if kind not in self._blocked]
        return [first[-1] for first in sorted([first for first in firsts if first is not None])]

    def in_order(self) -> Iterator[SimulatedWorkload]:
        entries = [entry for heap in (*self._heaps.values(), self._passed_over) for entry in heap if self._waits(entry)]
        return iter([entry[-1] for entry in sorted(entries)])

    def _open_heads(self) -> list[tuple[_Entry, int]]:
        firsts = [(self._first_of(kind), kind) for kind in self._heaps if kind not in self._blocked]
        heads = [(first, kind) for first, kind in firsts if first is not None]
        heapq.heapify(heads)
        return heads

    def _first_of(self, kind: int) -> _Entry | None:
        """The first of the kind that waits and was not given out; drops from its heap what waits no more."""
        heap, waiting = self._heaps[kind], self._waiting
        while heap:
            first = heap[0]
            if waiting.get(first[-1].index) is first:
                return first
            heapq.heappop(heap)
        return None

    def _push(self, entry: _Entry) -> None:
        kind = entry[-1].kind
        heap = self._heaps.get(kind)
        if heap is None:
            heap = self._heaps[kind] = []
        heapq.heappush(heap, entry)

    def _waits(self, entry: _Entry) -> bool:
        return self._waiting.get(entry[-1].index) is entry

    def _entry(self, work: SimulatedWorkload, now: float) -> _Entry:
        # Levels that move with time are ordered as the ordering policy orders.
        level = 0 if self._one.moves_with_time else work.standing.level
        return (0, level, -self._one.ordering_credit(work, now), work.submitted_s, work.index, work)


class ScannedQueue:
    """Ranked by scan passes: what came in since the last one waits for the next."""

    def __init__(
        self, columns: WorkloadColumns, workloads: Sequence[SimulatedWorkload], *, guaranteed_apart: bool = False
    ) -> None:
        """`workloads` are all that were submitted, by index; more may come.

        `guaranteed_apart`: where one that is over its quota finds nothing, one of its kind within quota may find a place.
        """
        self._guaranteed_apart = guaranteed_apart
        self._columns = columns
        self._workloads = workloads
        self._waiting = 0
        self._order = np.zeros(0, np.int64)
        self._kinds = np.zeros(0, np.int32)
        self._queued = np.zeros(0, np.bool_)
        """By place in the order: whether it waited when the pass began."""
        self._blocked = np.zeros(0, np.bool_)
        """By kind."""
        self._position = 0

    def __len__(self) -> int:
        return self._waiting

    def add(self, work: SimulatedWorkload, now: float) -> None:
        self._columns.queue(work)
        self._waiting += 1

    def remove(self, work: SimulatedWorkload) -> None:
        self._columns.queued[work.index] = False
        self._waiting -= 1

    def holds(self, work: SimulatedWorkload) -> bool:
        return bool(self._columns.queued[work.index])

    def rank_anew(self, now: float) -> None:
        """The next scan pass does."""

    def rank(self, order: NDArray[np.int64]) -> None:
        """The order that a scan pass decided: indices from the head on."""
        self._order = order
        if self._guaranteed_apart:
            works = (self._workloads[index] for index in order.tolist())
            self._kinds = np.array([self._kind_of(work) for work in works], np.int32)
        else:
            self._kinds = self._columns.kind[order]
        self._queued = np.zeros(0, np.bool_)  # nothing is given out before the next pass begins

    def begin_pass(self) -> None:
        self._position = 0
        self._queued = self._columns.queued[self._order]
        self._blocked = np.zeros(self._columns.kinds * (2 if self._guaranteed_apart else 1), np.bool_)

    def next(self) -> SimulatedWorkload | None:
        place = _next_open(self._queued, self._kinds, self._blocked, self._position)
        self._position = place + 1
        return self._at(place) if place < len(self._order) else None

    def block(self, work: SimulatedWorkload) -> None:
        kind = self._kind_of(work)
        if kind < len(self._blocked):  # else none of it waited when the pass began
            self._blocked[kind] = True

    def block_kinds(self, finds_nothing: Callable[[SimulatedWorkload], bool], *, again: bool) -> int:
        # A scan pass may have given any of them another standing.
        for work in self.heads():
            if finds_nothing(work):
                self.block(work)
        return 0

    def heads(self) -> Sequence[SimulatedWorkload]:
        if not len(self._queued):
            return []
        # What has started since the pass began waits no more.
        waiting = self._queued & self._columns.queued[self._order]
        return [self._at(place) for place in _first_of_each_kind(waiting, self._kinds, self._blocked).tolist()]

    def in_order(self) -> Iterator[SimulatedWorkload]:
        waiting = np.flatnonzero(self._columns.queued[self._order])
        return iter([self._at(place) for place in waiting.tolist()])

    def _kind_of(self, work: SimulatedWorkload) -> int:
        return 2 * work.kind + work.within_quota if self._guaranteed_apart else work.kind

    def _at(self, place: int) -> SimulatedWorkload:
        work = self._workloads[int(self._order[place])]
        # Credits grow with age, so every pass gives new ones: they are copied when they are looked at.
        work.credit = float(self._columns.credit[work.index])
        return work


@compiled
def _next_open(queued: NDArray[np.bool_], kinds: NDArray[np.int32], blocked: NDArray[np.bool_], place: int) -> int:
    """The first place from `place` on whose workload waits and is of no blocked kind; the length if there is none."""
    while place < queued.size and (not queued[place] or blocked[kinds[place]]):
        place += 1
    return min(place, queued.size)


@compiled
def _first_of_each_kind(
    queued: NDArray[np.bool_], kinds: NDArray[np.int32], blocked: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Of each kind that is not blocked the first place whose workload waits, ascending."""
    seen = blocked.copy()
    places = np.empty(blocked.size, np.int64)
    found = 0
    for place in range(queued.size):
        if queued[place] and not seen[kinds[place]]:
            seen[kinds[place]] = True
            places[found] = place
            found += 1
    return places[:found]
