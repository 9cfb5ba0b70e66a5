"""Two ways to keep the queue in order, with one shape: kept as it was ranked, or ranked anew by each scan pass."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simulator.engine.columns import WorkloadColumns
from simulator.engine.one_workload import OneWorkload
from simulator.engine.workloads import SimulatedWorkload

QueueKey: TypeAlias = tuple[int, int, float, float, int]
"""(priority, level, -credit, submit time, index): the one order (design §4); the index is that of (submit time, id)."""


class Queue(Protocol):
    """Who waits, in order, by kind."""

    def __len__(self) -> int: ...

    def add(self, work: SimulatedWorkload, now: float) -> None: ...

    def remove(self, work: SimulatedWorkload) -> None: ...

    def begin_walk(self) -> None:
        """From here on `next` begins at the head, and nobody is blocked."""
        ...

    def next(self) -> SimulatedWorkload | None:
        """The first that was not given out in this walk and is of no blocked kind."""
        ...

    def block(self, kind: int) -> None:
        """Nobody of this kind need be tried in this walk any more."""
        ...

    def block_kinds(self, finds_nothing: Callable[[SimulatedWorkload], bool]) -> None:
        """Blocks every kind whose first finds nothing: then its others find nothing either."""
        ...

    def heads(self) -> Sequence[SimulatedWorkload]:
        """The first of each kind that is not blocked, in queue order."""
        ...

    def in_order(self) -> Iterator[SimulatedWorkload]: ...


class RankedQueue:
    """Ranked once, when it comes in: for ordering policies whose credit does not change while a workload waits.

    Each kind is a heap; the head of the queue is the best of the heads of the kinds. What it costs to find it does
    not depend on how many wait.
    """

    def __init__(self, one: OneWorkload) -> None:
        self._one = one
        self._heaps: dict[int, list[tuple[QueueKey, SimulatedWorkload]]] = {}
        self._passed_over: dict[int, list[tuple[QueueKey, SimulatedWorkload]]] = {}
        self._blocked: set[int] = set()
        self._waiting: dict[int, QueueKey] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, work: SimulatedWorkload, now: float) -> None:
        key = self._key(work, now)
        work.credit = -key[2]
        self._waiting[work.index] = key
        heapq.heappush(self._heaps.setdefault(work.kind, []), (key, work))

    def remove(self, work: SimulatedWorkload) -> None:
        # It stays in its heap until it comes to the head; who is not in `_waiting` does not count.
        del self._waiting[work.index]

    def begin_walk(self) -> None:
        self._blocked.clear()
        for kind, entries in self._passed_over.items():
            heap = self._heaps[kind]
            for entry in entries:
                heapq.heappush(heap, entry)
        self._passed_over.clear()

    def next(self) -> SimulatedWorkload | None:
        best_kind, best_key = -1, None
        for kind, heap in self._heaps.items():
            if kind in self._blocked:
                continue
            self._clean(heap)
            if heap and (best_key is None or heap[0][0] < best_key):
                best_kind, best_key = kind, heap[0][0]
        if best_key is None:
            return None
        entry = heapq.heappop(self._heaps[best_kind])
        self._passed_over.setdefault(best_kind, []).append(entry)
        return entry[1]

    def block(self, kind: int) -> None:
        self._blocked.add(kind)

    def block_kinds(self, finds_nothing: Callable[[SimulatedWorkload], bool]) -> None:
        for kind, heap in self._heaps.items():
            self._clean(heap)
            if not heap or finds_nothing(heap[0][1]):
                self._blocked.add(kind)

    def heads(self) -> Sequence[SimulatedWorkload]:
        heads = []
        for kind, heap in self._heaps.items():
            if kind not in self._blocked:
                self._clean(heap)
                if heap:
                    heads.append(heap[0])
        return [work for _, work in sorted(heads, key=lambda entry: entry[0])]

    def in_order(self) -> Iterator[SimulatedWorkload]:
        entries = [
            entry
            for entries in (*self._heaps.values(), *self._passed_over.values())
            for entry in entries
            if self._waiting.get(entry[1].index) is entry[0]
        ]
        entries.sort(key=lambda entry: entry[0])
        return iter([work for _, work in entries])

    def _clean(self, heap: list[tuple[QueueKey, SimulatedWorkload]]) -> None:
        """Drops entries that wait no more from the head of a heap."""
        while heap and self._waiting.get(heap[0][1].index) is not heap[0][0]:
            heapq.heappop(heap)

    def _key(self, work: SimulatedWorkload, now: float) -> QueueKey:
        # Levels that move with time are ordered as the ordering policy orders.
        level = 0 if self._one.moves_with_time else work.standing.level
        return (0, level, -self._one.ordering_credit(work, now), work.submitted_s, work.index)


class ScannedQueue:
    """Ranked by scan passes: who came in since the last one waits for the next."""

    def __init__(self, columns: WorkloadColumns, workloads: Sequence[SimulatedWorkload]) -> None:
        """`workloads` are all that were submitted, by index; more may come."""
        self._columns = columns
        self._workloads = workloads
        self._waiting = 0
        self._order = np.zeros(0, np.int64)
        self._kinds = np.zeros(0, np.int32)
        self._open = np.zeros(0, np.bool_)
        """By place in the order: it was not given out in this walk and is of no blocked kind."""
        self._position = 0

    def __len__(self) -> int:
        return self._waiting

    def add(self, work: SimulatedWorkload, now: float) -> None:
        self._columns.queue(work)
        self._waiting += 1

    def remove(self, work: SimulatedWorkload) -> None:
        self._columns.queued[work.index] = False
        self._waiting -= 1

    def rank(self, order: NDArray[np.int64]) -> None:
        """The order that a scan pass decided: indices from the head on."""
        self._order = order
        self._kinds = self._columns.kind[order]

    def begin_walk(self) -> None:
        self._position = 0
        self._open = self._columns.queued[self._order]

    def next(self) -> SimulatedWorkload | None:
        still_open = self._open[self._position :]
        ahead = int(still_open.argmax()) if len(still_open) else 0
        if not len(still_open) or not still_open[ahead]:
            self._position = len(self._order)
            return None
        self._position += ahead + 1
        return self._at(self._position - 1)

    def block(self, kind: int) -> None:
        self._open &= self._kinds != kind

    def block_kinds(self, finds_nothing: Callable[[SimulatedWorkload], bool]) -> None:
        for work in self.heads():
            if finds_nothing(work):
                self.block(work.kind)

    def heads(self) -> Sequence[SimulatedWorkload]:
        places = np.flatnonzero(self._open)
        _, firsts = np.unique(self._kinds[places], return_index=True)
        return [self._at(place) for place in places[np.sort(firsts)].tolist()]

    def in_order(self) -> Iterator[SimulatedWorkload]:
        waiting = np.flatnonzero(self._columns.queued[self._order])
        return iter([self._at(place) for place in waiting.tolist()])

    def _at(self, place: int) -> SimulatedWorkload:
        work = self._workloads[int(self._order[place])]
        # Credits grow with age, so every pass gives new ones: they are copied where somebody looks.
        work.credit = float(self._columns.credit[work.index])
        return work
