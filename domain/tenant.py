"""Tenants, priorities, and what a workload takes of a quota."""

from __future__ import annotations

from dataclasses import dataclass

from domain.declared_cells import DeclaredVirtualCluster
from domain.identifiers import TenantId
from domain.resources import Quota, capacity_millicpus, request_millicpus
from domain.tenant_limits import NO_LIMITS, TenantLimits
from domain.workload import WorkloadSpecification

HIGHEST_PRIORITY = 0
LOWEST_PRIORITY = 6
"""MAST §4.2 has seven levels; over-quota workloads are at the lowest."""


UNLIMITED = 2**60
"""The limit of a bucket without one."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A team: what it may use at which priorities, its weight in fair shares, its virtual clusters."""

    tenant: TenantId
    priority: int
    """Of its workloads that ask for none, while they are within quota."""
    quota: Quota
    """At that priority."""
    fair_share_weight: float = 1.0
    virtual_clusters: tuple[DeclaredVirtualCluster, ...] = ()
    further_quotas: tuple[tuple[int, Quota], ...] = ()
    """Quotas at other priorities, ascending: "Training workloads with different priorities are assigned capacity quotas per
    priority level" (MAST §2)."""

    limits: TenantLimits = NO_LIMITS
    """Of what waits, what runs and how fast it submits, whatever its quotas."""

    @property
    def quotas(self) -> tuple[tuple[int, Quota], ...]:
        """All of them by priority, ascending."""
        return tuple(sorted([(self.priority, self.quota), *self.further_quotas], key=lambda entry: entry[0]))

    @property
    def priorities(self) -> tuple[int, ...]:
        """Those that its workloads may ask for, ascending."""
        return tuple(priority for priority, _ in self.quotas)

    def quota_at(self, priority: int) -> Quota:
        """What it may use at that priority; nothing at all where it has no quota."""
        return next((quota for at, quota in self.quotas if at == priority), _NOTHING)

    @property
    def has_lowest_quota(self) -> bool:
        """Whether it has a quota of GPUs, or one of CPUs that says how many, at the priority of over-quota workloads."""
        quota = self.quota_at(LOWEST_PRIORITY)
        return any(gpus for _, gpus in quota.gpus) or bool(quota.cpus)

    def priority_of(self, asked: int | None) -> int:
        """The priority of a workload of it that asks for that one (None: for none), while it is within quota."""
        return self.priority if asked is None else asked


_NOTHING = Quota.of({}, cpus=0.0)

CPU_BUCKET = "cpus"
"""The quota bucket of CPUs, in thousandths; no GPU model may have this name."""

_AT_PRIORITY = " at priority "
"""No GPU model has a space in its name."""


def bucket_at(bucket: str, priority: int | None) -> str:
    """The name of a bucket of a tenant's quota: that of its GPU model (or CPU_BUCKET) at the tenant's own priority (None),
    with the priority at any other one."""
    return bucket if priority is None else f"{bucket}{_AT_PRIORITY}{priority}"


def in_words(bucket: str) -> tuple[str, str]:
    """The GPU model (or CPU_BUCKET) of a bucket, and what to say of its priority after it: nothing at the tenant's own."""
    resource, at, priority = bucket.partition(_AT_PRIORITY)
    return resource, at + priority


def quota_charges(specification: WorkloadSpecification, tenant: Tenant) -> dict[str, int]:
    """What a workload takes of its tenant's quota while it runs, by bucket, without zeros; keys are sorted.

    Charged is the quota at the priority that it asks for. GPUs go to the bucket of the model asked for (`Quota.bucket`).
    CPUs count where a task says how many it wants; a proportional share comes with its GPUs and is not charged.
    """
    priority = tenant.priority_of(specification.priority)
    quota, at = tenant.quota_at(priority), None if priority == tenant.priority else priority
    charges: dict[str, int] = {}
    for job in specification.jobs:
        resources = job.resources
        if resources.gpus:
            bucket = bucket_at(str(quota.bucket(resources.gpu_model)), at)
            charges[bucket] = charges.get(bucket, 0) + resources.gpus * job.tasks
        if resources.cpus:
            bucket = bucket_at(CPU_BUCKET, at)
            charges[bucket] = charges.get(bucket, 0) + request_millicpus(resources.cpus) * job.tasks
    return dict(sorted(charges.items()))


def quota_limits(tenant: Tenant) -> dict[str, int]:
    """The tenant's quotas by bucket, in the units of `quota_charges`; a bucket that is missing is 0."""
    limits: dict[str, int] = {}
    for priority, quota in tenant.quotas:
        at = None if priority == tenant.priority else priority
        limits.update({bucket_at(str(model), at): gpus for model, gpus in quota.gpus})
        limits[bucket_at(CPU_BUCKET, at)] = UNLIMITED if quota.cpus is None else capacity_millicpus(quota.cpus)
    return limits
