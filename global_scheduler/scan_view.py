"""What a scan pass looks at: tenants, live attempts and queued workloads, as read-only columns.

One element per row in every array. The order of the rows is part of the type, so that the same facts are always the
same view: tenants by id; pending entries by (submit time, id), running attempts by (start, id, attempt). Use
view_builder.build_scan_view, which sorts, rather than these constructors, which only check. A caller with columns that are
right by construction, pass after pass, may leave the checks out: `checked=False`. For the same reason none of these classes is
frozen, though nothing changes them: a frozen one takes five times as long to make, and a pass over a short queue makes 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from domain.identifiers import TenantId, WorkloadId
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY, UNLIMITED
from global_scheduler.knowledge import KnownColumns, OracleWork
from global_scheduler.scan_settings import ScanSettings
from global_scheduler.service_history import ServiceHistory

NOT_RANKED = -1
"""The stored priority of an entry that no pass has seen yet."""

NONE_ASKED = -1
"""Of a workload that asks for no priority: it has that of its tenant."""

_Scalar = TypeVar("_Scalar", bound=np.generic)
_Name = TypeVar("_Name", str, tuple[str, int])


@dataclass(slots=True, eq=False)
class TenantColumns:
    """Tenants, sorted by id."""

    ids: tuple[TenantId, ...]
    quota: NDArray[np.int64]
    """[tenant, bucket]: GPUs, or thousandths of a CPU. A bucket that the tenant does not have is 0."""
    fair_share_weight: NDArray[np.float64]
    used_gpus: NDArray[np.float64]
    """On average over the usage window."""
    used_cpus: NDArray[np.float64]
    max_running: NDArray[np.int64] | None = None
    """So many live attempts at most; UNLIMITED for who has no limit. None: nobody has one."""
    checked: InitVar[bool] = True

    def __post_init__(self, checked: bool) -> None:
        if not checked:
            return
        _settle(self, len(self.ids), ("fair_share_weight", "used_gpus", "used_cpus"))
        if self.max_running is not None:
            _settle(self, len(self.ids), ("max_running",))
        if self.quota.ndim != 2 or len(self.quota) != len(self.ids):
            raise ValueError("quota must have one row per tenant")
        object.__setattr__(self, "quota", _read_only(self.quota))
        if any(a >= b for a, b in zip(self.ids, self.ids[1:], strict=False)):
            raise ValueError("tenants must be sorted by id, each named once")
        if not ((self.fair_share_weight > 0.0) & np.isfinite(self.fair_share_weight)).all():
            raise ValueError("fair-share weights must be finite and more than 0")
        for used in (self.used_gpus, self.used_cpus):
            if not ((used >= 0.0) & np.isfinite(used)).all():
                raise ValueError("windowed use must be finite and not negative")
        _require_within("quotas", self.quota, 0, UNLIMITED)


@dataclass(slots=True, eq=False)
class DemandColumns:
    """What rows are charged, in compressed rows: row i has the elements offsets[i] to offsets[i + 1], by bucket."""

    offsets: NDArray[np.int64]
    bucket: NDArray[np.int16]
    amount: NDArray[np.int64]
    """GPUs, or thousandths of a CPU; more than 0."""
    checked: InitVar[bool] = True

    def __post_init__(self, checked: bool) -> None:
        if not checked:
            return
        _settle(self, len(self.amount), ("bucket", "amount"))
        _settle(self, len(self.offsets), ("offsets",))
        if len(self.offsets) == 0 or self.offsets[0] != 0 or self.offsets[-1] != len(self.amount):
            raise ValueError("demand offsets must go from 0 to the number of elements")
        if (np.diff(self.offsets) < 0).any():
            raise ValueError("demand offsets must not fall")
        ascends = np.diff(self.bucket) > 0
        inner_offsets = self.offsets[1:-1]
        starts = inner_offsets[(inner_offsets > 0) & (inner_offsets < len(self.amount))]
        ascends[starts - 1] = True
        if not ascends.all():
            raise ValueError("each row of a demand must name its buckets in order, each once")
        _require_within("demands", self.amount, 1, UNLIMITED)

    @property
    def rows(self) -> int:
        return len(self.offsets) - 1

    def of_row(self, row: int) -> list[tuple[int, int]]:
        """(bucket, amount) of one row, by bucket."""
        part = slice(int(self.offsets[row]), int(self.offsets[row + 1]))
        return list(zip(self.bucket[part].tolist(), self.amount[part].tolist(), strict=True))


@dataclass(slots=True, eq=False)
class StoredTuples:
    """What earlier passes decided and the database holds; a priority of NOT_RANKED means nothing yet."""

    priority: NDArray[np.int8]
    level: NDArray[np.int16]
    credit: NDArray[np.float64]
    within_quota: NDArray[np.bool_]
    at_limit: NDArray[np.bool_] | None = None
    """As in `ScanPlan`; None: nothing was."""
    checked: InitVar[bool] = True

    def __post_init__(self, checked: bool) -> None:
        if not checked:
            return
        _settle(self, len(self.priority), ("priority", "level", "credit", "within_quota"))
        if self.at_limit is not None:
            _settle(self, len(self.priority), ("at_limit",))


@dataclass(slots=True, eq=False)
class PendingColumns:
    """Queued workloads, by (submit time, id)."""

    workloads: Sequence[WorkloadId]
    tenant: NDArray[np.int32]
    """Position in TenantColumns."""
    quota_priority: NDArray[np.int8]
    """At which it is within quota: that of the quota that it is charged to."""
    submitted_s: NDArray[np.float64]
    demand: DemandColumns
    stored: StoredTuples
    known: KnownColumns
    oracle: OracleWork | None = None
    """None in a service."""
    importance: NDArray[np.int8] | None = None
    """Among the workloads of their tenants (domain.priority_class); None: all are as important."""
    checked: InitVar[bool] = True

    def __post_init__(self, checked: bool) -> None:
        if not checked:
            return
        _settle(self, len(self.workloads), ("tenant", "quota_priority", "submitted_s"))
        if self.importance is not None:
            _settle(self, len(self.workloads), ("importance",))
        _require_within("priorities of quotas", self.quota_priority, HIGHEST_PRIORITY, LOWEST_PRIORITY)
        _require_known(self.known, len(self.workloads))
        if self.demand.rows != len(self.workloads) or len(self.stored.priority) != len(self.workloads):
            raise ValueError("demand and stored tuples must have one row per pending entry")
        if not np.isfinite(self.submitted_s).all():
            raise ValueError("submit times must be finite")
        if not in_order(self.submitted_s, self.workloads):
            raise ValueError("pending entries must be sorted by submit time and id, each named once")

    def __len__(self) -> int:
        return len(self.workloads)


@dataclass(slots=True, eq=False)
class RunningColumns:
    """Live attempts (dispatched, running, preempting), by (start, id, attempt): oldest first."""

    workloads: Sequence[WorkloadId]
    attempt: NDArray[np.int32]
    tenant: NDArray[np.int32]
    quota_priority: NDArray[np.int8]
    """At which it is within quota, whether it is or not."""
    started_s: NDArray[np.float64]
    """When it was dispatched or started."""
    priority: NDArray[np.int8]
    level: NDArray[np.int16]
    within_quota: NDArray[np.bool_]
    leaving: NDArray[np.bool_]
    """It is being evicted. It is charged until it is gone, and never gains anything."""
    demand: DemandColumns
    known: KnownColumns
    oracle: OracleWork | None = None
    """None in a service."""
    checked: InitVar[bool] = True

    def __post_init__(self, checked: bool) -> None:
        if not checked:
            return
        columns = ("attempt", "tenant", "quota_priority", "started_s", "priority", "level", "within_quota", "leaving")
        _settle(self, len(self.workloads), columns)
        _require_known(self.known, len(self.workloads))
        if self.demand.rows != len(self.workloads):
            raise ValueError("demand must have one row per running attempt")
        _require_within("priorities of quotas", self.quota_priority, HIGHEST_PRIORITY, LOWEST_PRIORITY)
        _require_within("running priorities", self.priority, HIGHEST_PRIORITY, LOWEST_PRIORITY)
        if not np.isfinite(self.started_s).all():
            raise ValueError("start times must be finite")
        if not in_order(self.started_s, list(zip(self.workloads, self.attempt.tolist(), strict=True))):
            raise ValueError("running attempts must be sorted by start, id and attempt, each named once")

    def __len__(self) -> int:
        return len(self.workloads)


@dataclass(slots=True, eq=False)
class ScanView:
    """The snapshot that one scan pass decides on."""

    buckets: tuple[str, ...]
    """Names of the quota buckets, as `QuotaBuckets` has them."""
    tenants: TenantColumns
    running: RunningColumns
    pending: PendingColumns
    settings: ScanSettings = field(default_factory=ScanSettings)
    service: ServiceHistory | None = None
    """Of completed workloads. None: no policy asks for it."""
    has_lowest_quota: bool = False
    """Whether any tenant has a quota at the lowest priority, so that over-quota workloads stand below those within it."""
    shares_opportunistic: bool = False
    """Whether tenants own cells, so that over-quota workloads are ordered by their tenants' shares of the rest."""
    packing: NDArray[np.float64] | None = None
    """One finite number per pending entry: a packing orders them by it (`packing_order`), the greatest first, in place of
    the ordering policies of their priorities. None: nothing does."""
    checked: InitVar[bool] = True

    def __post_init__(self, checked: bool) -> None:
        if not checked:
            return
        if self.tenants.quota.shape[1] != len(self.buckets):
            raise ValueError("quota must have one column per bucket")
        if self.packing is not None and not (
            len(self.packing) == len(self.pending) and np.isfinite(self.packing).all()
        ):
            raise ValueError("a packing must give each pending entry a finite number")
        for rows in (self.running, self.pending):
            _require_within("tenant positions", rows.tenant, 0, len(self.tenants.ids) - 1)
            _require_within("bucket positions", rows.demand.bucket, 0, len(self.buckets) - 1)


