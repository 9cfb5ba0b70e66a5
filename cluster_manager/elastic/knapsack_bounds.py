"""Between which bounds the capacity that is left stays in every best choice of a multiple-choice knapsack.

Rule: some groups come first, the others after them. Where the first ones are left so much and the others take the rest, no
choice is worth more than both parts are when items may be taken in fractions (the linear relaxation, solved by the steps of
most value for their weight: Kellerer, Pferschy and Pisinger, Knapsack Problems, §11.2). What is worth less in that way than a choice that is known is part of no
best one. The bound is concave in what the first groups are left, so what remains is an interval.

Invariant: no best choice leaves the intervals, nor does one of equal value, up to what adding the values up in another
order may change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cluster_manager.capacity.tables import Integers, Reals
from kernels.compiled import compiled_beside_others, compiled_part

ROUNDING = 16.0 * float(np.finfo(np.float64).eps)
"""For each item, as a share of the sum of all groups' greatest values: far above what rounding can come to."""


class Steps(NamedTuple):
    """How groups go from their lightest item to heavier ones of more value, those of most value for their weight first."""

    group: Integers
    weight: Integers
    gain: Reals


class Trees(NamedTuple):
    """Sums over the steps of some groups, as binary indexed trees: steps of other groups weigh nothing."""

    weight: Integers
    gain: Reals


def room_bounds(first: Integers, weights: Integers, values: Reals, capacity: int) -> tuple[Integers, Integers]:
    """[groups, one more] the least and the most capacity that a best choice leaves to so many first groups.

    Items of a group are `first[group:group + 2]`. There must be a choice that the capacity allows.
    """
    groups = len(first) - 1
    of_group = np.repeat(np.arange(groups), np.diff(first))
    by_weight = np.lexsort((-values, weights, of_group))
    lightest = by_weight[first[:-1]]
    steps = Steps(np.empty(len(weights), np.int64), np.empty(len(weights), np.int64), np.empty(len(weights)))
    count = fill_steps(first, by_weight, weights, values, steps)
    gain, weight = steps.gain[:count], steps.weight[:count]
    # Stable: the steps of a group stay in their order.
    order = np.argsort(-gain / weight, kind="stable")
    steps = Steps(steps.group[:count][order], weight[order], gain[order])
    by_group = np.argsort(steps.group, kind="stable")
    heaviest = np.maximum.reduceat(weights, first[:-1])
    rounding = ROUNDING * len(weights) * float(np.maximum.reduceat(np.abs(values), first[:-1]).sum())
    least, most = np.empty(groups + 1, np.int64), np.empty(groups + 1, np.int64)
    fill_bounds(weights[lightest], values[lightest], heaviest, steps, by_group, capacity, rounding, least, most)
    least[-1] = most[-1] = capacity
    return least, most


@compiled_beside_others
def fill_steps(first: Integers, by_weight: Integers, weights: Integers, values: Reals, steps: Steps) -> int:
    """Fills in the steps group by group, each of less value for its weight than the one before it; how many there are.

    `by_weight` are the items of each group, the lightest first, and of equal ones that of most value.
    """
    count = 0
    for group in range(len(first) - 1):
        start, reached = count, by_weight[first[group]]
        for place in range(first[group] + 1, first[group + 1]):
            item = by_weight[place]
            weight, gain = weights[item] - weights[reached], values[item] - values[reached]
            if gain <= 0.0:
                continue
            reached = item
            while count > start and gain * steps.weight[count - 1] >= steps.gain[count - 1] * weight:
                count -= 1
                weight += steps.weight[count]
                gain += steps.gain[count]
            steps.group[count], steps.weight[count], steps.gain[count] = group, weight, gain
            count += 1
    return count


