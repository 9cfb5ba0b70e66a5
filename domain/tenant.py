"""Tenants, priorities, and what a workload takes of a quota."""

from __future__ import annotations

from dataclasses import dataclass

from domain.declared_cells import DeclaredVirtualCluster
from domain.identifiers import TenantId
from domain.resources import Quota, capacity_millicpus, request_millicpus
from domain.workload import WorkloadSpecification

HIGHEST_PRIORITY = 0
LOWEST_PRIORITY = 6
"""MAST §4.2 has seven levels; over-quota workloads are at the lowest."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A team: the priority of its within-quota workloads, its quota, its weight in fair shares, its virtual clusters."""

    tenant: TenantId
    priority: int
    quota: Quota
    fair_share_weight: float = 1.0
    virtual_clusters: tuple[DeclaredVirtualCluster, ...] = ()


CPU_BUCKET = "cpus"
"""The quota bucket of CPUs, in thousandths; no GPU model may have this name."""


def quota_charges(specification: WorkloadSpecification, quota: Quota) -> dict[str, int]:
    """What a workload takes of its tenant's quota while it runs, by bucket, without zeros; keys are sorted.

    GPUs go to the bucket of the model asked for (`Quota.bucket`). CPUs count where a task says how many it wants;
    a proportional share comes with its GPUs and is not charged.
    """
    charges: dict[str, int] = {}
    for job in specification.jobs:
        resources = job.resources
        if resources.gpus:
            bucket = str(quota.bucket(resources.gpu_model))
            charges[bucket] = charges.get(bucket, 0) + resources.gpus * job.tasks
        if resources.cpus:
            charges[CPU_BUCKET] = charges.get(CPU_BUCKET, 0) + request_millicpus(resources.cpus) * job.tasks
    return dict(sorted(charges.items()))


def quota_limits(quota: Quota) -> dict[str, int]:
    """The quota by bucket, in the units of `quota_charges`; a bucket that is missing is 0, but CPUs are unlimited."""
    limits = {str(model): gpus for model, gpus in quota.gpus}
    if quota.cpus is not None:
        limits[CPU_BUCKET] = capacity_millicpus(quota.cpus)
    return limits
