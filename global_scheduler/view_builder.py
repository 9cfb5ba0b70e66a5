"""Makes the snapshot of a scan pass from columns as they are loaded: no object per row, any order of rows.

An entry that must not run yet (it waits after a failure) is to be left out where the columns are loaded: it would
hold quota that others could use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from domain.identifiers import TenantId, WorkloadId
from domain.tenant import UNLIMITED, Tenant
from global_scheduler.knowledge import Estimates, KnownWork
from global_scheduler.quota_buckets import Demand, QuotaBuckets, millicpus_of
from global_scheduler.scan_settings import ScanSettings
from global_scheduler.scan_view import (
    NONE_ASKED,
    NOT_RANKED,
    PendingColumns,
    RunningColumns,
    ScanView,
    StoredTuples,
    TenantColumns,
    in_order,
)
from global_scheduler.service_history import ServiceHistory
from global_scheduler.usage_window import WindowedUse

_Scalar = TypeVar("_Scalar", bound=np.generic)
_Item = TypeVar("_Item")
_Name = TypeVar("_Name", str, tuple[str, int])


@dataclass(frozen=True, slots=True, eq=False)
class PendingRows:
    """Queued workloads, one element per workload in each column, in any order.

    Demands are those of all base tasks together. Fastest when sorted by (submit time, id by code points).
    """

    workloads: Sequence[WorkloadId]
    tenants: Sequence[TenantId]
    submitted_s: ArrayLike
    gpu_model: Sequence[str]
    gpus: ArrayLike
    """GPUs asked for, of `gpu_model`."""
    cpus: ArrayLike
    """CPUs asked for explicitly."""
    more_gpus: Sequence[Mapping[str, int] | None]
    """GPUs of further models, where a workload asks for several."""
    stored_priority: Sequence[int | None]
    """None: no pass has ranked it yet."""
    stored_level: ArrayLike
    stored_credit: ArrayLike
    stored_within_quota: ArrayLike
    queued_since_s: ArrayLike
    """Its submission, or the end of its last attempt."""
    attained_gpu_s: ArrayLike
    """GPU-seconds received in earlier attempts since its last promotion."""
    attained_s: ArrayLike
    """Seconds that it ran in earlier attempts since its last promotion."""
    first_started_s: ArrayLike
    """When the first of its attempts started to work; infinity: none did."""
    estimates: Estimates | None = None
    """None: the settings do not want any."""
    asked_priority: ArrayLike | None = None
    """The priority that each asks for, or NONE_ASKED; None: none asks for any."""
    stored_at_limit: ArrayLike | None = None
    """Whether it was kept back; None: none was."""
    importance: Mapping[int, int] | None = None
    """By row, of those that are of a priority class other than the normal one; None: none is."""


@dataclass(frozen=True, slots=True, eq=False)
class RunningRows:
    """Live attempts, one element per attempt in each column, in any order."""

    workloads: Sequence[WorkloadId]
    attempts: ArrayLike
    tenants: Sequence[TenantId]
    started_s: ArrayLike
    """When it was dispatched or started."""
    priority: ArrayLike
    level: ArrayLike
    within_quota: ArrayLike
    leaving: ArrayLike
    """True when it is being evicted."""
    charges: Sequence[Mapping[str, int]]
    """GPUs of the base tasks by model or quota bucket, and `cpus` in thousandths."""
    gpus: ArrayLike
    """That it has held since `changed_s`."""
    submitted_s: ArrayLike
    working_since_s: ArrayLike
    """When its tasks began to run; not a number while they are being set up."""
    attained_gpu_s: ArrayLike
    """GPU-seconds received before `changed_s`, since the workload's last promotion."""
    estimates: Estimates | None = None
    """None: the settings do not want any."""
    changed_s: ArrayLike | None = None
    """When it was resized or retuned last, or else `working_since_s`; None: that for all."""
    asked_priority: ArrayLike | None = None
    """The priority that the workload of each asks for, or NONE_ASKED; None: none asks for any."""


def build_scan_view(
    tenants: Iterable[Tenant],
    use: Mapping[TenantId, WindowedUse],
    running: RunningRows,
    pending: PendingRows,
    settings: ScanSettings,
    service: ServiceHistory | None = None,
) -> ScanView:
    """The snapshot. The order of tenants and rows does not matter.

    `use` is each tenant's average over the usage window; one that is missing used nothing, and one that is no tenant any more
    does not count. Raises ValueError on columns of different length, on a row of an unknown tenant, on a workload
    named twice at one time, and on demands that are negative or beyond all reason.
    """
    listed = sorted(tenants, key=lambda tenant: tenant.tenant)
    buckets = QuotaBuckets(listed, _priorities_asked_for(running.asked_priority, pending.asked_priority))
    return ScanView(
        buckets=buckets.names,
        tenants=_tenant_columns(listed, use, buckets),
        running=_running_columns(running, buckets),
        pending=_pending_columns(pending, buckets),
        settings=settings,
        service=service,
        has_lowest_quota=any(tenant.has_lowest_quota for tenant in listed),
        shares_opportunistic=any(tenant.virtual_clusters for tenant in listed),
    )


