"""The greedy quota pass (MAST §4.2): what runs within its tenant's quota, among live attempts and queued workloads.

What the paper leaves open is decided here:

* A tenant may have quotas at several priorities (§2). A workload is charged to the one at the priority that it asks for, or
  else to that at its tenant's own, and to no other: each quota has buckets of its own.
* Quota is charged by bucket: GPUs by model (domain.resources.Quota.bucket) and CPUs. Only explicit CPU requests are
  charged; a proportional share comes with its GPUs. Flexible tasks beyond the base tasks are not charged.
  A demand of zero on a bucket always fits, even when the bucket is over-full.
* When a tenant's quota shrank below its within-quota use, attempts that use an over-full bucket become over-quota,
  newest first (those that are being evicted anyway before all others), until no bucket is over-full.
* Then over-quota attempts become within-quota where they fit, oldest first; only then come queued workloads.
  An attempt demoted in the same pass may come back here, if what was over-full was another bucket: so a second pass
  over the same facts changes nothing.
* What does not fit is passed over, not waited for: a later, smaller workload of the tenant may still fit.

Tenants do not share quota, and within a tenant credit never grows with a later submit time (credit.py). So
visiting the entries by (submit time, id) visits each tenant's in credit order, and the pass needs no sort.

Invariant (I4): within-quota use of a tenant at a priority, live attempts and queued workloads together, never exceeds its quota there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from domain.tenant import LOWEST_PRIORITY
from global_scheduler.scan_view import DemandColumns, PendingColumns, RunningColumns, TenantColumns
from kernels.compiled import compiled_beside_others, compiled_part

NOTHING_EXCEEDED = -1


@dataclass(slots=True, eq=False)
class QuotaPass:
    """What is within quota, and what that charges. Arrays are read-only."""

    running_within_quota: NDArray[np.bool_]
    """By live attempt, after re-classification."""
    running_priority: NDArray[np.int8]
    """By live attempt: that of its quota within it, beyond it the lowest."""
    running_use: NDArray[np.int64]
    """[tenant, bucket]: within-quota use of the live attempts, after re-classification."""
    pending_within_quota: NDArray[np.bool_]
    pending_priority: NDArray[np.int8]
    """By queued workload, likewise."""
    exceeded_bucket: NDArray[np.int16]
    """By queued workload: the first bucket in which it did not fit, or NOTHING_EXCEEDED."""


def quota_pass(tenants: TenantColumns, running: RunningColumns, pending: PendingColumns) -> QuotaPass:
    """Classifies every live attempt and every queued workload."""
    use = np.zeros(tenants.quota.shape, np.int64)
    running_use = np.empty_like(use)
    running_within, running_priority = np.empty(len(running), np.bool_), np.empty(len(running), np.int8)
    exceeded = np.empty(len(pending), np.int16)
    pending_within, pending_priority = np.empty(len(pending), np.bool_), np.empty(len(pending), np.int8)
    _classify(
        tenants.quota,
        running.tenant,
        running.quota_priority,
        running.within_quota,
        running.leaving,
        running.demand.offsets,
        running.demand.bucket,
        running.demand.amount,
        pending.tenant,
        pending.quota_priority,
        pending.demand.offsets,
        pending.demand.bucket,
        pending.demand.amount,
        use,
        running_use,
        running_within,
        running_priority,
        exceeded,
        pending_within,
        pending_priority,
    )
    for array in (running_within, running_use, pending_within, exceeded):
        array.flags.writeable = False
    return QuotaPass(running_within, running_priority, running_use, pending_within, pending_priority, exceeded)


def charged(
    tenants: TenantColumns, tenant: NDArray[np.int32], demand: DemandColumns, counted: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """[tenant, bucket]: the sum of the demands of the rows that are counted."""
    use = np.zeros(tenants.quota.shape, dtype=np.int64)
    _charge(tenant, counted, demand.offsets, demand.bucket, demand.amount, use)
    return use


@compiled_part
def _charge_if_it_fits(
    tenant: int,
    start: int,
    end: int,
    bucket: NDArray[np.int16],
    amount: NDArray[np.int64],
    quota: NDArray[np.int64],
    use: NDArray[np.int64],
) -> int:
    """Charges all elements and returns -1; or charges nothing and returns the first bucket that would be exceeded."""
    for element in range(start, end):
        if use[tenant, bucket[element]] + amount[element] > quota[tenant, bucket[element]]:
            return int(bucket[element])
    for element in range(start, end):
        use[tenant, bucket[element]] += amount[element]
    return -1


@compiled_beside_others
def _charge(
    tenant: NDArray[np.int32],
    counted: NDArray[np.bool_],
    offsets: NDArray[np.int64],
    bucket: NDArray[np.int16],
    amount: NDArray[np.int64],
    use: NDArray[np.int64],
) -> None:
    """Adds the demands of the rows that are counted to `use`."""
    for row in range(tenant.size):
        if counted[row]:
            for element in range(offsets[row], offsets[row + 1]):
                use[tenant[row], bucket[element]] += amount[element]


@compiled_beside_others
def _reclassify(
    tenant: NDArray[np.int32],
    leaving: NDArray[np.bool_],
    offsets: NDArray[np.int64],
    bucket: NDArray[np.int16],
    amount: NDArray[np.int64],
    quota: NDArray[np.int64],
    use: NDArray[np.int64],
    within: NDArray[np.bool_],
) -> None:
    """Demotes, then promotes; the rows stand oldest first. Changes `use` and `within`."""
    for turn in range(2):
        for row in range(tenant.size - 1, -1, -1):
            if not within[row] or leaving[row] != (turn == 0):
                continue
            relieves = False
            for element in range(offsets[row], offsets[row + 1]):
                if use[tenant[row], bucket[element]] > quota[tenant[row], bucket[element]]:
                    relieves = True
            if relieves:
                within[row] = False
                for element in range(offsets[row], offsets[row + 1]):
                    use[tenant[row], bucket[element]] -= amount[element]
    for row in range(tenant.size):
        if within[row] or leaving[row]:
            continue
        if _charge_if_it_fits(tenant[row], offsets[row], offsets[row + 1], bucket, amount, quota, use) < 0:
            within[row] = True


@compiled_beside_others
def _admit(
    tenant: NDArray[np.int32],
    offsets: NDArray[np.int64],
    bucket: NDArray[np.int16],
    amount: NDArray[np.int64],
    quota: NDArray[np.int64],
    use: NDArray[np.int64],
    exceeded: NDArray[np.int16],
) -> None:
    """Charges queued workloads in the order of the rows. Changes `use`; fills `exceeded`."""
    for row in range(tenant.size):
        exceeded[row] = _charge_if_it_fits(tenant[row], offsets[row], offsets[row + 1], bucket, amount, quota, use)


@compiled_beside_others
def _classify(
    quota: NDArray[np.int64],
    running_tenant: NDArray[np.int32],
    running_quota_priority: NDArray[np.int8],
    within_before: NDArray[np.bool_],
    leaving: NDArray[np.bool_],
    running_offsets: NDArray[np.int64],
    running_bucket: NDArray[np.int16],
    running_amount: NDArray[np.int64],
    pending_tenant: NDArray[np.int32],
    pending_quota_priority: NDArray[np.int8],
    pending_offsets: NDArray[np.int64],
    pending_bucket: NDArray[np.int16],
    pending_amount: NDArray[np.int64],
    use: NDArray[np.int64],
    running_use: NDArray[np.int64],
    within: NDArray[np.bool_],
    running_priority: NDArray[np.int8],
    exceeded: NDArray[np.int16],
    fits: NDArray[np.bool_],
    pending_priority: NDArray[np.int8],
) -> None:
    """The whole pass. `use` is zero at first; fills all that comes after it."""
    _charge(running_tenant, within_before, running_offsets, running_bucket, running_amount, use)
    within[:] = within_before
    _reclassify(running_tenant, leaving, running_offsets, running_bucket, running_amount, quota, use, within)
    running_use[:] = use
    for row in range(within.size):
        running_priority[row] = running_quota_priority[row] if within[row] else LOWEST_PRIORITY
    _admit(pending_tenant, pending_offsets, pending_bucket, pending_amount, quota, use, exceeded)
    for row in range(exceeded.size):
        fits[row] = exceeded[row] == NOTHING_EXCEEDED
        pending_priority[row] = pending_quota_priority[row] if fits[row] else LOWEST_PRIORITY
