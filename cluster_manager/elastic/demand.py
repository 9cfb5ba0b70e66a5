"""What an elastic job may have, and what more tasks are worth to it (Lyra §5.2, Figure 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from domain.placement import AttemptKey
from domain.scaling import LINEAR_SCALING, Scaling


class Item(NamedTuple):
    """One possible number of tasks of a job."""

    tasks: int
    gpus: int
    """Of its flexible tasks: the item's weight."""
    reduction_s: float
    """Seconds by which its completion comes earlier than with the base tasks alone: the item's value."""


@dataclass(frozen=True, slots=True)
class ElasticDemand:
    """A running elastic job. It has between `base_tasks` and `most_tasks` tasks of `gpus_per_task` GPUs each."""

    key: AttemptKey
    gpus_per_task: int
    base_tasks: int
    most_tasks: int
    tasks: int
    """That it has now."""
    remaining_s: float
    """Seconds of work that are left, at the speed of its base tasks."""
    scaling: Scaling = LINEAR_SCALING
    started_s: float = 0.0

    def rate(self, tasks: int) -> float:
        """Times the speed of the base tasks."""
        return self.scaling.rate(self.base_tasks, tasks)

    def gpus(self, tasks: int) -> int:
        """GPUs of the flexible tasks among so many."""
        return (tasks - self.base_tasks) * self.gpus_per_task

    def reduction_s(self, tasks: int) -> float:
        """Seconds by which the job completes earlier with so many tasks until its end than with the base tasks."""
        return self.remaining_s - self.remaining_s / self.rate(tasks)

    def items(self, resize_pause_s: float = 0.0) -> tuple[Item, ...]:
        """All that it may have, base tasks alone first; another number than now costs it the pause, in seconds."""
        return tuple(
            [
                Item(tasks, self.gpus(tasks), self.reduction_s(tasks) - resize_pause_s * (tasks != self.tasks))
                for tasks in range(self.base_tasks, self.most_tasks + 1)
            ]
        )
