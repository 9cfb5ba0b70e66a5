"""What a service has learnt from its history, as it stands in snapshot files: samples of service, and times of iterations.

Both are in columns: there may be a hundred thousand of the first.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from domain.identifiers import GpuModel, JobName, TenantId
from domain.iteration_times import RanOn, Sums
from domain.snapshot import CompletedService
from formats.problems import FieldProblem
from formats.schema import Name, Schema

_GpuSeconds = Annotated[float, Field(gt=0, le=1e18)]


class CompletedServiceSchema(Schema):
    """In the order in which they were counted."""

    tenants: list[Name] = []
    tenant: list[Annotated[int, Field(ge=0)]] = []
    """Of each sample, by position in `tenants`."""
    gpu_s: list[_GpuSeconds] = []

    def samples(self, path: str, problems: list[FieldProblem]) -> tuple[CompletedService, ...]:
        """The samples; none, and one problem more, where the columns do not agree."""
        if len(self.tenant) != len(self.gpu_s):
            described = f"has {len(self.tenant)} elements, but gpu_s has {len(self.gpu_s)}; give both for each sample"
            problems.append(FieldProblem(f"{path}.tenant", described))
            return ()
        if self.tenant and max(self.tenant) >= len(self.tenants):
            described = f"has position {max(self.tenant)}, but there are {len(self.tenants)} tenants; add them"
            problems.append(FieldProblem(f"{path}.tenant", described))
            return ()
        return tuple(
            CompletedService(TenantId(self.tenants[tenant]), gpu_s)
            for tenant, gpu_s in zip(self.tenant, self.gpu_s, strict=True)
        )


class IterationTimesSchema(Schema):
    """Of one job, in one size, on one model of GPU, spread or not."""

    tenant: Name
    name: str
    job: Name
    tasks: Annotated[int, Field(ge=2)]
    gpus: Annotated[int, Field(ge=1)]
    gpu_model: str
    spread: bool
    skew: Annotated[float, Field(ge=0, le=1)]
    attempts: Annotated[int, Field(ge=1)]
    total_s: Annotated[float, Field(ge=0, le=1e18)]

    def sums(self) -> tuple[RanOn, Sums]:
        ran = RanOn(
            TenantId(self.tenant),
            self.name,
            JobName(self.job),
            self.tasks,
            self.gpus,
            GpuModel(self.gpu_model),
            self.spread,
        )
        return ran, Sums(self.skew, self.attempts, self.total_s)


def completed_service_document(samples: tuple[CompletedService, ...]) -> dict[str, object]:
    tenants = sorted({sample.tenant for sample in samples})
    position = {tenant: number for number, tenant in enumerate(tenants)}
    return {
        "tenants": [str(tenant) for tenant in tenants],
        "tenant": [position[sample.tenant] for sample in samples],
        "gpu_s": [sample.gpu_s for sample in samples],
    }


def iteration_times_documents(times: tuple[tuple[RanOn, Sums], ...]) -> list[dict[str, object]]:
    return [{**ran._asdict(), **sums._asdict()} for ran, sums in times]
