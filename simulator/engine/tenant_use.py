"""What each tenant held on average over the usage window, kept up to date while a simulation goes on.

The sum over time of what a tenant holds is a line of straight pieces. It is noted at a grid of times; between
two of them it is taken to be straight, as the service's stretches are (`global_scheduler.usage_window`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

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

    def begin_with(self, stretches: Sequence[tuple[int, float, float, float, float]], now: float) -> None:
        """What was held before the run: (tenant, start, end, GPU-seconds, CPU-seconds), each as if held evenly.

        To be called once, before anything is held. Only what lies before `now` counts.
        """
        edges = {now, *(edge for _, start_s, end_s, _, _ in stretches for edge in (start_s, min(end_s, now)))}
        times = np.array(sorted(edge for edge in edges if edge <= now))
        sums = np.zeros((2, self._sum.shape[1], len(times)))
        for tenant, start_s, end_s, gpu_seconds, cpu_seconds in stretches:
            if end_s > start_s:
                share = np.clip((times - start_s) / (end_s - start_s), 0.0, 1.0)
                sums[0, tenant] += gpu_seconds * share
                sums[1, tenant] += cpu_seconds * share
        self._noted = deque((time_s, sums[:, :, place]) for place, time_s in enumerate(times.tolist()))
        self._sum = sums[:, :, -1].copy()
        self._at_s = now

    def stretches(self, now: float) -> list[tuple[int, float, float, float, float]]:
        """What was held within the window that ends now, as `begin_with` takes it, by (tenant, start)."""
        self._advance(now)
        self._sum_at(now - self._window_s)  # what lies before is forgotten
        times = [time_s for time_s, _ in self._noted]
        sums = [noted for _, noted in self._noted]
        if times[-1] < now:
            times.append(now)
            sums.append(self._sum.copy())
        return [
            (tenant, times[place], times[place + 1], max(float(gpus), 0.0), max(float(cpus), 0.0))
            for tenant in range(self._sum.shape[1])
            for place in range(len(times) - 1)
            for gpus, cpus in [(sums[place + 1] - sums[place])[:, tenant]]
            if gpus > 0 or cpus > 0
        ]

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