def in_order(time_s: NDArray[np.float64], names: Sequence[_Name]) -> bool:
    """True when the rows ascend strictly by (time, name)."""
    steps = np.diff(time_s)
    if (steps < 0.0).any():
        return False
    # Names are looked at only where the times are equal: usually nowhere.
    return all(names[row] < names[row + 1] for row in np.flatnonzero(steps == 0.0).tolist())


def _settle(owner: object, rows: int, names: tuple[str, ...]) -> None:
    """Checks that each array has one element per row, and puts a read-only view of it in its place."""
    for name in names:
        array: NDArray[np.generic] = getattr(owner, name)
        if array.shape != (rows,):
            raise ValueError(f"{name} must have {rows} elements, not the shape {array.shape}")
        object.__setattr__(owner, name, _read_only(array))


def _read_only(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _require_known(known: KnownColumns, rows: int) -> None:
    """Checks what policies are given."""
    for name in (
        "gpus",
        "submitted_s",
        "queued_since_s",
        "attained_gpu_s",
        "started_s",
        "attained_s",
        "first_started_s",
    ):
        array: NDArray[np.float64] = getattr(known, name)
        if array.shape != (rows,):
            raise ValueError(f"{name} must have {rows} elements, not the shape {array.shape}")
    # That of an attempt that was resized is made up for what it held before.
    is_more = (known.attained_gpu_s >= 0.0) | ~np.isnan(known.started_s)
    if not (is_more & np.isfinite(known.attained_gpu_s)).all():
        raise ValueError("attained service must be finite and not negative")


def _require_within(what: str, values: NDArray[np.integer], least: int, greatest: int) -> None:
    if values.size and not (least <= values.min() and values.max() <= greatest):
        raise ValueError(f"{what} must be from {least} to {greatest}, not {values.min()} to {values.max()}")