def _tenant_columns(
    tenants: Sequence[Tenant], use: Mapping[TenantId, WindowedUse], buckets: QuotaBuckets
) -> TenantColumns:
    used = [use.get(tenant.tenant, WindowedUse()) for tenant in tenants]
    return TenantColumns(
        ids=tuple(tenant.tenant for tenant in tenants),
        quota=buckets.quotas(tenants),
        fair_share_weight=np.array([tenant.fair_share_weight for tenant in tenants], dtype=np.float64),
        used_gpus=np.array([windowed.gpus for windowed in used], dtype=np.float64),
        used_cpus=np.array([windowed.cpus for windowed in used], dtype=np.float64),
        max_running=running_limits(tenants),
    )


def running_limits(tenants: Sequence[Tenant]) -> NDArray[np.int64] | None:
    """How many workloads of each tenant may run; None where nobody has a limit."""
    limits = [tenant.limits.max_running for tenant in tenants]
    if all(limit is None for limit in limits):
        return None
    return np.array([UNLIMITED if limit is None else limit for limit in limits], np.int64)


def _pending_columns(rows: PendingRows, buckets: QuotaBuckets) -> PendingColumns:
    load = _Loader(rows.workloads)
    tenant = buckets.tenants_of(load.listed("tenants", rows.tenants), rows.workloads)
    submitted_s = load.column("submitted_s", rows.submitted_s, np.float64)
    quota_priority = buckets.priorities_of(tenant, _asked_in(load, rows.asked_priority))
    first_column = buckets.first_columns_of(tenant, quota_priority)
    every_row = np.arange(load.count)
    gpus = load.column("gpus", rows.gpus, np.int64)
    more_rows, more_columns, more_amounts = buckets.flattened(load.listed("more_gpus", rows.more_gpus))
    demand = Demand(
        np.concatenate([every_row, every_row, more_rows]),
        np.concatenate(
            [
                first_column + buckets.columns_of(load.listed("gpu_model", rows.gpu_model)),
                first_column + buckets.cpus_column,
                first_column[more_rows] + more_columns,
            ]
        ),
        np.concatenate(
            [
                gpus,
                millicpus_of(load.column("cpus", rows.cpus, np.float64)),
                more_amounts,
            ]
        ),
    )
    stored_priority = [
        NOT_RANKED if priority is None else priority
        for priority in load.listed("stored_priority", rows.stored_priority)
    ]
    order = _order_by(submitted_s, rows.workloads)
    return PendingColumns(
        workloads=_items_in(rows.workloads, order),
        tenant=_in(tenant, order),
        quota_priority=_in(quota_priority, order),
        submitted_s=_in(submitted_s, order),
        demand=buckets.demand_columns(demand, tenant, order, rows.workloads),
        stored=StoredTuples(
            priority=_in(np.array(stored_priority, dtype=np.int8), order),
            level=_in(load.column("stored_level", rows.stored_level, np.int16), order),
            credit=_in(load.column("stored_credit", rows.stored_credit, np.float64), order),
            within_quota=_in(load.column("stored_within_quota", rows.stored_within_quota, np.bool_), order),
            at_limit=None
            if rows.stored_at_limit is None
            else _in(load.column("stored_at_limit", rows.stored_at_limit, np.bool_), order),
        ),
        importance=_importance(rows.importance, load.count, order),
        known=KnownWork(
            gpus=_in(gpus + _sums_by_row(load.count, more_rows, more_amounts), order),
            submitted_s=_in(submitted_s, order),
            queued_since_s=_in(load.column("queued_since_s", rows.queued_since_s, np.float64), order),
            attained_gpu_s=_in(load.column("attained_gpu_s", rows.attained_gpu_s, np.float64), order),
            started_s=np.full(load.count, np.nan),
            attained_s=_in(load.column("attained_s", rows.attained_s, np.float64), order),
            first_started_s=_in(load.column("first_started_s", rows.first_started_s, np.float64), order),
            estimates=_estimates_in(rows.estimates, order),
        ),
    )


def _running_columns(rows: RunningRows, buckets: QuotaBuckets) -> RunningColumns:
    load = _Loader(rows.workloads)
    tenant = buckets.tenants_of(load.listed("tenants", rows.tenants), rows.workloads)
    attempt = load.column("attempts", rows.attempts, np.int32)
    started_s = load.column("started_s", rows.started_s, np.float64)
    demand = Demand(*buckets.flattened(load.listed("charges", rows.charges)))
    order = _order_by(started_s, list(zip(rows.workloads, attempt.tolist(), strict=True)))
    return RunningColumns(
        workloads=_items_in(rows.workloads, order),
        attempt=_in(attempt, order),
        tenant=_in(tenant, order),
        quota_priority=_in(buckets.priorities_of(tenant, _asked_in(load, rows.asked_priority)), order),
        started_s=_in(started_s, order),
        priority=_in(load.column("priority", rows.priority, np.int8), order),
        level=_in(load.column("level", rows.level, np.int16), order),
        within_quota=_in(load.column("within_quota", rows.within_quota, np.bool_), order),
        leaving=_in(load.column("leaving", rows.leaving, np.bool_), order),
        demand=buckets.demand_columns(demand, tenant, order, rows.workloads),
        known=known_of_running(rows, order),
    )


