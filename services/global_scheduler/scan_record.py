"""What a scan pass decided becomes true: in two transactions, each with its events.

First live attempts are re-classified, under the ledger of within-quota use, so that regions which dispatch at the same
time and this pass can never together exceed a quota (I4). Then the queue gets its new order.

Who waits for whom: regions lock queue entries, then the ledger, then attempts; some lock attempts, then the ledger.
So the first transaction locks the ledger before anything else and never waits for an attempt, and the second waits for
no entry: what somebody else has locked just now is left to the next pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from domain.clock import Clock
from domain.events import Event, EventKind
from domain.identifiers import WorkloadId
from domain.tenant import quota_limits
from global_scheduler.scan_plan import Reclassification
from services.database import (
    event_store,
    lease_store,
    queue_store,
    quota_store,
    reclassification_store,
    tenant_store,
)
from services.database.channels import AUCTION_CHANNEL, REGION_CHANNEL, SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.lease_store import Lease
from services.database.queue_store import RankedEntries
from services.database.reclassification_store import LockedAttempt
from services.global_scheduler.scan_decision import ScanDecision


class SnapshotOutdated(Exception):
    """The tenants have changed since the pass looked at them: its plan is worth nothing."""


async def record_reclassifications(
    connection: AnyConnection, lease: Lease, decision: ScanDecision, clock: Clock
) -> int:
    """Applies what is still possible of the plan's re-classifications; returns how many. Raises SnapshotOutdated."""
    changes = decision.plan.reclassifications
    await tenant_store.keep_tenants(connection)
    if await tenant_store.tenants_revision(connection) != decision.tenants_revision:
        raise SnapshotOutdated("the tenants have changed")
    await quota_store.lock(
        connection, [(tenant, bucket) for tenant, charges in decision.reclassified_charges for bucket in charges]
    )
    locked = await reclassification_store.lock_live(connection, [change.key for change in changes])
    possible = [(change, locked[change.key]) for change in changes if _still_stands(change, locked.get(change.key))]
    await quota_store.release(
        connection, [(attempt.tenant, attempt.charges) for change, attempt in possible if change.demoted]
    )
    promoted = [(change, attempt) for change, attempt in possible if change.promoted]
    fits = await quota_store.charge(
        connection,
        [(attempt.tenant, attempt.charges) for _, attempt in promoted],
        {name: quota_limits(tenant.quota) for name, tenant in decision.tenants.items()},
    )
    refused = {change.key for (change, _), fit in zip(promoted, fits, strict=True) if not fit}
    applied = [(change, attempt) for change, attempt in possible if change.key not in refused]
    await reclassification_store.reclassify(
        connection, [(change.key, change.standing, change.within_quota) for change, _ in applied]
    )
    # Now, not when the pass began: regions have dispatched and ended attempts since, within the same quotas.
    now = clock.now()
    await event_store.append(connection, [_reclassified_event(change, attempt, now) for change, attempt in applied])
    await lease_store.assert_held(connection, lease)
    if applied:
        wake_after_commit(connection, REGION_CHANNEL)
    return len(applied)


async def record_level_changes(
    connection: AnyConnection, lease: Lease, changes: Sequence[Reclassification], clock: Clock
) -> int:
    """Applies changes of level alone, as far as the attempts still stand as they were seen; returns how many.

    No quota changes hands, so the ledger is left alone; what somebody else has locked just now is left to the next look.
    """
    locked = await reclassification_store.lock_live(connection, [change.key for change in changes])
    applied = [(change, locked[change.key]) for change in changes if _still_stands(change, locked.get(change.key))]
    await reclassification_store.reclassify(
        connection, [(change.key, change.standing, change.within_quota) for change, _ in applied]
    )
    now = clock.now()
    await event_store.append(connection, [_reclassified_event(change, attempt, now) for change, attempt in applied])
    await lease_store.assert_held(connection, lease)
    if applied:
        wake_after_commit(connection, REGION_CHANNEL)
        # Who waits may evict now whom it could not before.
        wake_after_commit(connection, SCAN_CHANNEL)
    return len(applied)


def _still_stands(change: Reclassification, attempt: LockedAttempt | None) -> bool:
    """Whether the attempt is as the pass saw it. One that is being evicted since then gains nothing any more."""
    if attempt is None:
        return False
    as_seen = attempt.within_quota == change.was_within_quota and attempt.standing == change.was_standing
    return as_seen and (change.demoted or not attempt.leaving)


def _reclassified_event(change: Reclassification, attempt: LockedAttempt, now: float) -> Event:
    return Event(
        now,
        EventKind.RECLASSIFIED,
        change.key.workload,
        change.key.attempt,
        attempt.tenant,
        change.standing.priority,
        change.standing.level,
        attempt.region,
        details={"within_quota": change.within_quota},
    )


async def record_ranks(
    connection: AnyConnection, lease: Lease, decision: ScanDecision, clock: Clock, *, reclassified: int
) -> int:
    """Stores the new order of the queue, with an event for each entry whose standing is another one.

    Returns the number of the pass.
    """
    plan, pending = decision.plan, decision.view.pending
    changed = plan.changed
    written = await queue_store.store_ranks(
        connection,
        RankedEntries(
            [pending.workloads[entry] for entry in changed.tolist()],
            plan.priority[changed],
            plan.level[changed],
            plan.credit[changed],
            plan.within_quota[changed],
        ),
    )
    news = _with_news(decision)
    await queue_store.append_ranked_events(connection, [name for name in written if name in news], clock.now())
    number = await queue_store.store_scan_pass(
        connection,
        now=plan.now,
        entries=len(pending),
        changed=len(written),
        reclassified=reclassified,
    )
    await lease_store.assert_held(connection, lease)
    wake_after_commit(connection, AUCTION_CHANNEL)
    return number


def _with_news(decision: ScanDecision) -> set[WorkloadId]:
    """A credit that grows with age is no news: only another priority, level or side of the quota is."""
    plan, pending = decision.plan, decision.view.pending
    stored = pending.stored
    news = (
        (stored.priority != plan.priority) | (stored.level != plan.level) | (stored.within_quota != plan.within_quota)
    )
    return {pending.workloads[entry] for entry in np.flatnonzero(news).tolist()}
