"""Can a job that may have its tasks in several clusters do with everything else that it says?"""

from __future__ import annotations

from domain.workload import JobSpecification
from formats.problems import FieldProblem

ELASTIC_ACROSS_CLUSTERS = (
    "cannot be beside max_tasks: what is split over clusters keeps its tasks; leave one of the two out"
)
_TOGETHER = "cannot be beside {field}: its tasks must be together in one cluster; leave one of the two out"


def check_across_clusters(job: JobSpecification, path: str) -> list[FieldProblem]:
    """Every problem of a job that may be split; `path` is that of the job."""
    field, affinity = f"{path}.across_clusters", job.affinity
    problems: list[FieldProblem] = []
    if job.max_tasks > job.tasks:
        problems.append(FieldProblem(field, ELASTIC_ACROSS_CLUSTERS))
    if affinity.within is not None and affinity.within.hard:
        problems.append(
            FieldProblem(field, _TOGETHER.format(field=f"a hard affinity within one {affinity.within.level}"))
        )
    if affinity.groups:
        problems.append(FieldProblem(field, _TOGETHER.format(field="affinity.groups")))
    if affinity.pinned_cell:
        problems.append(FieldProblem(field, _TOGETHER.format(field="pinned_cell")))
    return problems
