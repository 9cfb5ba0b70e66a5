"""I4: the within-quota use of a tenant at a priority never exceeds its quota there.

Use counts from dispatch to the end of the attempt, with all base tasks: GPUs in the quota's bucket of the model
asked for, CPUs where the request names them. Standing is part of it: within quota a workload has the priority that it
asked for (or else its tenant's), beyond it the lowest; else the limit would not mean anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from domain.identifiers import GpuModel
from domain.tenant import LOWEST_PRIORITY, Tenant, bucket_at, in_words
from simulator.validation.gangs import JobDemand
from simulator.validation.report import Findings, Invariant

CPUS = "(CPUs)"
"""The bucket that is no GPU model (nor can be the name of one), counted in millionths of a CPU, rounded down."""

Charge = tuple[tuple[str, int], ...]
"""Amounts by bucket."""


class Quotas:
    """All tenants' quotas, and what they use of them."""

    def __init__(self, tenants: Sequence[Tenant], findings: Findings) -> None:
        self.checks = 0
        self._findings = findings
        self._tenants = {str(tenant.tenant): tenant for tenant in tenants}
        self._used: dict[tuple[str, str], int] = {}

    def charge_of(self, tenant: str, jobs: Iterable[JobDemand], asked_priority: int | None = None) -> Charge:
        """What a workload is charged when it is within quota; nothing, and a violation, for an unknown tenant, and for a
        priority at which its tenant has no quota."""
        self.checks += 1
        known = self._tenants.get(tenant)
        if known is None:
            self._add(f"belongs to tenant {tenant}, which has no quota because it does not exist")
            return ()
        priority = known.priority_of(asked_priority)
        if priority not in known.priorities:
            self._add(f"asks for priority {priority}, at which tenant {tenant} has no quota")
            return ()
        quota, at = known.quota_at(priority), None if priority == known.priority else priority
        amounts: dict[str, int] = {}
        for job in jobs:
            if job.gpus:
                bucket = bucket_at(str(quota.bucket(GpuModel(job.gpu_model))), at)
                amounts[bucket] = amounts.get(bucket, 0) + job.gpus * job.tasks
            if job.cpus and quota.cpus is not None:
                bucket = bucket_at(CPUS, at)
                amounts[bucket] = amounts.get(bucket, 0) + int(job.cpus * 1_000_000) * job.tasks
        return tuple(sorted(amounts.items()))

    def use(self, tenant: str, charge: Charge, asked_priority: int | None = None) -> None:
        """Adds to the tenant's within-quota use at that priority, and compares it with the quota."""
        known = self._tenants.get(tenant)
        if known is None:
            return
        self.checks += 1
        quota = known.quota_at(known.priority_of(asked_priority))
        for bucket, amount in charge:
            used = self._used.get((tenant, bucket), 0) + amount
            self._used[tenant, bucket] = used
            resource, at_priority = in_words(bucket)
            if resource == CPUS:
                if quota.cpus is not None and used > quota.cpus * 1_000_000 + 0.5:
                    self._add(
                        f"tenant {tenant} has a quota of {quota.cpus:.10g} CPUs{at_priority}, but with"
                        f" {amount / 1e6:.10g} more {used / 1e6:.10g} are in use as within quota"
                    )
                continue
            limit = quota.gpus_in(GpuModel(resource))
            if used > limit:
                self._add(
                    f"tenant {tenant} has a quota of {limit} GPUs in bucket {bucket}, but with {amount} more {used}"
                    " are in use as within quota"
                )

    def give_back(self, tenant: str, charge: Charge) -> None:
        """Takes back what `use` added."""
        if tenant in self._tenants:
            for bucket, amount in charge:
                self._used[tenant, bucket] -= amount

    def check_standing(
        self, tenant: str, priority: int, asked_priority: int | None = None, *, within_quota: bool
    ) -> None:
        """Within quota the priority asked for, or else the tenant's; beyond it the lowest."""
        known = self._tenants.get(tenant)
        if known is None:
            return
        self.checks += 1
        if within_quota and asked_priority is not None and priority != asked_priority:
            self._add(f"has priority {priority} within quota, but asked for priority {asked_priority}")
        if within_quota and asked_priority is None and priority != known.priority:
            self._add(f"has priority {priority} within quota, but tenant {tenant} has priority {known.priority}")
        if not within_quota and priority != LOWEST_PRIORITY:
            self._add(f"has priority {priority} beyond its tenant's quota, where all have priority {LOWEST_PRIORITY}")

    def _add(self, sentence: str) -> None:
        self._findings.add(Invariant.I4, sentence)
