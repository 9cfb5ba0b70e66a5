"""Optimistic profiling (Synergy §3.1): which amounts of CPUs to measure, and the rest of the profile without measuring it.

Rule: a job runs for a few iterations with all memory and the most CPUs, then with fewer, by a binary search that goes
on where throughput differs by the threshold or more and leaves out regions where it does not. How throughput depends on
memory is worked out: a cache that keeps a fixed part of the data set (MinIO) has a fixed hit rate, and an iteration
takes as long as the slower of its pipeline, measured with everything cached, and the fetching of what is not cached.

Invariant: the same measurements give the same next point, so that a procedure that was interrupted goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from domain.sensitivity import SensitivityProfile

THRESHOLD = 0.1
"""An improvement of throughput below this fraction is none."""
MOST_POINTS = 8
"""Measured at most: what the paper needs for 24 CPUs."""
MEMORY_STEP_GIB = 50.0
"""Between two amounts of memory (the paper's unit of allocation)."""


def next_cpus(
    measured: Mapping[int, float],
    most_cpus: int,
    threshold: float = THRESHOLD,
    most_points: int = MOST_POINTS,
) -> int | None:
    """How many CPUs per GPU to measure next, given the throughput with those measured so far; None: it is enough.

    First the most, then one; then, of all neighbouring points that differ by the threshold or more, the middle of the two
    that differ most, the upper ones if several do. Raises ValueError for a machine without CPUs.
    """
    if most_cpus < 1:
        raise ValueError(f"a job is measured with 1 CPU per GPU or more, not {most_cpus}")
    for first in (most_cpus, 1):
        if first not in measured:
            return first
    if len(measured) >= most_points:
        return None
    steps = [
        (measured[more] - measured[fewer], fewer, more)
        for fewer, more in pairwise(sorted(measured))
        if more - fewer > 1 and measured[more] >= measured[fewer] * (1.0 + threshold)
    ]
    if not steps:
        return None
    _, fewer, more = max(steps)
    return (fewer + more) // 2


@dataclass(frozen=True, slots=True)
class CacheModel:
    """What decides how long a job fetches data, with how much memory. Raises ValueError for amounts that make no sense."""

    dataset_gib: float
    """What one epoch reads."""
    gib_per_iteration: float
    storage_gib_per_s: float
    """What storage delivers to the job."""
    process_gib: float
    """What its processes need beside the cache; with less the job does not run."""
    gpus: int = 1
    """Of the job on one machine: their memory is one cache."""

    def __post_init__(self) -> None:
        if not (self.dataset_gib > 0 and self.storage_gib_per_s > 0 and self.gib_per_iteration >= 0):
            raise ValueError(
                f"a data set and the speed of its storage are greater than 0, what is read at least 0: {self}"
            )
        if not (self.process_gib > 0 and self.gpus >= 1):
            raise ValueError(f"a job has memory of its own and at least one GPU: {self}")

    def hit_rate(self, memory_gib_per_gpu: float) -> float:
        """The part of the data set that is cached, in [0, 1]."""
        cached_gib = memory_gib_per_gpu * self.gpus - self.process_gib
        return min(1.0, max(0.0, cached_gib / self.dataset_gib))

    def fetch_s(self, memory_gib_per_gpu: float) -> float:
        """Seconds in which storage delivers what an iteration does not find in the cache."""
        missed_gib = self.gib_per_iteration * (1.0 - self.hit_rate(memory_gib_per_gpu))
        return missed_gib / self.storage_gib_per_s

    def throughput(self, cached: float, memory_gib_per_gpu: float) -> float:
        """Iterations per second, where there are `cached` of them with the whole data set in memory."""
        return 1.0 / max(1.0 / cached, self.fetch_s(memory_gib_per_gpu))


def memory_axis(cache: CacheModel, most_gib_per_gpu: float, step_gib: float = MEMORY_STEP_GIB) -> tuple[float, ...]:
    """The amounts of memory per GPU of a profile: what the processes need, then up to the most in equal steps per job.

    The amount from which on all is cached is one of them. Raises ValueError where the job does not run at all.
    """
    least = cache.process_gib / cache.gpus
    if most_gib_per_gpu < least:
        raise ValueError(f"the job needs {least} GiB per GPU for its processes alone, and there are {most_gib_per_gpu}")
    everything = (cache.process_gib + cache.dataset_gib) / cache.gpus
    axis = {least, most_gib_per_gpu} | ({everything} if everything < most_gib_per_gpu else set())
    step = step_gib / cache.gpus
    axis |= {index * step for index in range(1, int(most_gib_per_gpu / step) + 1) if index * step > least}
    return tuple(sorted(axis))


def complete_profile(
    measured: Mapping[int, float], cache: CacheModel, memory_gib: Sequence[float]
) -> SensitivityProfile:
    """The profile from what was measured with all memory, at the CPUs that were measured: linear between them.

    What a measurement lost to one with fewer CPUs is noise, for more CPUs are never slower: the greater one counts.
    Raises ValueError without any measurement, or for one that is not greater than 0.
    """
    cpus = sorted(measured)
    rows: list[tuple[float, ...]] = []
    best = 0.0
    for each in cpus:
        if not measured[each] > 0:
            raise ValueError(f"throughput with {each} CPUs per GPU is {measured[each]}; it must be greater than 0")
        best = max(best, measured[each])
        rows.append(tuple([cache.throughput(best, amount) for amount in memory_gib]))
    return SensitivityProfile(tuple([float(each) for each in cpus]), tuple(memory_gib), tuple(rows))
