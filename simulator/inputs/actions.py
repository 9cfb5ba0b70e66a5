"""What is asked of running workloads in a simulation, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from domain.identifiers import ClusterId, JobName, RegionId, WorkloadId


@dataclass(frozen=True, slots=True)
class ResizeAt:
    """The job is to have so many tasks."""

    t_s: float
    workload: WorkloadId
    job: JobName
    tasks: int


@dataclass(frozen=True, slots=True)
class RetuneAt:
    """Each task of the job is to have so many CPUs and so much memory; None: as it has."""

    t_s: float
    workload: WorkloadId
    job: JobName
    cpus: float | None = None
    memory_gib: float | None = None


@dataclass(frozen=True, slots=True)
class MigrateAt:
    """It is to go on in that region, in that cluster or (None) on other machines than now."""

    t_s: float
    workload: WorkloadId
    region: RegionId
    cluster: ClusterId | None = None


ActionAt: TypeAlias = ResizeAt | RetuneAt | MigrateAt
