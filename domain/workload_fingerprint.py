"""By what recurring workloads are recognised: who submits them, what they run and what they read (MAST §3.1).

Rule: the tenant, the program of each job with its material arguments (domain.job_fingerprint; an emulated job is known by
its workload's name), its tasks and GPUs, and the tables with how much of them it reads. A run of another day is the same workload.
"""

from __future__ import annotations

import hashlib
import json

from domain.job_fingerprint import job_fingerprint
from domain.workload import WorkloadSpecification

PREFIX = "workload-"


def workload_fingerprint(specification: WorkloadSpecification) -> str | None:
    """The name of the recurring workload that this is a run of; None for one that reads no tables."""
    if not specification.tables:
        return None
    jobs = [
        [job_fingerprint(job) or specification.name, job.tasks, job.resources.gpus, job.resources.gpu_model]
        for job in specification.jobs
    ]
    tables = sorted({str(table.table) for table in specification.tables})
    described: list[object] = [str(specification.tenant), jobs, tables]
    parts = sorted(
        {(str(each.table), each.newest_partitions) for each in specification.tables if each.newest_partitions}
    )
    if parts:
        described.append(parts)
    return PREFIX + hashlib.sha256(json.dumps(described).encode()).hexdigest()[:16]
