"""What is submitted while a simulation runs: rows of a trace, and workloads as users describe them, of several jobs too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from domain.identifiers import TenantId, WorkloadId
from domain.workload import Workload
from formats.trace import TraceRow


class Arrival(NamedTuple):
    """One submission. Sorted, arrivals are in the order (submit time, id); ids are unique."""

    submit_s: float
    workload: WorkloadId
    tenant: TenantId
    what: TraceRow | Workload


def arrivals_of(rows: Sequence[TraceRow], workloads: Sequence[Workload]) -> list[Arrival]:
    """All of them, by (submit time, id)."""
    found = [Arrival(row.submit_s, row.workload_id, row.tenant, row) for row in rows]
    found += [
        Arrival(workload.submitted_s, workload.workload, workload.specification.tenant, workload)
        for workload in workloads
    ]
    return sorted(found, key=lambda arrival: arrival[:2])
