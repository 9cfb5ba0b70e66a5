"""Names to numbers for the quota pass: which bucket of its tenant's quota each part of a demand is charged to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from domain.identifiers import ANY_GPU_MODEL, TenantId, WorkloadId
from domain.tenant import CPU_BUCKET, HIGHEST_PRIORITY, LOWEST_PRIORITY, UNLIMITED, Tenant, bucket_at, quota_limits
from global_scheduler.scan_view import NONE_ASKED, DemandColumns

_LARGEST_DEMAND = 2**40
"""More than any fleet has; a million of them still do not overflow a sum."""

_ROUNDING_SLACK = 1e-6
"""As in domain.resources.request_millicpus."""


class Demand(NamedTuple):
    """Parts of demands, in any order: the row that asks, the column that it names, how much of it."""

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    amount: NDArray[np.int64]


class QuotaBuckets:
    """The quota buckets of all tenants: GPU models and `any`, sorted, then CPUs; those of the tenants' own priorities first,
    then the same for each priority at which any tenant has a further quota, or which any workload asks for. Tenants must be
    sorted by id.

    Where a tenant has no quota it has one of nothing: a workload that asks for it all the same is over-quota.
    """

    def __init__(self, tenants: Sequence[Tenant], asked: Collection[int] = ()) -> None:
        """`asked` are the priorities that workloads ask for; those at which their tenants have quotas need not be named."""
        quotas = [quota for tenant in tenants for _, quota in tenant.quotas]
        models = sorted({model for quota in quotas for model, _ in quota.gpus} | {ANY_GPU_MODEL})
        if CPU_BUCKET in models:
            raise ValueError(f"no GPU model may be called {CPU_BUCKET!r}")
        named = {at for tenant in tenants for at, _ in tenant.quotas} | set(asked)
        beyond = sorted(at for at in named if not HIGHEST_PRIORITY <= at <= LOWEST_PRIORITY)
        if beyond:
            raise ValueError(f"tenant priorities must be from {HIGHEST_PRIORITY} to {LOWEST_PRIORITY}, not {beyond[0]}")
        own = (*models, CPU_BUCKET)
        further = sorted({priority for tenant in tenants for priority, _ in tenant.further_quotas} | set(asked))
        self.names = tuple(bucket_at(name, priority) for priority in (None, *further) for name in own)
        self._tenant_position = {tenant.tenant: position for position, tenant in enumerate(tenants)}
        self._tenant_priority = np.array([tenant.priority for tenant in tenants], dtype=np.int8)
        self._column = {name: column for column, name in enumerate(self.names)}
        self.any_column = self._column[ANY_GPU_MODEL]
        self.cpus_column = self._column[CPU_BUCKET]
        # [tenant, priority]: the first column of its quota there, which is of nothing where it has none.
        self._first_column = np.zeros((len(tenants), LOWEST_PRIORITY + 1), dtype=np.int64)
        for number, priority in enumerate(further, start=1):
            self._first_column[:, priority] = number * len(own)
        # [tenant, column]: domain.resources.Quota.bucket, as a table.
        self._charged_to = np.arange(len(self.names)) // len(own) * len(own) + self.any_column
        self._charged_to[self.cpus_column :: len(own)] = np.arange(self.cpus_column, len(self.names), len(own))
        self._charged_to = np.tile(self._charged_to, (len(tenants), 1))
        for position, tenant in enumerate(tenants):
            for priority, quota in tenant.quotas:
                first = 0 if priority == tenant.priority else (1 + further.index(priority)) * len(own)
                self._first_column[position, priority] = first
                for model, _ in quota.gpus:
                    column = first + self._column[model]
                    self._charged_to[position, column] = column

    def quotas(self, tenants: Sequence[Tenant]) -> NDArray[np.int64]:
        """[tenant, bucket]: GPUs, and thousandths of a CPU."""
        quota = np.zeros(self._charged_to.shape, dtype=np.int64)
        for position, tenant in enumerate(tenants):
            for bucket, limit in quota_limits(tenant).items():
                quota[position, self._column[bucket]] = min(limit, UNLIMITED)
        return quota

    def priorities_of(self, tenant: NDArray[np.int32], asked: NDArray[np.int8]) -> NDArray[np.int8]:
        """By row, the priority of the quota that it is charged to: that asked for, or (NONE_ASKED) its tenant's own."""
        priority: NDArray[np.int8] = np.where(asked == NONE_ASKED, self._tenant_priority[tenant], asked)
        return priority

    def first_columns_of(self, tenant: NDArray[np.int32], priority: NDArray[np.int8]) -> NDArray[np.int64]:
        """By row, from which column on the buckets of its quota stand."""
        first: NDArray[np.int64] = self._first_column[tenant, priority]
        return first

    def tenants_of(self, names: Sequence[TenantId], workloads: Sequence[WorkloadId]) -> NDArray[np.int32]:
        """Positions of tenants; raises ValueError for the first unknown one."""
        try:
            return np.fromiter(map(self._tenant_position.__getitem__, names), dtype=np.int32, count=len(names))
        except KeyError:
            row = next(row for row, name in enumerate(names) if name not in self._tenant_position)
            raise ValueError(f"workload {workloads[row]} belongs to the unknown tenant {names[row]}") from None

    def columns_of(self, models: Sequence[str]) -> NDArray[np.int64]:
        """Columns of GPU models; one that no tenant has a bucket of its own for is `any`."""
        column, any_column = self._column, self.any_column
        return np.fromiter((column.get(model, any_column) for model in models), dtype=np.int64, count=len(models))

    def flattened(self, demands: Sequence[Mapping[str, int] | None]) -> Demand:
        """The parts of demands that are given as one mapping per row, by GPU model, bucket or `cpus`; a model without a bucket of
        its own is `any`."""
        filled = [(row, demand) for row, demand in enumerate(demands) if demand]
        sizes = np.fromiter((len(demand) for _, demand in filled), dtype=np.int64, count=len(filled))
        rows = np.fromiter((row for row, _ in filled), dtype=np.int64, count=len(filled))
        names = [name for _, demand in filled for name in demand]
        amounts = [amount for _, demand in filled for amount in demand.values()]
        return Demand(np.repeat(rows, sizes), self.columns_of(names), np.array(amounts, dtype=np.int64))

    def demand_columns(
        self,
        demand: Demand,
        tenant: NDArray[np.int32],
        order: NDArray[np.int64] | None,
        workloads: Sequence[WorkloadId],
    ) -> DemandColumns:
        """Demands by row and bucket. `tenant` and `workloads` are by row; `order` sorts the rows (None: they are).

        Two models that share a bucket become one charge. Raises ValueError on a demand that is negative or absurd.
        """
        absurd = np.flatnonzero((demand.amount < 0) | (demand.amount > _LARGEST_DEMAND))
        if absurd.size:
            first = int(absurd[0])
            raise ValueError(
                f"workload {workloads[int(demand.row[first])]} asks for {demand.amount[first]} of something"
            )
        asked = demand.amount > 0
        row, amount = demand.row[asked], demand.amount[asked]
        column = self._charged_to[tenant[row], demand.column[asked]]
        if order is not None:
            position = np.empty_like(order)
            position[order] = np.arange(len(order))
            row = position[row]
        key = row * len(self.names) + column
        by_key = np.argsort(key, kind="stable")
        key, amount = key[by_key], amount[by_key]
        first_of_key = np.flatnonzero(np.diff(key, prepend=-1))
        if len(first_of_key) < len(key):
            amount = np.add.reduceat(amount, first_of_key)
            key = key[first_of_key]
        row, bucket = np.divmod(key, len(self.names))
        per_row = np.bincount(row, minlength=len(workloads))
        return DemandColumns(
            offsets=np.concatenate([[0], np.cumsum(per_row)]).astype(np.int64),
            bucket=bucket.astype(np.int16),
            amount=amount,
        )


def millicpus_of(cpus: NDArray[np.float64]) -> NDArray[np.int64]:
    """domain.resources.request_millicpus for a column; raises ValueError on what is no number or absurd."""
    millicpus = np.ceil(cpus * 1000.0 - _ROUNDING_SLACK)
    if not (np.abs(millicpus) <= _LARGEST_DEMAND).all():
        raise ValueError("the CPUs of a workload must be a reasonable number")
    return millicpus.astype(np.int64)
