"""Which running attempts may be resized, cluster by cluster, and what there is for their flexible tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster_manager.capacity.tables import GPUS
from cluster_manager.elastic.demand import ElasticDemand
from domain.placement_changes import name_of
from domain.plan import TaskName
from domain.scaling import Scaling
from domain.workload import JobSpecification
from regional_scheduler.adjustment import AdjustableAttempt
from regional_scheduler.queries import affinity_of
from regional_scheduler.region_capacity import RegionCapacity


@dataclass(frozen=True, slots=True)
class ElasticAttempt:
    """A running attempt of one elastic job that uses GPUs."""

    attempt: AdjustableAttempt
    job: JobSpecification
    demand: ElasticDemand

    @property
    def flexible(self) -> tuple[TaskName, ...]:
        """The flexible tasks that it has, by number."""
        return tuple(sorted(name_of(p) for p in self.attempt.placements if p.task >= self.job.tasks))


def elastic_attempts(
    region: RegionCapacity, attempts: Sequence[AdjustableAttempt], scaling: Scaling, now: float
) -> Mapping[int, Sequence[ElasticAttempt]]:
    """By position of the cluster in which an attempt has its first task, and in which it grows.

    Left alone are workloads of several jobs, which are as fast as the slowest of them, and jobs that must be close
    together, since new tasks are placed without regard to those that there are.
    """
    by_cluster: dict[int, list[ElasticAttempt]] = {}
    for attempt in attempts:
        jobs = attempt.specification.jobs
        job = jobs[0]
        if len(jobs) > 1 or job.greatest_tasks == job.tasks or job.resources.gpus == 0 or affinity_of(job).hard:
            continue
        demand = ElasticDemand(
            attempt.key,
            job.resources.gpus,
            job.tasks,
            job.greatest_tasks if attempt.may_grow else len(attempt.placements),
            len(attempt.placements),
            expected_remaining_s(attempt, now),
            job.scaling_or(scaling),
            attempt.started_s,
        )
        position = region.cluster_ids.index(attempt.tasks_of(job.name)[0].cluster)
        by_cluster.setdefault(position, []).append(ElasticAttempt(attempt, job, demand))
    return {position: by_cluster[position] for position in sorted(by_cluster)}


def expected_remaining_s(attempt: AdjustableAttempt, now: float) -> float:
    """Seconds of work left with the base tasks; where that is not known, as long again as the attempt has run."""
    if attempt.remaining_s < float("inf"):
        return max(0.0, attempt.remaining_s)
    return max(0.0, now - attempt.started_s)


def idle_gpus(region: RegionCapacity, position: int) -> int:
    """GPUs of the cluster that nobody holds, on machines that take work."""
    return int(region.shared.totals[position, GPUS])


def flexible_gpus(attempts: Sequence[ElasticAttempt]) -> int:
    """GPUs that flexible tasks of these attempts hold."""
    return sum(one.demand.gpus(one.demand.tasks) for one in attempts)
