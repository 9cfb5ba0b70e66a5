"""Two ways to keep the queue in order, with one shape: kept as it was ranked, or ranked anew by each scan pass."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from global_scheduler.ordering.policy import OrderingInput, OrderingPolicy, QueuedWork
from simulator.engine.workloads import SimulatedWorkload
from simulator.policies.levels import LevelPolicy

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

    def __init__(self, ordering: OrderingPolicy, levels: LevelPolicy) -> None:
        self._ordering = ordering
        self._levels = levels
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
        level = 0 if self._levels.moves_with_time else self._levels.queued_level(work, now)
        queue = OrderingInput(
            submitted_s=np.array([work.submitted_s]),
            credit=np.zeros(1),
            now=now,
            work=QueuedWork(
                gpus=np.array([float(work.gpus)]),
                remaining_s=np.array([work.remaining_s]),
                attained_gpu_s=np.array([work.attained_gpu_s]),
                queued_since_s=np.array([work.queued_since_s]),
            ),
        )
        credit = float(self._ordering.ordering_credit(queue)[0])
        return (0, level, -credit, work.submitted_s, work.index)


class ScannedQueue:
    """Ranked by scan passes: who came in since the last one waits for the next."""

    def __init__(self) -> None:
        self._waiting: dict[int, SimulatedWorkload] = {}
        self._order: list[SimulatedWorkload] = []
        self._position = 0
        self._blocked: set[int] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, work: SimulatedWorkload, now: float) -> None:
        self._waiting[work.index] = work

    def remove(self, work: SimulatedWorkload) -> None:
        del self._waiting[work.index]

    def waiting(self) -> list[SimulatedWorkload]:
        """All that wait, by index."""
        return [self._waiting[index] for index in sorted(self._waiting)]

    def rank(self, order: list[SimulatedWorkload]) -> None:
        """The order that a scan pass decided, from the head on."""
        self._order = order

    def begin_walk(self) -> None:
        self._position = 0
        self._blocked.clear()

    def next(self) -> SimulatedWorkload | None:
        order, blocked, waiting = self._order, self._blocked, self._waiting
        for position in range(self._position, len(order)):
            work = order[position]
            if work.kind not in blocked and work.index in waiting:
                self._position = position + 1
                return work
        self._position = len(order)
        return None

    def block(self, kind: int) -> None:
        self._blocked.add(kind)

    def block_kinds(self, finds_nothing: Callable[[SimulatedWorkload], bool]) -> None:
        firsts: dict[int, SimulatedWorkload] = {}
        for work in self._order:
            if work.kind not in firsts and work.index in self._waiting:
                firsts[work.kind] = work
        self._blocked.update(kind for kind, work in firsts.items() if finds_nothing(work))

    def heads(self) -> Sequence[SimulatedWorkload]:
        heads: dict[int, SimulatedWorkload] = {}
        for work in self._order[self._position :]:
            if work.kind not in self._blocked and work.index in self._waiting:
                heads.setdefault(work.kind, work)
        return list(heads.values())

    def in_order(self) -> Iterator[SimulatedWorkload]:
        return iter([work for work in self._order if work.index in self._waiting])
