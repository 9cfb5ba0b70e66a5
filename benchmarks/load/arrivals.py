"""When requests are due: an open loop, which does not wait for answers."""

from __future__ import annotations

import random


def poisson(per_s: float, duration_s: float, seed: int) -> list[float]:
    """Seconds from the beginning at which requests are due: independent of each other, `per_s` of them in a second on average."""
    if per_s <= 0.0 or duration_s <= 0.0:
        raise ValueError(f"per_s and duration_s must be above 0, and are {per_s} and {duration_s}")
    random_numbers = random.Random(seed)  # nothing is kept secret by it
    due_s: list[float] = []
    now_s = random_numbers.expovariate(per_s)
    while now_s < duration_s:
        due_s.append(now_s)
        now_s += random_numbers.expovariate(per_s)
    return due_s


def with_bursts(due_s: list[float], every_s: float, size: int, duration_s: float) -> list[float]:
    """The same, and `size` at once every `every_s` seconds."""
    if every_s <= 0.0:
        raise ValueError(f"every_s must be above 0, and is {every_s}")
    bursts = [number * every_s for number in range(1, int(duration_s / every_s) + 1) for _ in range(size)]
    return sorted([*due_s, *(burst_s for burst_s in bursts if burst_s < duration_s)])
