"""What the tasks of an attempt report of themselves, put together by job."""

from __future__ import annotations

from collections.abc import Mapping

from domain.identifiers import JobName
from services.execution.executor import JobMeasurement, TaskReport


def measurements_of(reports: Mapping[tuple[JobName, int], TaskReport]) -> tuple[JobMeasurement, ...]:
    """By job: the time of a step on its slowest task, and the sizes of its largest model: every task has one alike, or a
    part of it. Jobs that report neither are left out."""
    measured = []
    for job in sorted({job for job, _ in reports}):
        own = [report for (of, _), report in reports.items() if of == job]
        model_mib, largest_mib = max((report.model_mib, report.largest_tensor_mib) for report in own)
        slowest_s = max(report.iteration_s for report in own)
        if slowest_s or model_mib:
            measured.append(JobMeasurement(job, slowest_s, largest_mib, model_mib))
    return tuple(measured)
