"""How fast emulated work advances with more tasks than its base tasks (Lyra §5: throughput is linear in the workers)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from domain.placement import TaskPlacement
from domain.workload import JobSpecification


def work_rate(jobs: Iterable[JobSpecification], placements: Sequence[TaskPlacement]) -> float:
    """Seconds of work per second of jobs that advance together: the smallest ratio of placed to base tasks, at least 1.

    Above 1 only when every job has flexible tasks beside its base tasks. Raises ValueError without any job.
    """
    placed = Counter(placement.job for placement in placements)
    return min(max(1.0, placed[job.name] / max(1, job.tasks)) for job in jobs)
