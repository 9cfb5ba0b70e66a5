"""The order of a tenant's workloads among themselves: by priority class, before credit (decision 089).

Rule: of the workloads of one tenant at the same (priority, level) the more important go first; the places that they have in the
queue together stay as they are, only who of them has which changes. The greedy quota pass serves a tenant's more important
workloads first, too: else the quota would be gone before their turn, and they would stand behind at the lowest priority.

A place is a credit, and ties are decided by the submit time, which nobody can be given. Where a workload would win a tie that the one
whose place it gets would not, it gets the next smaller number instead; so also where two of a tenant have the same credit and are
to stand the other way round.

Invariants: what is of no class costs nothing, and where none of a group is, nothing changes; a tenant's k-th place at a (priority, level)
is never better than without classes, so that nobody else's workload comes to stand behind more of the tenant's than before; the
tenants' within-quota use never exceeds their quotas.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from global_scheduler.quota_pass import QuotaPass, quota_pass
from global_scheduler.scan_view import DemandColumns, PendingColumns, RunningColumns, TenantColumns
from kernels.compiled import compiled_beside_others


def quota_pass_by_class(tenants: TenantColumns, running: RunningColumns, pending: PendingColumns) -> QuotaPass:
    """As `quota_pass`, with each tenant's more important workloads served first."""
    if pending.importance is None:
        return quota_pass(tenants, running, pending)
    order = np.argsort(-pending.importance.astype(np.int16), kind="stable")
    served = replace(
        pending,
        tenant=pending.tenant[order],
        quota_priority=pending.quota_priority[order],
        demand=_in_order(pending.demand, order),
        importance=None,
        checked=False,
    )
    found = quota_pass(tenants, running, served)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    within, exceeded = found.pending_within_quota[place], found.exceeded_bucket[place]
    for array in (within, exceeded):
        array.flags.writeable = False
    return replace(
        found,
        pending_within_quota=within,
        pending_priority=found.pending_priority[place],
        exceeded_bucket=exceeded,
    )


def _in_order(demand: DemandColumns, order: NDArray[np.int64]) -> DemandColumns:
    """The rows of the demand in that order."""
    sizes = np.diff(demand.offsets)[order]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    elements = np.repeat(demand.offsets[:-1][order] - offsets[:-1], sizes) + np.arange(offsets[-1])
    return DemandColumns(offsets, demand.bucket[elements], demand.amount[elements], checked=False)


def own_credits(
    pending: PendingColumns, priority: NDArray[np.int8], level: NDArray[np.int16], credit: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Ordering credits, one per entry, with which each tenant's workloads stand by class in the places that they have together."""
    importance = pending.importance
    if importance is None:
        return credit
    # Levels are no more than 32,767, and priorities no more than 6: the three make one number.
    group = (pending.tenant.astype(np.int64) * 8 + priority) * 65_536 + level
    rows = np.flatnonzero(np.isin(group, group[importance != 0]))
    before = rows[np.lexsort((rows, -credit[rows], group[rows]))]
    after = rows[np.lexsort((rows, -credit[rows], -importance[rows].astype(np.int16), group[rows]))]
    placed = credit.copy()
    _give_places(group[before], before, after, credit, placed)
    return placed


@compiled_beside_others
def _give_places(
    group: NDArray[np.int64],
    before: NDArray[np.int64],
    after: NDArray[np.int64],
    credit: NDArray[np.float64],
    placed: NDArray[np.float64],
) -> None:
    """Gives each of `after` the place of the one of `before` at its position; rows stand by (submit time, id)."""
    for place in range(before.size):
        owner, newcomer = before[place], after[place]
        number = credit[owner]
        if newcomer < owner:
            number = np.nextafter(number, -np.inf)
        if place > 0 and group[place] == group[place - 1]:
            ahead = after[place - 1]
            number = min(number, placed[ahead])
            if number == placed[ahead] and newcomer < ahead:
                number = np.nextafter(number, -np.inf)
        placed[newcomer] = number
