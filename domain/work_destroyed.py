"""How much work an eviction destroys (design I15): what was done since the last checkpoint, and what a restart costs.

Work is counted in whole units, so that sums and comparisons are exact whatever the order: a unit is a hundredth of a
GPU for a thousandth of a second. An attempt without GPUs counts a CPU as a hundredth of a GPU.

Ignores: that an attempt may save its work within its grace when it is asked to leave; nobody knows before whether it will.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from domain.placement import TaskPlacement

UNITS_PER_GPU = 100
UNITS_PER_GPU_S = 100_000.0
LONGEST_UNSAVED_S = 1e7
"""More without a checkpoint counts as so much: no sum overflows."""
SLACK_INTERVALS = 1e-9
"""Times are sums of floats: a checkpoint that is due at this very moment counts as saved."""


def work_weight(placements: Sequence[TaskPlacement]) -> int:
    """What an attempt with these tasks weighs: a hundred for each GPU, or one for each CPU where it has none; at least 1."""
    gpus = 0
    for placement in placements:
        gpus += len(placement.gpu_indices)
    if gpus:
        return UNITS_PER_GPU * gpus
    return max(1, sum([placement.millicpus for placement in placements]) // 1000)


def unsaved_s(saved_s: float, interval_s: float, now: float) -> float:
    """For how long an attempt has worked without a checkpoint, which it saved last at `saved_s`.

    Since then it has saved one every `interval_s` seconds; 0: none. Numba compiles this very function.
    """
    since_s = max(now - saved_s, 0.0)
    if interval_s > 0.0:
        since_s = max(since_s - math.floor(since_s / interval_s + SLACK_INTERVALS) * interval_s, 0.0)
    return min(since_s, LONGEST_UNSAVED_S)


def work_destroyed(weight: int, lost_s: float, restart_cost_s: float) -> int:
    """The units of work that evicting an attempt of this weight destroys: never less than 0. Numba compiles it too."""
    return int(weight) * int((lost_s + restart_cost_s) * 1000.0)
