"""What an elastic job may have, and what more tasks are worth to it (Lyra §5.2, Figure 6)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cluster_manager.elastic.knapsack import WeightedValue
from domain.placement import AttemptKey
from domain.scaling import LINEAR_SCALING, Scaling


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

    def up_to(self, most_tasks: int) -> ElasticDemand:
        """The same job, of which this is the most that it may have."""
        return self if most_tasks == self.most_tasks else replace(self, most_tasks=most_tasks)

    def rate(self, tasks: int) -> float:
        """Times the speed of the base tasks."""
        return self.scaling.rate(self.base_tasks, tasks)

    def gpus(self, tasks: int) -> int:
        """GPUs of the flexible tasks among so many."""
        return (tasks - self.base_tasks) * self.gpus_per_task

    def reduction_s(self, tasks: int) -> float:
        """Seconds by which the job completes earlier with so many tasks until its end than with the base tasks."""
        return self.remaining_s - self.remaining_s / self.rate(tasks)

    def items(self, resize_pause_s: float = 0.0, loss_weight: float = 1.0) -> list[WeightedValue]:
        """A group of the knapsack: the items are all numbers of tasks from the base tasks alone on.

        Each weighs the GPUs of its flexible tasks and is worth `reduction_s`; another number than now costs the pause, in seconds.
        With fewer tasks than now, what they lose by that counts `loss_weight` times.
        """
        gpus, remaining_s, base, rate = self.gpus_per_task, self.remaining_s, self.base_tasks, self.scaling.rate
        now_s = remaining_s - remaining_s / rate(base, self.tasks)
        items: list[WeightedValue] = []
        for tasks in range(base, self.most_tasks + 1):
            worth_s = remaining_s - remaining_s / rate(base, tasks)
            if tasks < self.tasks:
                worth_s -= (loss_weight - 1.0) * (now_s - worth_s)
            if tasks != self.tasks:
                worth_s -= resize_pause_s
            items.append(WeightedValue((tasks - base) * gpus, worth_s))
        return items
