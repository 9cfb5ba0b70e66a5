"""Names to numbers for the quota pass: which bucket of its tenant's quota each part of a demand is charged to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from domain.identifiers import ANY_GPU_MODEL, TenantId, WorkloadId
from domain.resources import capacity_millicpus
from domain.tenant import Tenant
from global_scheduler.scan_view import CPUS_BUCKET, UNLIMITED, DemandColumns

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
    """The quota buckets of all tenants: GPU models and `any`, sorted, then CPUs. Tenants must be sorted by id."""

    def __init__(self, tenants: Sequence[Tenant]) -> None:
        models = sorted({model for tenant in tenants for model, _ in tenant.quota.gpus} | {ANY_GPU_MODEL})
        if CPUS_BUCKET in models:
            raise ValueError(f"no GPU model may be called {CPUS_BUCKET!r}")
        self.names = (*models, CPUS_BUCKET)
        self._tenant_position = {tenant.tenant: position for position, tenant in enumerate(tenants)}
        self._column = {name: column for column, name in enumerate(self.names)}
        self.any_column = self._column[ANY_GPU_MODEL]
        self.cpus_column = self._column[CPUS_BUCKET]
        # [tenant, column]: domain.resources.Quota.bucket, as a table.
        self._charged_to = np.full((len(tenants), len(self.names)), self.any_column, dtype=np.int64)
        self._charged_to[:, self.cpus_column] = self.cpus_column
        for position, tenant in enumerate(tenants):
            for model, _ in tenant.quota.gpus:
                self._charged_to[position, self._column[model]] = self._column[model]

    def quotas(self, tenants: Sequence[Tenant]) -> NDArray[np.int64]:
        """[tenant, bucket]: GPUs, and thousandths of a CPU."""
        quota = np.zeros(self._charged_to.shape, dtype=np.int64)
        for position, tenant in enumerate(tenants):
            for model, gpus in tenant.quota.gpus:
                quota[position, self._column[model]] = gpus
            cpus = tenant.quota.cpus
            quota[position, self.cpus_column] = UNLIMITED if cpus is None else min(capacity_millicpus(cpus), UNLIMITED)
        return quota

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
        """The parts of demands that are given as one mapping per row, by GPU model, bucket or `cpus`."""
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
