"""What may be asked of attempts that run, and of machines on loan."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeAlias

from domain.identifiers import ClusterId, JobName, MachineId, WorkloadId
from domain.plan import Plan
from regional_scheduler.compaction import Compaction


class ActionRefused(Exception):
    """It cannot be done, for the reason that the message says; nothing was changed."""


@dataclass(slots=True, kw_only=True)
class ResizeRequest:
    """The job is to have so many tasks."""

    workload: WorkloadId
    job: JobName
    tasks: int
    plan: asyncio.Future[Plan]


@dataclass(slots=True, kw_only=True)
class RetuneRequest:
    """Each task of the job is to have so many CPUs and so much memory; None: as now."""

    workload: WorkloadId
    job: JobName
    cpus: float | None
    memory_gib: float | None
    plan: asyncio.Future[Plan]


@dataclass(slots=True, kw_only=True)
class MigrateRequest:
    """The workload is to go on in this region: in that cluster, or (None) on any machines other than now."""

    workload: WorkloadId
    cluster: ClusterId | None
    plan: asyncio.Future[Plan]


@dataclass(slots=True, kw_only=True)
class TrialOverRequest:
    """The workload's trial is over: it is to go on on fewer machines, if what it has reported says so and there is room."""

    workload: WorkloadId
    plan: asyncio.Future[Plan]


@dataclass(slots=True, kw_only=True)
class ReclaimRequest:
    """These machines, which are on loan, are wanted back. The workload names the request in its plan."""

    machines: tuple[MachineId, ...]
    workload: WorkloadId = WorkloadId("")
    plan: asyncio.Future[Plan]


@dataclass(slots=True, kw_only=True)
class CompactRequest:
    """These attempts are to go on elsewhere in the region, so that the plan's workload finds room."""

    compaction: Compaction
    plan: asyncio.Future[Plan]

    @property
    def workload(self) -> WorkloadId:
        return self.compaction.plan.workload


ActionRequest: TypeAlias = (
    ResizeRequest | RetuneRequest | MigrateRequest | TrialOverRequest | ReclaimRequest | CompactRequest
)
"""`plan` is answered with what was decided, once it is stored."""
