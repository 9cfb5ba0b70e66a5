"""Whether all virtual clusters can still get what they own: invariant (2) of HiveD's proof, in O(levels)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Shortage(NamedTuple):
    """A level at which more cells are owed than there can be."""

    level: int
    owed: int
    available: int

    @property
    def missing(self) -> int:
        return self.owed - self.available


def first_shortage(free: Sequence[int], owed: Sequence[int], splits: Sequence[int]) -> Shortage | None:
    """The highest level k where r_k - a_k > f_k + F_k; None where all that is owed can be had.

    `free[k]` is f_k, `owed[k]` is r_k - a_k, `splits[k]` is h_k; entry 0 of each is unused. F_k is equation (1): what
    splitting the cells of higher levels gives once these levels have what they are owed.
    """
    from_above = 0
    for level in range(len(free) - 1, 0, -1):
        available = free[level] + from_above
        if owed[level] > available:
            return Shortage(level, owed[level], available)
        from_above = (available - owed[level]) * splits[level]
    return None


def stays_safe(free: Sequence[int], owed: Sequence[int], splits: Sequence[int], level: int, source: int) -> bool:
    """Whether the invariant holds after one cell of the level is bound that is split off a free one of level `source`.

    A cell of the level must be owed.
    """
    after = list(free)
    after[source] -= 1
    for lower in range(source - 1, level - 1, -1):
        after[lower] += splits[lower + 1] - 1
    left = list(owed)
    left[level] -= 1
    return after[source] >= 0 and first_shortage(after, left, splits) is None
