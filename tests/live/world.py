"""A fleet that is worth fighting for, its tenants, and a mix of workloads with everything in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from domain.fleet import NO_GPU_MODEL, Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import (
    ANY_GPU_MODEL,
    ClusterId,
    GpuModel,
    JobName,
    MachineId,
    RackId,
    RegionId,
    TableId,
    TenantId,
)
from domain.resources import Quota, TaskResources
from domain.table import Table
from domain.tenant import Tenant
from domain.workload import Emulated, JobSpecification, TableInput, WorkloadSpecification

EAST, WEST = RegionId("east"), RegionId("west")
A100, V100 = GpuModel("A100"), GpuModel("V100")
CLICKS, IMAGES, SPEECH = TableId("clicks"), TableId("images"), TableId("speech")
RANKING, VISION, RESEARCH, PLAYGROUND = (TenantId(name) for name in ("ranking", "vision", "research", "playground"))

CANCEL_AT = "cancel_at"
"""The label of a workload that its user wants no more as soon as it has this event."""


def gpu_cluster(name: str, model: GpuModel, machines: int, gpus: int = 8) -> Cluster:
    """One rack of GPU machines, m0 and so on."""
    return _cluster(name, [Machine(MachineId(f"{name}-m{i}"), model, gpus, 96.0, 768.0) for i in range(machines)])


def cpu_cluster(name: str, machines: int) -> Cluster:
    return _cluster(name, [Machine(MachineId(f"{name}-m{i}"), NO_GPU_MODEL, 0, 64.0, 256.0) for i in range(machines)])


def _cluster(name: str, machines: list[Machine]) -> Cluster:
    return Cluster(ClusterId(name), (Rack(RackId(f"{name}-r0"), tuple(machines)),))


FLEET = Fleet(
    (
        Region(EAST, (gpu_cluster("east-a", A100, 4), cpu_cluster("east-b", 3))),
        Region(WEST, (gpu_cluster("west-a", V100, 3), gpu_cluster("west-b", A100, 2))),
    ),
)
"""48 A100, 24 V100, in two regions with two clusters each; CPU machines are in one cluster only."""

TABLES = (
    Table(CLICKS, 10**12, EAST, (WEST,)),
    Table(IMAGES, 10**12, WEST),
    Table(SPEECH, 10**12, EAST),
)

TENANTS = (
    Tenant(RANKING, 0, Quota.of({A100: 24, ANY_GPU_MODEL: 8})),
    Tenant(VISION, 2, Quota.of({ANY_GPU_MODEL: 24}, cpus=256.0)),
    Tenant(RESEARCH, 3, Quota.of({ANY_GPU_MODEL: 24}), fair_share_weight=2.0),
    Tenant(PLAYGROUND, 5, Quota.of({ANY_GPU_MODEL: 4})),
)


@dataclass(frozen=True, slots=True)
class Mix:
    """How long workloads are, in seconds of the service."""

    shortest_s: float = 120.0
    longest_s: float = 600.0
    checkpoint_interval_s: float = 60.0


def workloads(count: int, rng: np.random.Generator, mix: Mix = Mix()) -> list[WorkloadSpecification]:
    """So many workloads, of all kinds in turn, in a random order."""
    kinds = (_small, _small, _machine, _gang, _two_clusters, _with_table, _with_fresh_table, _in_one_region)
    made = []
    for number in range(count):
        kind = kinds[number % len(kinds)]
        tenant = (RANKING, VISION, RESEARCH, PLAYGROUND)[int(rng.integers(4))]
        duration_s = float(rng.uniform(mix.shortest_s, mix.longest_s))
        made.append(kind(f"w{number}", tenant, Emulated(duration_s, mix.checkpoint_interval_s), rng))
    rng.shuffle(made)
    return made


Kind = Callable[[str, TenantId, Emulated, np.random.Generator], WorkloadSpecification]


def one_job(
    name: str, tenant: TenantId, work: Emulated, *, gpus: int = 1, tasks: int = 1, model: GpuModel = ANY_GPU_MODEL
) -> WorkloadSpecification:
    """A workload of one job."""
    job = JobSpecification(JobName("main"), tasks, TaskResources(gpus=gpus, gpu_model=model), work)
    return WorkloadSpecification(name, tenant, (job,))


def _small(name: str, tenant: TenantId, work: Emulated, rng: np.random.Generator) -> WorkloadSpecification:
    return one_job(name, tenant, work, gpus=int(rng.integers(1, 5)))


def _machine(name: str, tenant: TenantId, work: Emulated, _rng: np.random.Generator) -> WorkloadSpecification:
    return one_job(name, tenant, work, gpus=8, model=A100)


def _gang(name: str, tenant: TenantId, work: Emulated, rng: np.random.Generator) -> WorkloadSpecification:
    return one_job(name, tenant, work, gpus=8, tasks=int(rng.integers(2, 4)), model=(A100, V100)[int(rng.integers(2))])


def _two_clusters(name: str, tenant: TenantId, work: Emulated, _rng: np.random.Generator) -> WorkloadSpecification:
    """GPUs are in one cluster of the east, machines for what feeds them in the other: and nowhere else is both."""
    trainer = JobSpecification(JobName("trainer"), 1, TaskResources(gpus=4, gpu_model=A100), work)
    readers = JobSpecification(
        JobName("readers"), 4, TaskResources(gpus=0, gpu_model=ANY_GPU_MODEL, cpus=32.0, memory_gib=64.0), work
    )
    return WorkloadSpecification(name, tenant, (trainer, readers), regions=(EAST,))


def _with_table(name: str, tenant: TenantId, work: Emulated, rng: np.random.Generator) -> WorkloadSpecification:
    table = (CLICKS, IMAGES, SPEECH)[int(rng.integers(3))]
    return replace(one_job(name, tenant, work, gpus=2), tables=(TableInput(table),))


def _with_fresh_table(name: str, tenant: TenantId, work: Emulated, _rng: np.random.Generator) -> WorkloadSpecification:
    return replace(one_job(name, tenant, work, gpus=4), tables=(TableInput(CLICKS, fresh=True),))


def _in_one_region(name: str, tenant: TenantId, work: Emulated, rng: np.random.Generator) -> WorkloadSpecification:
    return replace(one_job(name, tenant, work, gpus=4), regions=((EAST, WEST)[int(rng.integers(2))],))
