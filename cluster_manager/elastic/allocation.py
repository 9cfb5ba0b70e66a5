"""How many tasks elastic jobs get of the GPUs that are idle or held by flexible tasks: Lyra's second phase, AFS, Gandiva.

All of them leave base tasks alone: whoever runs has these. `gpus` is what there is for flexible tasks, those that are
held now included. Answers say how many tasks each job is to have, by its key.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from cluster_manager.elastic.demand import ElasticDemand
from cluster_manager.elastic.knapsack import WeightedValue, best_choice
from domain.placement import AttemptKey


class MostReduction:
    """Lyra §5.2, the second phase: the greatest sum of seconds by which jobs complete earlier than with their base tasks.

    To be asked any number of times in one round, in which a job may come to be granted fewer tasks, and never more.
    """

    __slots__ = ("_items", "_loss_weight", "_resize_pause_s")

    def __init__(self, resize_pause_s: float = 0.0, loss_weight: float = 1.0) -> None:
        """A number of tasks that differs from the present one costs its job `resize_pause_s`: nothing is resized for less. What a
        job loses when tasks are taken from it counts `loss_weight` times: 1 as in the paper, more and they change hands less often.
        """
        self._resize_pause_s = resize_pause_s
        self._loss_weight = loss_weight
        self._items: dict[AttemptKey, list[WeightedValue]] = {}
        """Of all numbers of tasks that a job may have had when it was first asked for: with fewer they are the first of these."""

    def __call__(self, demands: Sequence[ElasticDemand], gpus: int) -> Mapping[AttemptKey, int]:
        """How many tasks each is to have."""
        chosen = best_choice([self._items_of(demand) for demand in demands], gpus)
        return {demand.key: demand.base_tasks + more for demand, more in zip(demands, chosen, strict=True)}

    def _items_of(self, demand: ElasticDemand) -> Sequence[WeightedValue]:
        items = self._items.get(demand.key)
        if items is None:
            items = self._items[demand.key] = demand.items(self._resize_pause_s, self._loss_weight)
        count = demand.most_tasks - demand.base_tasks + 1
        if count > len(items):
            raise ValueError(
                f"{demand.key.workload} was to have fewer tasks when it was first asked about in this round"
            )
        return items if count == len(items) else items[:count]


def greatest_marginal_throughput(demands: Sequence[ElasticDemand], gpus: int) -> Mapping[AttemptKey, int]:
    """AFS as Lyra §7.1 has it: one task after the other to the job with the greatest gain of throughput for each GPU.

    Throughput counts in times that of the job's base tasks. A job whose next task does not fit gets no more. Of equal
    gains the one with the least work left goes first, as in AFS itself.
    """
    tasks = {demand.key: demand.base_tasks for demand in demands}
    waiting = [entry for demand in demands if (entry := _gain(demand, demand.base_tasks)) is not None]
    heapq.heapify(waiting)
    by_key = {demand.key: demand for demand in demands}
    left = gpus
    while waiting:
        _, _, key = heapq.heappop(waiting)
        demand = by_key[key]
        if demand.gpus_per_task > left:
            continue
        left -= demand.gpus_per_task
        tasks[key] += 1
        entry = _gain(demand, tasks[key])
        if entry is not None:
            heapq.heappush(waiting, entry)
    return tasks


def _gain(demand: ElasticDemand, tasks: int) -> tuple[float, float, AttemptKey] | None:
    """For a heap: what one more task brings for each of its GPUs. None when it may have no more."""
    if tasks >= demand.most_tasks:
        return None
    gain = (demand.rate(tasks + 1) - demand.rate(tasks)) / demand.gpus_per_task
    return -gain, demand.remaining_s, demand.key


def opportunistic_growth(demands: Sequence[ElasticDemand], idle_gpus: int) -> Mapping[AttemptKey, int]:
    """Gandiva as Lyra §7.1 has it: jobs grow into what is idle, those that run longest first, and none shrinks for another.

    To be asked only while nothing waits. `idle_gpus` are those that nobody holds.
    """
    tasks = {demand.key: demand.tasks for demand in demands}
    left = idle_gpus
    for demand in sorted(demands, key=lambda one: (one.started_s, one.key)):
        more = min(demand.most_tasks - demand.tasks, left // demand.gpus_per_task)
        tasks[demand.key] += more
        left -= more * demand.gpus_per_task
    return tasks
