"""The multiple-choice knapsack problem, exactly, by dynamic programming (Lyra §5.2) within bounds of the linear relaxation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cluster_manager.capacity.tables import Integers, Reals
from cluster_manager.elastic.knapsack_bounds import room_bounds
from kernels.compiled import compiled_beside_others

Places: TypeAlias = NDArray[np.uint16] | NDArray[np.uint32]
"""By group and room: the place of the item that is chosen there. Integers of 16 bits where groups have few items."""


class WeightedValue(NamedTuple):
    """What choosing an item takes of the capacity (0 or more), and what it is worth (any finite number)."""

    weight: int
    value: float


def best_choice(groups: Sequence[Sequence[WeightedValue]], capacity: int) -> tuple[int, ...]:
    """For each group the place of the item that is chosen: together of the most value that the capacity allows.

    Of equal values those of the first items are chosen, groups from the last to the first. Raises ValueError when the
    lightest items of all groups are too heavy together, and for a group without items.

    It takes time in proportion to items times what `room_bounds` leaves open of the capacity: little where groups differ,
    all of it where every item of every group is of equal value for its weight. Where there is enough for the best item of
    every group nothing is searched; weights that have a common divisor are divided by it.
    """
    if not groups:
        return ()
    if not all(groups):
        raise ValueError("a group without items: there is nothing to choose")
    first = np.cumsum([0, *map(len, groups)])
    weights = np.fromiter([item[0] for item in chain.from_iterable(groups)], np.int64, first[-1])
    values = np.fromiter([item[1] for item in chain.from_iterable(groups)], np.float64, first[-1])
    needed = int(np.minimum.reduceat(weights, first[:-1]).sum())
    if needed > capacity:
        raise ValueError(f"the lightest items of all groups weigh {needed} together, more than the capacity {capacity}")
    chosen = np.empty(len(groups), np.int64)
    if choose_best(first, weights, values, chosen) <= capacity:
        return tuple(chosen.tolist())
    divisor = max(1, int(np.gcd.reduce(weights)))
    weights //= divisor
    heaviest = int(np.maximum.reduceat(weights, first[:-1]).sum())
    least, most = room_bounds(first, weights, values, min(capacity // divisor, heaviest))
    # By far the most memory where the bounds are far apart.
    starts = np.cumsum(most - least + 1)
    kind = np.uint16 if np.diff(first).max() <= np.iinfo(np.uint16).max else np.uint32
    choose_items(
        first, weights, values, least, most, starts - starts[0], np.empty(starts[-1] - starts[0], kind), chosen
    )
    return tuple(chosen.tolist())


@compiled_beside_others
def choose_best(first: Integers, weights: Integers, values: Reals, chosen: Integers) -> int:
    """Fills `chosen[group]` with the place of the first item of greatest value; returns what these weigh together."""
    weight = 0
    for group in range(len(chosen)):
        best = first[group]
        for item in range(first[group] + 1, first[group + 1]):
            if values[item] > values[best]:
                best = item
        chosen[group] = best - first[group]
        weight += weights[best]
    return weight


@compiled_beside_others
def choose_items(
    first: Integers,
    weights: Integers,
    values: Reals,
    least: Integers,
    most: Integers,
    starts: Integers,
    places: Places,
    chosen: Integers,
) -> None:
    """Fills `chosen[group]` with the place of the chosen item in its group; items of a group are first[group:group + 2].

    What so many first groups are left stays from `least` to `most`; all of them have the capacity, which is both. `places` is for its own
    use: those of a group from `starts[group]` on.
    """
    # The value of the best choice from the groups so far, by what it may weigh at most.
    widest = (most - least).max() + 1
    best, before = np.zeros(widest), np.zeros(widest)
    for group in range(len(chosen)):
        before, best = best, before
        open_before, open_now = most[group] - least[group], most[group + 1] - least[group + 1]
        best[: open_now + 1] = -np.inf
        for item in range(first[group], first[group + 1]):
            value = values[item]
            # From the place of a room now to that of what is left before the item.
            shift = least[group + 1] - weights[item] - least[group]
            for room in range(max(0, -shift), min(open_now, open_before - shift) + 1):
                total = before[room + shift] + value
                if total > best[room]:
                    best[room] = total
                    places[starts[group] + room] = item - first[group]
    room = most[-1]
    for group in range(len(chosen) - 1, -1, -1):
        chosen[group] = places[starts[group] + room - least[group + 1]]
        room -= weights[first[group] + chosen[group]]
