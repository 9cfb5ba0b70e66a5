"""How close together the GPUs of a placement are: what a relaxed affinity costs is worked out from that."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_manager.cells.hierarchy import Chain
from cluster_manager.cells.work import TaskCells


def closest_level(chain: Chain, tasks: Sequence[TaskCells]) -> int | None:
    """The lowest level of the chain, in which these tasks are, at which one cell has all their GPUs; None if none has."""
    first, last = chain.gpus, 0
    for task in tasks:
        machine = task.machine * chain.gpus_per_machine
        first = min(first, machine + (task.bits & -task.bits).bit_length() - 1)
        last = max(last, machine + task.bits.bit_length() - 1)
    levels = range(1, chain.top + 1)
    return next((level for level in levels if first // chain.sizes[level] == last // chain.sizes[level]), None)
