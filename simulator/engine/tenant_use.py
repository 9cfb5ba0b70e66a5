"""What each tenant held on average over the usage window, kept up to date while a simulation goes on.

The sum over time of what a tenant holds is a line of straight pieces. It is noted at a grid of times; between
two of them it is taken to be straight, as the service's stretches are (`global_scheduler.usage_window`).
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

GRID_POINTS_PER_WINDOW = 144
"""For a window of a day: every ten minutes."""

Reals = NDArray[np.float64]


class TenantUse:
    """GPUs and CPUs held by tenants; one element per tenant in each array."""

    def __init__(self, tenants: int, window_s: float, start_s: float) -> None:
        self._window_s = window_s
        self._step_s = window_s / GRID_POINTS_PER_WINDOW
        self._held = np.zeros((2, tenants))
        self._sum = np.zeros((2, tenants))
        self._at_s = start_s
        self._noted: deque[tuple[float, Reals]] = deque([(start_s, self._sum.copy())])

    def change(self, tenant: int, gpus: float, cpus: float, now: float) -> None:
        """The tenant holds so much more from now on, or less."""
        self._advance(now)
        self._held[0, tenant] += gpus
        self._held[1, tenant] += cpus

    def averages(self, now: float) -> tuple[Reals, Reals]:
        """GPUs and CPUs held on average over the window that ends now; before the run nothing was held."""
        self._advance(now)
        used = np.maximum(self._sum - self._sum_at(now - self._window_s), 0.0) / self._window_s
        # Sums of many pieces do not end at exactly zero.
        used[used < 1e-9] = 0.0
        return used[0], used[1]

    def _advance(self, now: float) -> None:
        if now > self._at_s:
            self._sum += self._held * (now - self._at_s)
            self._at_s = now
            if now >= self._noted[-1][0] + self._step_s:
                self._noted.append((now, self._sum.copy()))

    def _sum_at(self, time_s: float) -> Reals:
        noted = self._noted
        while len(noted) > 1 and noted[1][0] <= time_s:
            noted.popleft()
        first_s, first = noted[0]
        if time_s <= first_s:
            return first
        next_s, following = noted[1] if len(noted) > 1 else (self._at_s, self._sum)
        share = (time_s - first_s) / (next_s - first_s)
        between: Reals = first + (following - first) * share
        return between
