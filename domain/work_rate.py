"""How fast emulated work advances with more tasks than its base tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from domain.placement import TaskPlacement
from domain.scaling import LINEAR_SCALING, Scaling
from domain.workload import JobSpecification


def work_rate(
    jobs: Iterable[JobSpecification], placements: Sequence[TaskPlacement], scaling: Scaling = LINEAR_SCALING
) -> float:
    """Seconds of work per second of jobs that advance together: that of the slowest by its placed tasks, at least 1.

    `scaling` is that of jobs that say nothing of theirs.

    Above 1 only when every job has flexible tasks beside its base tasks. Raises ValueError without any job.
    """
    placed = Counter(placement.job for placement in placements)
    return min(_rate(job.scaling_or(scaling), job.tasks, placed[job.name]) for job in jobs)


def _rate(scaling: Scaling, base_tasks: int, tasks: int) -> float:
    base = max(1, base_tasks)
    return max(1.0, scaling.rate(base, max(base, tasks)))