@compiled_beside_others
def fill_bounds(
    lightest: Integers,
    base: Reals,
    heaviest: Integers,
    steps: Steps,
    by_group: Integers,
    capacity: int,
    rounding: float,
    least: Integers,
    most: Integers,
) -> None:
    """Fills in the bounds. By group: the weight of its lightest item, the value of that, the weight of its heaviest;
    `by_group` are the steps of one group after the other."""
    groups, count = len(lightest), len(steps.weight)
    top = 1
    while 2 * top <= count:
        top *= 2
    before = Trees(np.zeros(count + 1, np.int64), np.zeros(count + 1))
    after = Trees(np.zeros(count + 1, np.int64), np.zeros(count + 1))
    for step in range(count):
        _add(after, step, steps.weight[step], steps.gain[step])
    lightest_before, lightest_after = 0, lightest.sum()
    base_before, base_after = 0.0, base.sum()
    last, of_last = _relaxed_until(steps, capacity - lightest_after)
    worth = base_after + _greedy_gain(steps, np.zeros(groups, np.bool_), capacity - lightest_after) - rounding
    taken, place = 0.0, 0
    lower, upper = 0, capacity - lightest_after
    for group in range(groups + 1):
        # The relaxation leaves them this much; the best whole number is one of the two next to it.
        lower, upper = max(lower, lightest_before), min(upper, capacity - lightest_after)
        sides = base_before + base_after, lightest_before, capacity - lightest_before - lightest_after
        middle = min(max(int(lightest_before + taken), lower), upper)
        lower, upper = _interval(before, after, steps, top, sides, worth, lower, middle, upper)
        least[group], most[group] = lower, upper
        if group < groups:
            while place < count and steps.group[by_group[place]] == group:
                step = by_group[place]
                _add(before, step, steps.weight[step], steps.gain[step])
                _add(after, step, -steps.weight[step], -steps.gain[step])
                if step < last:
                    taken += steps.weight[step]
                elif step == last:
                    taken += of_last
                place += 1
            lightest_before += lightest[group]
            lightest_after -= lightest[group]
            base_before += base[group]
            base_after -= base[group]
            lower += lightest[group]
            upper += heaviest[group]


@compiled_part
def _relaxed_until(steps: Steps, room: int) -> tuple[int, int]:
    """The step of which the relaxation takes only a part, and how much of its weight."""
    for step in range(len(steps.weight)):
        if steps.weight[step] > room:
            return step, room
        room -= steps.weight[step]
    return len(steps.weight), 0


@compiled_part
def _greedy_gain(steps: Steps, left_out: NDArray[np.bool_], room: int) -> float:
    """What a choice gains that takes each step that there is room for, unless its group has left one out."""
    gain = 0.0
    for step in range(len(steps.weight)):
        group = steps.group[step]
        if left_out[group] or steps.weight[step] > room:
            left_out[group] = True
        else:
            room -= steps.weight[step]
            gain += steps.gain[step]
    return gain


@compiled_part
def _interval(
    before: Trees,
    after: Trees,
    steps: Steps,
    top: int,
    sides: tuple[float, int, int],
    worth: float,
    lower: int,
    middle: int,
    upper: int,
) -> tuple[int, int]:
    """From `lower` to `upper`, what the first groups may be left where choices may be worth so much. Most is worth what is left
    at `middle`, or with one more."""
    if middle < upper and _bound(before, after, steps, top, sides, middle + 1) > _bound(
        before, after, steps, top, sides, middle
    ):
        middle += 1
    least, most = middle, middle
    while lower < least:
        between = (lower + least) // 2
        if _bound(before, after, steps, top, sides, between) >= worth:
            least = between
        else:
            lower = between + 1
    while most < upper:
        between = (most + upper + 1) // 2
        if _bound(before, after, steps, top, sides, between) >= worth:
            most = between
        else:
            upper = between - 1
    return least, most


@compiled_part
def _bound(before: Trees, after: Trees, steps: Steps, top: int, sides: tuple[float, int, int], left: int) -> float:
    """What a choice is worth at most whose first groups are left so much."""
    base, lightest_before, shared = sides
    room = left - lightest_before
    return base + _relaxed(before, steps, top, room) + _relaxed(after, steps, top, shared - room)


@compiled_part
def _relaxed(trees: Trees, steps: Steps, top: int, room: int) -> float:
    """The gain from the steps that there is room for, the last one in part."""
    place, gain, stride = 0, 0.0, top
    while stride > 0:
        following = place + stride
        if following < len(trees.weight) and trees.weight[following] <= room:
            place = following
            room -= trees.weight[following]
            gain += trees.gain[following]
        stride //= 2
    if place < len(steps.weight):
        gain += room * (steps.gain[place] / steps.weight[place])
    return gain


@compiled_part
def _add(trees: Trees, step: int, weight: int, gain: float) -> None:
    place = step + 1
    while place < len(trees.weight):
        trees.weight[place] += weight
        trees.gain[place] += gain
        place += place & -place
