"""What an order must be to make sense; submission has checked the user's part, this checks the scheduler's."""

from __future__ import annotations

import math

from services.execution.executor import AttemptOrder, ImpossibleOrder


def check_order(order: AttemptOrder, *, may_leave: bool = False) -> None:
    """Raises ImpossibleOrder unless the placements are of tasks that the workload may have, each placed once.

    `may_leave`: an attempt that runs may come to have nothing here any more.
    """
    key = order.key
    if key.attempt < 1:
        raise ImpossibleOrder(key, f"attempts are numbered from 1, this is number {key.attempt}")
    if not (order.placements or may_leave):
        raise ImpossibleOrder(key, f"attempt {key.attempt} of {key.workload} has no placement in this cluster")
    if not (math.isfinite(order.progress) and order.progress >= 0 and math.isfinite(order.started_s)):
        raise ImpossibleOrder(
            key, f"progress {order.progress} or start {order.started_s} is not a number to go on from"
        )
    jobs = {job.name: job for job in order.specification.jobs}
    seen: set[tuple[str, int]] = set()
    for placement in order.placements:
        job = jobs.get(placement.job)
        if job is None:
            raise ImpossibleOrder(key, f"{key.workload} has no job {placement.job!r}")
        if not 0 <= placement.task < job.greatest_tasks:
            last = job.greatest_tasks - 1
            raise ImpossibleOrder(key, f"job {placement.job} has tasks 0 to {last}, not {placement.task}")
        if (placement.job, placement.task) in seen:
            raise ImpossibleOrder(key, f"task {placement.task} of job {placement.job} is placed twice")
        seen.add((placement.job, placement.task))
