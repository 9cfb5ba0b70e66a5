"""The service of completed workloads, as it grows: which distributions are in force (Tiresias §3.2.2: "the overall
distribution of job duration may sometimes be available via history logs").

Rule: a distribution is renewed when its samples have grown by a tenth since it was made, counted one by one. So after n
completions it is the same, however often anybody looked in between: in a service and in a simulation alike; and the queue
has to be ranked anew for it some hundred times in its life, not with every completion.
Invariant: the samples in force are the first ones, at least ten elevenths of all that there are.
By tenant, a tenant's own distribution counts as soon as it has LEAST_SAMPLES_OF_A_TENANT; until then that of all tenants.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from domain.identifiers import TenantId
from domain.service_scope import DistributionScope
from global_scheduler.arithmetic import Floats
from global_scheduler.service_distribution import ServiceDistribution, ServiceInForce

LEAST_SAMPLES_OF_A_TENANT = 20
"""Fewer say little of what is to come."""

_GROWTH = 10
"""Renewed when grown by one part in so many."""


class ServiceHistory:
    """Samples of service, and the distributions that are in force."""

    def __init__(
        self, scope: DistributionScope = DistributionScope.GLOBAL, samples_gpu_s: Sequence[float] | Floats = ()
    ) -> None:
        """Begins with the given samples, which count for all tenants.

        Raises ValueError for a sample that is not a number of GPU-seconds greater than 0.
        """
        self._scope = scope
        self._of_all = _Growing(ServiceDistribution(samples_gpu_s) if len(samples_gpu_s) else None)
        self._of_tenants: dict[TenantId, _Growing] = {}

    def completed(self, tenant: TenantId, service_gpu_s: float) -> bool:
        """A workload has completed after so many GPU-seconds; one without GPUs says nothing.

        Returns whether another distribution is in force from now on.
        """
        if service_gpu_s <= 0.0:
            return False
        renewed = self._of_all.add(service_gpu_s)
        if self._scope is DistributionScope.TENANT:
            own = self._of_tenants.setdefault(tenant, _Growing())
            own_renewed = own.add(service_gpu_s)
            renewed = renewed or (own_renewed and own.samples_in_force >= LEAST_SAMPLES_OF_A_TENANT)
        return renewed

    def distribution_for(self, tenant: TenantId) -> ServiceDistribution | None:
        """What counts for that tenant's workloads; None: none has completed yet."""
        own = self._of_tenants.get(tenant)
        if own is not None and own.samples_in_force >= LEAST_SAMPLES_OF_A_TENANT:
            return own.distribution
        return self._of_all.distribution

    def in_force(self, tenants: Sequence[TenantId], tenant_of_row: NDArray[np.int32]) -> ServiceInForce | None:
        """What counts for each row, by the position of its tenant in `tenants`; None: none has completed yet."""
        of_all = self._of_all.distribution
        if of_all is None:
            return None
        if not self._of_tenants:
            return ServiceInForce((of_all,))
        distributions = [of_all]
        of_tenant = np.zeros(len(tenants), np.int64)
        for position, tenant in enumerate(tenants):
            own = self.distribution_for(tenant)
            if own is not None and own is not of_all:
                of_tenant[position] = len(distributions)
                distributions.append(own)
        return ServiceInForce(tuple(distributions), of_tenant[tenant_of_row])


class _Growing:
    """One distribution, and the samples that have come since it was made."""

    def __init__(self, distribution: ServiceDistribution | None = None) -> None:
        self.distribution = distribution
        self.samples_in_force = 0 if distribution is None else len(distribution)
        self._more_gpu_s: list[float] = []

    def add(self, service_gpu_s: float) -> bool:
        """Returns whether the distribution was renewed."""
        self._more_gpu_s.append(service_gpu_s)
        if len(self._more_gpu_s) * _GROWTH < self.samples_in_force:
            return False
        more = ServiceDistribution(self._more_gpu_s)
        self.distribution = more if self.distribution is None else self.distribution.with_samples(more.samples_gpu_s)
        self.samples_in_force = len(self.distribution)
        self._more_gpu_s = []
        return True
