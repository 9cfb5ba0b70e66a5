"""The scan pass: one function from a snapshot of the queue to its new order (MAST §4.2).

For every queued workload it decides <priority, level, credit>, whether it is within its tenant's quota, whether it is
promoted, and its place in the one order; for live attempts, whether they are within quota from now on, and their level.
Same view, same time: same plan.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from domain.identifiers import AttemptNumber
from domain.placement import AttemptKey
from domain.rank import Standing
from global_scheduler.credit import credits_of, fair_share_terms
from global_scheduler.knowledge import PolicyView
from global_scheduler.levels.assignment import below_within_quota, queued_levels, running_levels
from global_scheduler.opportunistic_order import max_min_credits
from global_scheduler.ordering.policy import QueueView
from global_scheduler.ordering.total_order import ordering_credits, total_order
from global_scheduler.own_order import own_credits, quota_pass_by_class
from global_scheduler.promotion import promotions, with_promoted
from global_scheduler.running_limits import at_running_limit, worth_writing
from global_scheduler.scan_plan import Reclassification, ScanPlan
from global_scheduler.scan_view import RunningColumns, ScanView, StoredTuples
from kernels.compiled import compiled_beside_others


def scan_pass(view: ScanView, now: float) -> ScanPlan:
    """Ranks the whole queue.

    Raises PolicyFailed when a policy raises, gives no finite number, or a level that is none, and OracleNeeded when it asks
    for what is unknown.
    """
    tenants, running, pending = view.tenants, view.running, view.pending

    # 1. Credit of every workload.
    scan_credit = scan_credits(view, now)

    # 2. What is within quota: live attempts first, then the queue in credit order, each tenant's by class before that.
    quota = quota_pass_by_class(tenants, running, pending)

    # 3. Within quota at the tenant's priority; over quota at the lowest.
    priority, running_priority = quota.pending_priority, quota.running_priority

    # 4. The level within the priority.
    service = None if view.service is None else view.service.in_force(tenants.ids, pending.tenant)
    queue = QueueView(pending.known, now, pending.oracle, service, credit=scan_credit)
    level_policies = [rule.levels for rule in view.settings.rules]
    promoted, next_promotion_s = promotions(level_policies, priority, queue)
    if len(promoted):
        queue = replace(queue, known=with_promoted(pending.known, promoted))
    level = queued_levels(level_policies, priority, queue)
    running_level = running_levels(level_policies, running_priority, PolicyView(running.known, now, running.oracle))
    if view.has_lowest_quota:
        level = below_within_quota(level, quota.pending_within_quota)
        running_level = running_level.below_within_quota(quota.running_within_quota)

    # 5. The order.
    credit = own_credits(pending, priority, level, _ordering(view, queue, priority))
    if view.shares_opportunistic:
        credit = max_min_credits(view, quota.running_within_quota, quota.pending_within_quota, level, credit)
    order = total_order(priority, level, credit)

    # 6. What the limits of tenants keep back, and what is to be written.
    at_limit = at_running_limit(tenants, running, pending, order)
    changed = _changed(pending.stored, priority, level, credit, quota.pending_within_quota, promoted, at_limit)
    for array in (priority, level, scan_credit, credit, order, changed, promoted):
        array.flags.writeable = False
    return ScanPlan(
        now=now,
        priority=priority,
        level=level,
        credit=credit,
        scan_credit=scan_credit,
        within_quota=quota.pending_within_quota,
        exceeded_bucket=quota.exceeded_bucket,
        order=order,
        at_limit=at_limit,
        changed=changed,
        promotions=promoted,
        next_promotion_s=next_promotion_s,
        reclassifications=_reclassifications(
            running, quota.running_within_quota, running_priority, running_level.level
        ),
        next_level_change_s=running_level.next_change_s,
        running_use=quota.running_use,
    )


def _ordering(view: ScanView, queue: QueueView, priority: NDArray[np.int8]) -> NDArray[np.float64]:
    """What a packing orders by, or the ordering policy of each entry's priority."""
    if view.packing is not None:
        return view.packing.copy()
    return ordering_credits(queue, priority, [rule.ordering for rule in view.settings.rules])


