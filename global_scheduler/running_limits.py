"""Which queued workloads may start as far as their tenants' limits of running workloads go (`limits.max_running`).

Every live attempt counts, until it is gone; of what waits, those nearest to the head of the queue come first. Whoever is beyond
the limit stands in no auction until another one of its tenant has ended.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from global_scheduler.scan_view import PendingColumns, RunningColumns, TenantColumns


def at_running_limit(
    tenants: TenantColumns, running: RunningColumns, pending: PendingColumns, order: NDArray[np.int64]
) -> NDArray[np.bool_] | None:
    """For each pending entry whether its tenant's limit keeps it back; None where no tenant has any. `order` is that of the queue,
    from its head on."""
    if tenants.max_running is None:
        return None
    live = np.bincount(running.tenant, minlength=len(tenants.ids))
    left = tenants.max_running - live
    in_order = pending.tenant[order]
    # Sorted by tenant with the order kept, so that the place within the tenant is the distance to its first.
    by_tenant = np.argsort(in_order, kind="stable")
    sorted_tenants = in_order[by_tenant]
    place = np.arange(len(order)) - np.searchsorted(sorted_tenants, sorted_tenants, side="left")
    kept_back = np.zeros(len(order), np.bool_)
    kept_back[order[by_tenant]] = place >= left[sorted_tenants]
    return kept_back


def worth_writing(
    changed: NDArray[np.int64],
    promoted: NDArray[np.int64],
    was_at_limit: NDArray[np.bool_] | None,
    at_limit: NDArray[np.bool_] | None,
) -> NDArray[np.int64]:
    """Of the entries that have changed those that must be stored, ascending: what is kept back, and was before, stands nowhere."""
    if at_limit is None and was_at_limit is None:
        return changed
    rows = len(at_limit) if at_limit is not None else len(was_at_limit) if was_at_limit is not None else 0
    now = at_limit if at_limit is not None else np.zeros(rows, np.bool_)
    before = was_at_limit if was_at_limit is not None else np.zeros(rows, np.bool_)
    written = np.zeros(rows, np.bool_)
    written[changed] = True
    written &= ~(now & before)
    written |= now != before
    written[promoted] = True
    return np.flatnonzero(written)
