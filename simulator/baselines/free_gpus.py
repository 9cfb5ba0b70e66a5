"""How many GPUs of a region are unclaimed, over time: a staircase that backfilling plans on.

The staircase is a table of steps, each with the time from which on so many GPUs are free; the last one lasts for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kernels.compiled import compiled

Steps = NDArray[np.float64]
"""[step, time | GPUs]; GPUs are whole numbers."""

FROM_S = 0
GPUS = 1
COLUMNS = 2

SLACK_S = 1e-6
"""Two times that are as close are the same: sums of clock times are rounded."""


@compiled
def first_fit_s(steps: Steps, count: int, gpus: float, duration_s: float) -> float:
    """When so many GPUs are first free for so long; infinity: never."""
    step = 0
    while step < count:
        if steps[step, GPUS] < gpus:
            step += 1
            continue
        until_s = steps[step, FROM_S] + duration_s - SLACK_S
        other = step + 1
        while other < count and steps[other, FROM_S] < until_s and steps[other, GPUS] >= gpus:
            other += 1
        if other == count or steps[other, FROM_S] >= until_s:
            return float(steps[step, FROM_S])
        step = other + 1
    return np.inf


@compiled
def add_step(steps: Steps, count: int, at_s: float) -> int:
    """Cuts the staircase in two at a time that is not before its beginning; how many steps there are then."""
    place = count
    while place > 0 and steps[place - 1, FROM_S] > at_s + SLACK_S:
        place -= 1
    if steps[place - 1, FROM_S] >= at_s - SLACK_S:
        return count
    steps[place + 1 : count + 1] = steps[place:count].copy()
    steps[place, FROM_S] = at_s
    steps[place, GPUS] = steps[place - 1, GPUS]
    return count + 1


@compiled
def take(steps: Steps, count: int, from_s: float, until_s: float, gpus: float) -> None:
    """Takes GPUs away between two times that are steps."""
    for step in range(count):
        if from_s - SLACK_S <= steps[step, FROM_S] < until_s - SLACK_S:
            steps[step, GPUS] -= gpus


class FreeGpus:
    """The staircase of one region, from now on."""

    def __init__(self, now: float, idle_gpus: int, ends: Sequence[tuple[float, int]]) -> None:
        """`ends` says when how many GPUs come free, in the order of time; none is before `now`."""
        rows = np.array([(now, idle_gpus), *ends], np.float64)
        later = np.diff(rows[:, FROM_S]) > SLACK_S
        # Of several at one time the first has the time, the last the sum.
        times = rows[np.append(True, later), FROM_S]
        free = np.cumsum(rows[:, GPUS])[np.append(later, True)]
        self._steps = np.column_stack((times, free))
        self._count = len(self._steps)

    @property
    def at_once(self) -> int:
        """GPUs that are free now."""
        return int(self._steps[0, GPUS])

    @property
    def steps(self) -> list[tuple[float, int]]:
        """From when on how many are free."""
        return [(from_s, int(gpus)) for from_s, gpus in self._steps[: self._count].tolist()]

    def first_fit_s(self, gpus: int, duration_s: float) -> float:
        """When so many GPUs are first free for so long; infinity: never."""
        return first_fit_s(self._steps, self._count, float(gpus), duration_s)

    def claim(self, from_s: float, duration_s: float, gpus: int) -> None:
        """So many are no longer free for so long from then on."""
        if self._count + 2 > len(self._steps):
            self._steps = np.vstack((self._steps, np.zeros((len(self._steps) + 2, COLUMNS))))
        until_s = from_s + duration_s
        self._count = add_step(self._steps, self._count, from_s)
        self._count = add_step(self._steps, self._count, until_s)
        take(self._steps, self._count, from_s, until_s, float(gpus))
