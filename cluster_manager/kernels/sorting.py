"""A stable sort for kernels: of a handful of numbers mostly, quick to compile, and linear where they are sorted."""

from __future__ import annotations

from cluster_manager.capacity.tables import Integers
from kernels.compiled import compiled_part

RUN = 32
"""So many are sorted by insertion; longer ranges are merged from such runs."""


@compiled_part
def put_in_stable_order(key: Integers, count: int, order: Integers, spare: Integers) -> None:
    """Fills order[:count] with the indices of key[:count], ascending by key and then by index. Overwrites `spare`."""
    for start in range(0, count, RUN):
        for index in range(start, min(start + RUN, count)):
            position = index
            while position > start and key[order[position - 1]] > key[index]:
                order[position] = order[position - 1]
                position -= 1
            order[position] = index
    width = RUN
    while width < count:
        for start in range(0, count, 2 * width):
            middle = min(start + width, count)
            end = min(start + 2 * width, count)
            left, right = start, middle
            for position in range(start, end):
                if left < middle and (right == end or key[order[left]] <= key[order[right]]):
                    spare[position] = order[left]
                    left += 1
                else:
                    spare[position] = order[right]
                    right += 1
        for position in range(count):
            order[position] = spare[position]
        width *= 2
