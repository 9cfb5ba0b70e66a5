"""What policies calculate with: one definition serves a whole queue as columns, and a single workload as plain numbers.

A scan pass ranks a queue at once; a simulation without scan passes ranks one workload at a time, where columns of one
row would cost twenty times as much. A policy is written once, with operators and these functions; both forms do the
same operations on doubles in the same order, so that their results are equal to the bit.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Condition: TypeAlias = bool | NDArray[np.bool_]
"""Of one workload, or one element per workload."""

Numbers = TypeVar("Numbers", float, Floats)
"""A number of one workload, or one element per workload."""

Side: TypeAlias = Literal["left", "right"]


class Arithmetic(Protocol, Generic[Numbers]):
    """What operators cannot say."""

    def ceiling(self, number: Numbers) -> Numbers:
        """The least whole number that is not smaller."""
        ...

    def larger(self, number: Numbers, other: float) -> Numbers:
        """The larger of the two. Neither may be no number."""
        ...

    def choose(self, condition: Condition, then: Numbers | float, otherwise: Numbers | float) -> Numbers:
        """The one where the condition holds, the other where it does not."""
        ...

    def position(self, bounds: Sequence[float], number: Numbers, side: Side) -> Numbers:
        """How many of the ascending `bounds` are smaller than the number; with `right`, or equal to it."""
        ...

    def pick(self, table: Sequence[float], position: Numbers) -> Numbers:
        """The element of the table at that position."""
        ...


class ColumnArithmetic:
    """One element per workload."""

    def ceiling(self, number: Floats) -> Floats:
        rounded: Floats = np.ceil(number)
        return rounded

    def larger(self, number: Floats, other: float) -> Floats:
        largest: Floats = np.maximum(number, other)
        return largest

    def choose(self, condition: Condition, then: Floats | float, otherwise: Floats | float) -> Floats:
        return np.where(condition, then, otherwise)

    def position(self, bounds: Sequence[float], number: Floats, side: Side) -> Floats:
        return np.searchsorted(bounds, number, side=side).astype(np.float64)

    def pick(self, table: Sequence[float], position: Floats) -> Floats:
        return np.asarray(table, np.float64)[position.astype(np.int64)]


class PlainArithmetic:
    """One workload."""

    def ceiling(self, number: float) -> float:
        return math.ceil(number)

    def larger(self, number: float, other: float) -> float:
        return max(number, other)

    def choose(self, condition: Condition, then: float, otherwise: float) -> float:
        return then if condition else otherwise

    def position(self, bounds: Sequence[float], number: float, side: Side) -> float:
        return bisect_left(bounds, number) if side == "left" else bisect_right(bounds, number)

    def pick(self, table: Sequence[float], position: float) -> float:
        return table[int(position)]


COLUMNS: Arithmetic[Floats] = ColumnArithmetic()
PLAIN: Arithmetic[float] = PlainArithmetic()