def scan_credits(view: ScanView, now: float) -> NDArray[np.float64]:
    """Expressions 10 and 11 for every pending entry."""
    tenants, settings = view.tenants, view.settings.credit
    has_quota = np.asarray(tenants.quota.any(axis=1), np.bool_)
    fair_share = fair_share_terms(tenants.used_gpus, tenants.used_cpus, tenants.fair_share_weight, has_quota, settings)
    return credits_of(view.pending.submitted_s, view.pending.tenant, fair_share, now, settings)


def _changed(
    stored: StoredTuples,
    priority: NDArray[np.int8],
    level: NDArray[np.int16],
    credit: NDArray[np.float64],
    within_quota: NDArray[np.bool_],
    promoted: NDArray[np.int64],
    at_limit: NDArray[np.bool_] | None,
) -> NDArray[np.int64]:
    was = stored.priority, stored.level, stored.credit, stored.within_quota
    changed = _find_changed(*was, priority, level, credit, within_quota, promoted)
    return worth_writing(changed, promoted, stored.at_limit, at_limit)


@compiled_beside_others
def _find_changed(
    stored_priority: NDArray[np.int8],
    stored_level: NDArray[np.int16],
    stored_credit: NDArray[np.float64],
    stored_within_quota: NDArray[np.bool_],
    priority: NDArray[np.int8],
    level: NDArray[np.int16],
    credit: NDArray[np.float64],
    within_quota: NDArray[np.bool_],
    promoted: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Where anything is not as stored, and what is promoted, ascending."""
    # An entry that was never ranked has a stored priority that no entry gets, so it always differs.
    places = np.empty(priority.size, np.int64)
    found, next_promoted = 0, 0
    for row in range(priority.size):
        is_promoted = next_promoted < promoted.size and promoted[next_promoted] == row
        if is_promoted:
            next_promoted += 1
        if (
            is_promoted
            or stored_priority[row] != priority[row]
            or stored_level[row] != level[row]
            or stored_credit[row] != credit[row]
            or stored_within_quota[row] != within_quota[row]
        ):
            places[found] = row
            found += 1
    return places[:found]


@compiled_beside_others
def _all_stand_as_before(
    was_within_quota: NDArray[np.bool_],
    was_priority: NDArray[np.int8],
    was_level: NDArray[np.int16],
    within_quota: NDArray[np.bool_],
    priority: NDArray[np.int8],
    level: NDArray[np.int16],
) -> bool:
    """Whether no live attempt gets anything else, as in most passes."""
    for row in range(priority.size):
        if within_quota[row] != was_within_quota[row]:
            return False
        if priority[row] != was_priority[row] or level[row] != was_level[row]:
            return False
    return True


def _reclassifications(
    running: RunningColumns, within_quota: NDArray[np.bool_], priority: NDArray[np.int8], level: NDArray[np.int16]
) -> tuple[Reclassification, ...]:
    if _all_stand_as_before(running.within_quota, running.priority, running.level, within_quota, priority, level):
        return ()
    demoted = np.flatnonzero(running.within_quota & ~within_quota)
    promoted = np.flatnonzero(~running.within_quota & within_quota)
    # An attempt that is being evicted keeps the standing that it was evicted with, unless it is charged no more.
    level = np.where(running.leaving, running.level, level)
    stands_elsewhere = (priority != running.priority) | (level != running.level)
    moved = np.flatnonzero((running.within_quota == within_quota) & stands_elsewhere & ~running.leaving)
    # They are stored part by part in this order: demotions release the quota that promotions are charged.
    newest_first = demoted[np.lexsort((-demoted, ~running.leaving[demoted]))]
    return tuple(
        Reclassification(
            key=AttemptKey(running.workloads[row], AttemptNumber(int(running.attempt[row]))),
            within_quota=bool(within_quota[row]),
            standing=Standing(int(priority[row]), int(level[row])),
            was_within_quota=bool(running.within_quota[row]),
            was_standing=Standing(int(running.priority[row]), int(running.level[row])),
            row=row,
        )
        for row in np.concatenate([newest_first, moved, promoted]).tolist()
    )
