"""How much faster an elastic job is with more tasks than its base tasks (Lyra §5, §7.2, §8)."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol


class Scaling(Protocol):
    """The throughput of a job by the number of its tasks."""

    def rate(self, base_tasks: int, tasks: int) -> float:
        """How many times as fast the job is with `tasks` as with its base tasks; `tasks` is at least that, both are positive."""
        ...


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Every task brings as much as the base tasks do on average (Lyra §5), or a fixed share less of it.

    Lyra §7.2: "When one more worker is added to a job, we add a 20% loss to the throughput brought by this worker".
    """

    loss: float = 0.0
    """Of what a flexible task would bring: from 0, none, to 1, all of it. Raises ValueError for anything else."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.loss <= 1.0:
            raise ValueError(f"the loss of a flexible task is a share from 0 to 1, not {self.loss}")

    def rate(self, base_tasks: int, tasks: int) -> float:
        return (base_tasks + (1.0 - self.loss) * (tasks - base_tasks)) / base_tasks


LINEAR_SCALING = LinearScaling()


class ScalingPoint(NamedTuple):
    """How fast a job was with so many tasks, in any unit."""

    tasks: int
    throughput: float


@dataclass(frozen=True, slots=True)
class MeasuredScaling:
    """A measured curve, interpolated linearly (Lyra §8: "empirically profile the throughput").

    Below the first point throughput is in proportion to the tasks; above the last one it does not grow any more.
    """

    points: tuple[tuple[int, float], ...]
    """Tasks, ascending, and throughput, in any unit, never decreasing. Raises ValueError for anything else."""

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("a measured scaling curve has at least one point: tasks and their throughput")
        before = (0, 0.0)
        for tasks, throughput in self.points:
            if tasks <= before[0]:
                raise ValueError(f"the points of a scaling curve ascend by tasks from 1 on: {tasks} after {before[0]}")
            if not (math.isfinite(throughput) and throughput > 0.0 and throughput >= before[1]):
                problem = f"{throughput} with {tasks} tasks, after {before[1]} with {before[0]}"
                raise ValueError(f"the throughput of a scaling curve is positive and never decreases: {problem}")
            before = (tasks, throughput)

    def rate(self, base_tasks: int, tasks: int) -> float:
        return self._throughput(tasks) / self._throughput(base_tasks)

    def _throughput(self, tasks: int) -> float:
        above = bisect_right(self.points, (tasks, math.inf))
        if above == len(self.points):
            return self.points[-1][1]
        fewer, less = self.points[above - 1] if above else (0, 0.0)
        more, most = self.points[above]
        return less + (most - less) * (tasks - fewer) / (more - fewer)


@lru_cache(maxsize=4096)
def measured(points: tuple[ScalingPoint, ...]) -> MeasuredScaling:
    """The curve through these points; the same curve is checked once. Raises ValueError as `MeasuredScaling`."""
    return MeasuredScaling(points)
