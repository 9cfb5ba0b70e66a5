"""What a scan pass decided becomes true: in a few transactions, each with its events.

First live attempts are re-classified, under the ledger of within-quota use, so that regions which dispatch at the same
time and this pass can never together exceed a quota (I4): a bounded number in each transaction, so that no attempt is
locked for long and other work, such as renewing the lease, gets its turn in between. Each part is right by itself: a
service that ends between two of them leaves the rest to the next pass. Then the queue gets its new order.

Which waits for which: regions lock queue entries, then the ledger, then attempts; some lock attempts, then the ledger.
So each of the first transactions locks the ledger before anything else and never waits for an attempt, and the last waits for
no entry: what another transaction has locked just now is left to the next pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from domain.clock import Clock
from domain.events import Event, EventKind
from domain.identifiers import WorkloadId
from domain.tenant import quota_limits
from formats.event_details import promoted_details
from global_scheduler.scan_plan import Reclassification
from services.database import (
    changed_workload_store,
    event_store,
    lease_store,
    promotion_store,
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

CHANGES_AT_ONCE = 1_000
"""So many attempts are re-classified in one transaction at most: about 30 ms."""


class SnapshotOutdated(Exception):
    """The tenants have changed since the pass looked at them: its plan is worth nothing."""


def parts_of(changes: Sequence[Reclassification]) -> Iterator[Sequence[Reclassification]]:
    """The changes in parts for a transaction each, in the order in which they are to be applied."""
    return (changes[first : first + CHANGES_AT_ONCE] for first in range(0, len(changes), CHANGES_AT_ONCE))


async def record_reclassifications(
    connection: AnyConnection,
    lease: Lease,
    decision: ScanDecision,
    changes: Sequence[Reclassification],
    clock: Clock,
) -> int:
    """Applies what is still possible of these re-classifications, a part of the plan's; returns how many.

    Parts are to be applied in the order of the plan. Raises SnapshotOutdated.
    """
    await tenant_store.keep_tenants(connection)
    if await tenant_store.tenants_revision(connection) != decision.tenants_revision:
        raise SnapshotOutdated("the tenants have changed")
    charged = [decision.reclassified_charges[change.key.workload] for change in changes]
    await quota_store.lock(connection, [(tenant, bucket) for tenant, charges in charged for bucket in charges])
    locked = await reclassification_store.lock_live(connection, [change.key for change in changes])
    possible = [(change, locked[change.key]) for change in changes if _still_stands(change, locked.get(change.key))]
    await quota_store.release(
        connection, [(attempt.tenant, attempt.charges) for change, attempt in possible if change.demoted]
    )
    promoted = [(change, attempt) for change, attempt in possible if change.promoted]
    fits = await quota_store.charge(
        connection,
        [(attempt.tenant, attempt.charges) for _, attempt in promoted],
        {name: quota_limits(tenant) for name, tenant in decision.tenants.items()},
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

    No quota changes hands, so the ledger is left alone; what another transaction has locked just now is left to the next look.
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
        # A pending workload may evict now what it could not before.
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
    connection: AnyConnection,
    lease: Lease,
    decision: ScanDecision,
    clock: Clock,
    *,
    reclassified: int,
    entries: NDArray[np.int64] | None = None,
) -> int:
    """Stores the new order of the queue, with an event for each entry whose standing is another one.

    Returns the number of the pass. `entries`: those of the changed ones that are stored with it, all that are news among them; None: all.
    """
    plan, pending = decision.plan, decision.view.pending
    entries = plan.changed if entries is None else entries
    changed = entries[~np.isin(entries, await _left_unpromoted(connection, decision, clock))]
    # What asks for something else since the pass looked at it is ranked by the next one.
    outdated = await changed_workload_store.changed_since(connection, decision.changes_revision)
    if outdated:
        changed = np.array([entry for entry in changed.tolist() if pending.workloads[entry] not in outdated], np.int64)
    written = await queue_store.store_ranks(
        connection,
        RankedEntries(
            [pending.workloads[entry] for entry in changed.tolist()],
            plan.priority[changed],
            plan.level[changed],
            plan.credit[changed],
            plan.within_quota[changed],
            kept_back(decision, changed),
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


async def record_credits(
    connection: AnyConnection, lease: Lease, decision: ScanDecision, entries: NDArray[np.int64]
) -> None:
    """Stores the credits of entries of which nothing else has changed; people are told of it by no event."""
    plan, pending = decision.plan, decision.view.pending
    await queue_store.store_credits(
        connection,
        [pending.workloads[entry] for entry in entries.tolist()],
        plan.credit[entries],
        pending.stored.credit[entries],
    )
    await lease_store.assert_held(connection, lease)


def kept_back(decision: ScanDecision, changed: NDArray[np.int64]) -> dict[WorkloadId, str]:
    """Why those of these entries wait that the limits of their tenants keep back."""
    plan, view = decision.plan, decision.view
    if plan.at_limit is None:
        return {}
    sentences: dict[WorkloadId, str] = {}
    for entry in changed[plan.at_limit[changed]].tolist():
        tenant = view.tenants.ids[int(view.pending.tenant[entry])]
        limit = decision.tenants[tenant].limits.max_running
        sentences[view.pending.workloads[entry]] = (
            f"tenant {tenant} may run {limit:,} workloads at a time (limits.max_running of its entry in tenants.yaml), and"
            " so many run or stand before this one"
        )
    return sentences


async def _left_unpromoted(connection: AnyConnection, decision: ScanDecision, clock: Clock) -> NDArray[np.int64]:
    """Promotes what the pass promotes, with an event each; returns the entries for which it was not possible just now.

    Those keep the rank that they have: one that follows from a promotion would be wrong without it.
    """
    plan, pending = decision.plan, decision.view.pending
    names = [pending.workloads[entry] for entry in plan.promotions.tolist()]
    since_s = pending.known.queued_since_s[plan.promotions].tolist()
    done = await promotion_store.promote(connection, list(zip(names, since_s, strict=True)))
    now = clock.now()
    events, left = [], []
    for entry, name, waits_since_s in zip(plan.promotions.tolist(), names, since_s, strict=True):
        promotion = done.get(name)
        if promotion is None:
            left.append(entry)
            continue
        events.append(
            Event(
                now,
                EventKind.PROMOTED,
                name,
                None,
                decision.view.tenants.ids[pending.tenant[entry]],
                int(plan.priority[entry]),
                int(plan.level[entry]),
                details=promoted_details(max(0.0, now - waits_since_s), promotion.attained_s, promotion.attained_gpu_s),
            )
        )
    await event_store.append(connection, events)
    return np.array(left, np.int64)


def _with_news(decision: ScanDecision) -> set[WorkloadId]:
    """A credit that grows with age is no news: only another priority, level or side of the quota is."""
    plan, pending = decision.plan, decision.view.pending
    stored = pending.stored
    news = (
        (stored.priority != plan.priority) | (stored.level != plan.level) | (stored.within_quota != plan.within_quota)
    )
    return {pending.workloads[entry] for entry in np.flatnonzero(news).tolist()}
