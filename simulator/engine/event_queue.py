"""What is going to happen, in order of (time, kind, sequence)."""

from __future__ import annotations

import heapq
import math
from enum import IntEnum
from typing import TypeAlias

NO_SUBJECT = -1
EVERY_KIND = 1 << 30
"""Behind all kinds."""


class Happens(IntEnum):
    """Kinds of events. Of those at one instant, what gives room back comes first, then what asks for it, then what decides."""

    # An Enum hashes its name in Python; as a number it is hashed in C.
    __hash__ = int.__hash__

    COMPLETION = 0
    TIME_LIMIT = 1
    """An attempt has run for as long as its workload allows."""
    VACATED = 2
    """An attempt that was asked to leave has saved its work and is gone."""
    MACHINE_UP = 3
    MACHINE_DOWN = 4
    LEVEL_CHANGE = 5
    EVICTABLE = 6
    """Time alone makes room: from now on the attempt may be evicted."""
    START = 7
    SUBMISSION = 8
    RETURN_TO_QUEUE = 9
    """A workload that had to wait after a failure may be ranked again."""
    PROMOTION = 10
    """A workload has waited for so long that it may go back to the best level."""
    LOAN_CHANGE = 11
    ACTION = 12
    """What runs is to be resized, retuned or moved."""
    TRIAL_OVER = 13
    """An attempt has run for so long that the skew of its model is known."""
    TABLES = 14
    """A copy of a table is complete, or a move of one is due."""
    SCAN_PASS = 15
    AUCTION = 16
    ROUND = 17
    """What runs may be resized and retuned."""


QueuedEvent: TypeAlias = tuple[float, int, int, int, int]
"""One thing that is going to happen: when, of what kind, its sequence, the subject (a workload's index, or a machine's
place) and what the subject's token must still be for the event to mean anything.

The sequence is unique, so no two of them compare equal. There are very many, so they are plain tuples.
"""


class EventQueue:
    """Events to come. Takes none that lies in the past."""

    __slots__ = ("_heap", "_sequence", "now_s")

    def __init__(self) -> None:
        self._heap: list[QueuedEvent] = []
        self._sequence = 0
        self.now_s = -math.inf
        """When the last event that was taken happened."""

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, time_s: float, kind: Happens, subject: int = NO_SUBJECT, token: int = 0) -> None:
        """Raises ValueError for an event in the past, or at no time."""
        if not time_s >= self.now_s:
            raise ValueError(f"{kind.name} at {time_s} lies before {self.now_s}")
        self._sequence += 1
        heapq.heappush(self._heap, (time_s, kind, self._sequence, subject, token))

    def next_time_s(self) -> float:
        """When the next event happens; infinity when there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def take_due(self, now: float, before_kind: int = EVERY_KIND) -> QueuedEvent | None:
        """Removes the next event if it is due by `now`, and of a kind before that one; else None."""
        heap = self._heap
        if not heap or heap[0][0] > now or heap[0][1] >= before_kind:
            return None
        event = heapq.heappop(heap)
        self.now_s = event[0]
        return event
