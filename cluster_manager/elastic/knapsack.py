"""The multiple-choice knapsack problem, exactly, by dynamic programming (Lyra §5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cluster_manager.capacity.tables import Integers, Reals
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

    It takes time in proportion to items times capacity, unless there is enough for the best item of every group; weights
    that have a common divisor are divided by it.
    """
    if not groups:
        return ()
    if not all(groups):
        raise ValueError("a group without items: there is nothing to choose")
    of_groups = [[item.weight for item in group] for group in groups]
    needed, heaviest = sum(map(min, of_groups)), sum(map(max, of_groups))
    if needed > capacity:
        raise ValueError(f"the lightest items of all groups weigh {needed} together, more than the capacity {capacity}")
    best = [max(range(len(group)), key=[item.value for item in group].__getitem__) for group in groups]
    if sum(weights[place] for weights, place in zip(of_groups, best, strict=True)) <= capacity:
        return tuple(best)
    weights = np.array([weight for group in of_groups for weight in group], np.int64)
    divisor = max(1, int(np.gcd.reduce(weights)))
    first = np.cumsum([0, *map(len, groups)])
    values = np.array([item.value for group in groups for item in group], np.float64)
    chosen = np.zeros(len(groups), np.int64)
    room = min(capacity, heaviest) // divisor
    # By far the most memory: of thousands of jobs and tens of thousands of GPUs it is counted in gigabytes.
    kind = np.uint16 if max(map(len, groups)) <= np.iinfo(np.uint16).max else np.uint32
    places = np.zeros((len(groups), room + 1), kind)
    choose_items(first, weights // divisor, values, room, places, chosen)
    return tuple(chosen.tolist())


@compiled_beside_others
def choose_items(
    first: Integers, weights: Integers, values: Reals, capacity: int, places: Places, chosen: Integers
) -> None:
    """Fills `chosen[group]` with the place of the chosen item in its group; items of a group are first[group:group + 2].
    `places`, a row for each group, is for its own use.

    There must be a choice that the capacity allows.
    """
    groups = len(chosen)
    # The value of the best choice from the groups so far, by what it may weigh at most.
    best = np.zeros(capacity + 1, np.float64)
    before = np.zeros(capacity + 1, np.float64)
    for group in range(groups):
        before, best = best, before
        best[:] = -np.inf
        for item in range(first[group], first[group + 1]):
            weight, value = weights[item], values[item]
            for room in range(weight, capacity + 1):
                total = before[room - weight] + value
                if total > best[room]:
                    best[room] = total
                    places[group, room] = item - first[group]
    room = capacity
    for group in range(groups - 1, -1, -1):
        chosen[group] = places[group, room]
        room -= weights[first[group] + chosen[group]]
