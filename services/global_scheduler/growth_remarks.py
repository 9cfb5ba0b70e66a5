"""What elastic jobs ask for that no policy of this service gives them."""

from __future__ import annotations

from formats.scheduler_file import NO_ELASTIC
from topmast.v1 import workload_pb2


def growth_remarks(specification: workload_pb2.WorkloadSpecification, elastic: str) -> list[str]:
    """A sentence for each job that could grow and does not, where `elastic` (of scheduler.yaml) names no policy."""
    if elastic != NO_ELASTIC:
        return []
    return [
        f"job {job.name} keeps its {job.tasks} task{'s' if job.tasks > 1 else ''} and does not grow to {job.max_tasks} by itself"
        " yet: scheduler.yaml names no elastic policy; 'topmast resize' gives it more"
        for job in specification.jobs
        if job.max_tasks > max(job.tasks, 1)
    ]