def _importance(
    important: Mapping[int, int] | None, count: int, order: NDArray[np.int64] | None
) -> NDArray[np.int8] | None:
    """None where nothing is out of the ordinary."""
    if not important:
        return None
    importance = np.zeros(count, np.int8)
    importance[list(important)] = list(important.values())
    return _in(importance, order)


def _asked_in(load: _Loader, asked: ArrayLike | None) -> NDArray[np.int8]:
    if asked is None:
        return np.full(load.count, NONE_ASKED, np.int8)
    return load.column("asked_priority", asked, np.int8)


def _priorities_asked_for(*columns: ArrayLike | None) -> set[int]:
    asked = [np.unique(np.asarray(column, np.int8)) for column in columns if column is not None]
    return {priority for priorities in asked for priority in priorities.tolist()} - {NONE_ASKED}


def known_of_running(rows: RunningRows, order: NDArray[np.int64] | None = None) -> KnownWork:
    """What policies are given of live attempts; in the order of the rows, or in that one."""
    load = _Loader(rows.workloads)
    submitted_s = _in(load.column("submitted_s", rows.submitted_s, np.float64), order)
    gpus = load.column("gpus", rows.gpus, np.float64)
    since_s = load.column("working_since_s", rows.working_since_s, np.float64)
    attained_gpu_s = load.column("attained_gpu_s", rows.attained_gpu_s, np.float64)
    if rows.changed_s is not None:
        # Policies count `gpus` from the start on: what it held otherwise until its last change is made up for.
        before_s = load.column("changed_s", rows.changed_s, np.float64) - since_s
        attained_gpu_s = attained_gpu_s - gpus * np.nan_to_num(before_s)
    return KnownWork(
        gpus=_in(gpus, order),
        submitted_s=submitted_s,
        # It waits no more; since when it did is of no account.
        queued_since_s=submitted_s,
        attained_gpu_s=_in(attained_gpu_s, order),
        started_s=_in(since_s, order),
        # They order what waits, and say when it is promoted; of what runs they are of no account.
        attained_s=np.zeros(load.count),
        first_started_s=np.full(load.count, math.inf),
        estimates=_estimates_in(rows.estimates, order),
    )


def _sums_by_row(count: int, rows: NDArray[np.int64], amounts: NDArray[np.int64]) -> NDArray[np.float64]:
    # Without a row the sums would be whole numbers.
    return np.bincount(rows, weights=amounts, minlength=count).astype(np.float64)


def _estimates_in(estimates: Estimates | None, order: NDArray[np.int64] | None) -> Estimates | None:
    return None if estimates is None else Estimates(_in(estimates.remaining_s, order), _in(estimates.source, order))


class _Loader:
    """Takes columns that must have one element per workload; raises ValueError when one has not."""

    def __init__(self, workloads: Sequence[WorkloadId]) -> None:
        self.count = len(workloads)

    def column(self, name: str, values: ArrayLike, dtype: type[_Scalar]) -> NDArray[_Scalar]:
        array = np.asarray(values, dtype=dtype)
        self._require_count(name, array.size)
        return array

    def listed(self, name: str, values: Sequence[_Item]) -> Sequence[_Item]:
        self._require_count(name, len(values))
        return values

    def _require_count(self, name: str, count: int) -> None:
        if count != self.count:
            raise ValueError(f"the column {name} has {count} elements for {self.count} workloads")


def _order_by(time_s: NDArray[np.float64], names: Sequence[_Name]) -> NDArray[np.int64] | None:
    """The permutation that sorts the rows by (time, name); None when they are sorted."""
    if in_order(time_s, names):
        return None
    order = np.argsort(time_s, kind="stable")
    sorted_s = time_s[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_s[1:] != sorted_s[:-1]]))
    ends = np.append(starts[1:], len(order))
    for tie in np.flatnonzero(ends - starts > 1).tolist():
        part = slice(int(starts[tie]), int(ends[tie]))
        order[part] = sorted(order[part].tolist(), key=names.__getitem__)
    return order


def _in(column: NDArray[_Scalar], order: NDArray[np.int64] | None) -> NDArray[_Scalar]:
    return column if order is None else column[order]


def _items_in(items: Sequence[_Item], order: NDArray[np.int64] | None) -> tuple[_Item, ...]:
    return tuple(items) if order is None else tuple(items[row] for row in order.tolist())
