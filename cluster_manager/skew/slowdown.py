"""How much slower emulated work is on more machines than it needs, by the skew of its model.

Tiresias §2.2 (Figure 3) and §5.2.3: models of high skew train up to 1.67 times as fast on the fewest machines as on random ones.
A table of steps says it; without one, placement does not change how fast emulated work is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cluster_manager.skew.spread import is_spread
from domain.identifiers import MachineId
from domain.placement import TaskPlacement
from domain.workload import JobSpecification


class SlowdownStep(NamedTuple):
    """From this skew on, up to the next step, work takes so many times as long when it is spread."""

    skew: float
    slowdown: float


@dataclass(frozen=True, slots=True)
class SpreadSlowdown:
    """The table, and what it takes to see whether a job is spread."""

    steps: Sequence[SlowdownStep]
    """In ascending order of skew; below the first one nothing is slower."""
    most_gpus: Mapping[MachineId, int]
    """As from `most_gpus_of_machines`."""

    def of_skew(self, skew: float) -> float:
        """The slowdown of a job of this skew that is spread."""
        slowdown = 1.0
        for step in self.steps:
            if step.skew <= skew:
                slowdown = step.slowdown
        return slowdown

    def of(self, jobs: Iterable[JobSpecification], placements: Sequence[TaskPlacement]) -> float:
        """How many times as long work takes in these places: jobs advance together, the slowest counts. At least 1.

        Jobs without GPUs or of unknown skew are never slower.
        """
        if not self.steps:
            return 1.0
        return max([1.0, *(self._of_job(job, placements) for job in jobs)])

    def _of_job(self, job: JobSpecification, placements: Sequence[TaskPlacement]) -> float:
        gpus = job.resources.gpus
        if job.profile is None or gpus == 0:
            return 1.0
        placed = [placement.machine for placement in placements if placement.job == job.name]
        return self.of_skew(job.profile.skew) if is_spread(gpus, placed, self.most_gpus) else 1.0
