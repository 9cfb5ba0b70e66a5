"""The order of the queue under packings with static demands, at one moment (Synergy §5.7).

Rule: with DRF the workload of the smallest dominant share goes first. With Tetris the one of the greatest score, alignment
less remaining work; and then, beside what it leaves free, the next one, as long as any finds room. They take the place of
the ordering within a (priority, level); equals stand by submission.

Workloads that ask for the same in the same regions are of one kind: of a kind the first submitted is compared with the
firsts of others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from cluster_manager.capacity.tables import Reals
from cluster_manager.tuning.drf_packing import DrfPacking
from cluster_manager.tuning.packing_demands import packing_scores, place_of_next
from cluster_manager.tuning.tetris_packing import TetrisPacking

MOST_STARTS = 4_096
"""That one order foresees: what comes after them is ordered by the scores of then. The next pass goes on."""


class PackedWorkload(NamedTuple):
    """What a packing looks at."""

    kind: Hashable
    """Equal for workloads that ask for the same in the same regions."""
    dominant_share: float
    size: float
    """As `PackingDemands.size`."""


class Room(Protocol):
    """What is free, and what is left of it when something starts."""

    def alignment(self, kind: Hashable) -> float | None:
        """How well the kind is aligned with what is free; None: there is no room for it."""
        ...

    def take(self, kind: Hashable) -> None:
        """One of the kind starts."""
        ...


class PackingOrder(Protocol):
    """Orders what waits."""

    @property
    def needs_run_times(self) -> bool:
        """Whether it must know how long workloads will run."""
        ...

    @property
    def looks_at_idle(self) -> bool:
        """Whether it depends on what is free."""
        ...

    def credits(self, waiting: Sequence[PackedWorkload], remaining_s: Reals, room: Room) -> Reals:
        """One number for each, the greatest goes first. `waiting` are by submission; `room` is for this call alone."""
        ...


class SmallestDominantShare:
    """DRF, each workload a user of its own (DRF §4.1)."""

    needs_run_times = False
    looks_at_idle = False

    def credits(self, waiting: Sequence[PackedWorkload], remaining_s: Reals, room: Room) -> Reals:
        return np.array([-workload.dominant_share for workload in waiting], np.float64)


class GreatestScore:
    """Tetris (§3.3.2)."""

    needs_run_times = True
    looks_at_idle = True

    def credits(self, waiting: Sequence[PackedWorkload], remaining_s: Reals, room: Room) -> Reals:
        rows: dict[Hashable, deque[int]] = {}
        for row, workload in enumerate(waiting):
            rows.setdefault(workload.kind, deque()).append(row)
        work_left = [float(left_s) * workload.size for left_s, workload in zip(remaining_s, waiting, strict=True)]
        scores: dict[Hashable, float] = {}
        started: list[int] = []
        closed: set[Hashable] = set()
        while len(started) < MOST_STARTS:
            kinds = sorted([kind for kind in rows if rows[kind]], key=lambda kind: rows[kind][0])
            aligned = [None if kind in closed else room.alignment(kind) for kind in kinds]
            heads_left = [work_left[rows[kind][0]] for kind in kinds]
            finds_room = [place for place, alignment in enumerate(aligned) if alignment is not None]
            if not scores or finds_room:
                scores.update(zip(kinds, packing_scores(aligned, heads_left), strict=True))
            if not finds_room:
                break
            # Room is only ever taken.
            closed.update(kind for kind, alignment in zip(kinds, aligned, strict=True) if alignment is None)
            chosen = kinds[
                finds_room[
                    place_of_next([aligned[place] for place in finds_room], [heads_left[place] for place in finds_room])
                ]
            ]
            started.append(rows[chosen].popleft())
            room.take(chosen)
        numbers = np.array([scores[workload.kind] for workload in waiting], np.float64)
        # Those that start go first, in this order.
        first = float(numbers.max(initial=0.0))
        for place, row in enumerate(started):
            numbers[row] = first + len(started) - place
        return numbers


PACKING_ORDERS: Mapping[str, PackingOrder] = MappingProxyType(
    {DrfPacking().name: SmallestDominantShare(), TetrisPacking().name: GreatestScore()}
)
"""By the name of the mechanism."""
