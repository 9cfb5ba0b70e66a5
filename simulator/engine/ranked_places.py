"""The queue as a scan pass has ranked it, for auctions in rounds: who follows behind a place and is to be asked."""

from __future__ import annotations

from bisect import bisect_right
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from domain.identifiers import WorkloadId
from domain.rank import Standing
from kernels.compiled import compiled
from simulator.engine.columns import Integers, WorkloadColumns

SortKey: TypeAlias = tuple[int, int, float, float, str]
LEVELS = 1 << 20
"""More than there are levels."""


def standing_number(standing: Standing) -> int:
    """Smaller for a better one."""
    return standing.priority * LEVELS + standing.level


class RankedPlaces:
    """One ranking. What comes into the queue later is not in it; what has left it meanwhile is passed over."""

    def __init__(self, columns: WorkloadColumns, order: Integers) -> None:
        """`order` are the indices from the head on, of a pass whose ranks `columns` has just stored."""
        self._columns = columns
        self._order = order
        priority, level, self._within = columns.standings(order)
        self._priority, self._level = priority, level
        self._standing = priority * LEVELS + level
        self._credit = columns.credit[order]

    def following(
        self, after: SortKey | None, limit: int, refused: Integers, asked_in_walk: Integers, walk: int
    ) -> list[int]:
        """The indices of those that wait behind this place in the queue (None: from its head on), so many at most.

        Without those that this walk has asked already, and those that stand no better than what was refused of their kind
        on their side of the quota (`refused`, standings as numbers, by twice the kind and side).
        """
        start = 0 if after is None else bisect_right(range(len(self._order)), after, key=self._key)
        columns = self._columns
        places = _following(
            self._order,
            start,
            limit,
            columns.queued,
            columns.ranked_priority,
            columns.kind,
            self._within,
            self._standing,
            refused,
            asked_in_walk,
            walk,
        )
        return [int(self._order[place]) for place in places.tolist()]

    def _key(self, place: int) -> tuple[int, int, float, float, WorkloadId]:
        index = self._order[place]
        return (
            int(self._priority[place]),
            int(self._level[place]),
            -float(self._credit[place]),
            float(self._columns.submitted_s[index]),
            self._columns.names[index],
        )


@compiled
def _following(
    order: Integers,
    start: int,
    limit: int,
    queued: NDArray[np.bool_],
    ranked_priority: NDArray[np.int8],
    kind: NDArray[np.int32],
    within: NDArray[np.bool_],
    standing: Integers,
    refused: Integers,
    asked_in_walk: Integers,
    walk: int,
) -> Integers:
    """The places of the first that may be asked, from `start` on."""
    places = np.empty(limit, np.int64)
    found = 0
    place = start
    while place < order.size and found < limit:
        row = order[place]
        # What has come back since the pass has no rank.
        if queued[row] and ranked_priority[row] >= 0 and asked_in_walk[row] != walk:
            side = 1 if within[place] else 0
            if standing[place] < refused[2 * kind[row] + side]:
                places[found] = place
                found += 1
        place += 1
    return places[:found]
