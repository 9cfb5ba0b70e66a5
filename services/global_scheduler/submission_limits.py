"""What a tenant may have waiting, and how fast it may submit: known in memory, so that a flood that is refused costs little.

One process takes submissions, so what it has accepted since it counted is an upper bound of what has come since; the rest is
counted anew when that bound would be passed, at most once a second.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from domain.identifiers import TenantId
from domain.tenant import Tenant
from domain.workload_array import parse_array
from global_scheduler.submission_rate import SubmissionBucket, TooFast, full_bucket, take
from services.database import pending_store
from services.database.engine import Database
from services.database.workload_store import NewWorkload
from services.grpc_errors import Exhausted

_COUNT_EVERY_REAL_S = 1.0
_LONGEST_ADVICE_S = 60.0


@dataclass(slots=True)
class _Pending:
    """So many were counted then, and so many accepted since."""

    counted: int
    at_real_s: float
    accepted: int = 0


class SubmissionLimits:
    """Asked for each call before it is stored."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._buckets: dict[TenantId, SubmissionBucket] = {}
        self._pending: dict[TenantId, _Pending] = {}
        self._counting = asyncio.Lock()

    async def require_room(self, submissions: Sequence[NewWorkload], tenants: Mapping[TenantId, Tenant]) -> None:
        """Raises Exhausted when a tenant has too much waiting already, or submits too fast; else the workloads count as accepted.

        Repetitions of what was accepted before are let through: nothing is stored for them.
        """
        wanted = _workloads_by_tenant(submissions)
        limited = {
            name: tenant.limits
            for name in wanted
            if (tenant := tenants.get(name)) is not None
            and (tenant.limits.max_pending is not None or tenant.limits.submissions_per_s is not None)
        }
        if not limited:
            return
        try:
            for name, limits in sorted(limited.items()):
                if limits.max_pending is not None:
                    await self._require_pending(name, limits.max_pending, wanted[name])
            for name in sorted(limited):
                self._accept(tenants[name], wanted[name])
        except Exhausted:
            if not await self._all_were_accepted(submissions):
                raise

    def _accept(self, tenant: Tenant, workloads: int) -> None:
        if tenant.limits.submissions_per_s is None:
            self._buckets.pop(tenant.tenant, None)
        else:
            self._take(tenant, workloads)
        pending = self._pending.get(tenant.tenant)
        if pending is not None:
            pending.accepted += workloads

    def _take(self, tenant: Tenant, workloads: int) -> None:
        now = asyncio.get_running_loop().time()
        limits = tenant.limits
        bucket = self._buckets.get(tenant.tenant) or full_bucket(limits, now)
        taken = take(bucket, limits, workloads, now)
        if isinstance(taken, TooFast):
            raise Exhausted(
                f"tenant {tenant.tenant} submits faster than the {limits.submissions_per_s:g} workloads a second that it may"
                f" (limits.submissions_per_s of its entry in tenants.yaml; {limits.burst:,.0f} at once)",
                min(_LONGEST_ADVICE_S, math.ceil(taken.wait_s * 1_000) / 1_000),
            )
        self._buckets[tenant.tenant] = taken

    async def _require_pending(self, tenant: TenantId, greatest: int, workloads: int) -> None:
        known = self._pending.get(tenant)
        if known is None or known.counted + known.accepted + workloads > greatest:
            known = await self._count(tenant)
        if known.counted + known.accepted + workloads > greatest:
            raise Exhausted(
                f"tenant {tenant} has {known.counted + known.accepted:,} workloads that wait, and {greatest:,} is the most that it may"
                " have (limits.max_pending of its entry in tenants.yaml): cancel some, or wait until some have started",
                _COUNT_EVERY_REAL_S,
            )

    async def _count(self, tenant: TenantId) -> _Pending:
        """How many wait, counted a second ago at most."""
        async with self._counting:
            now = asyncio.get_running_loop().time()
            known = self._pending.get(tenant)
            if known is None or now - known.at_real_s >= _COUNT_EVERY_REAL_S:
                # What is accepted while it is counted may be counted, and counts once more: that is on the safe side.
                accepted_before = 0 if known is None else known.accepted
                counted = await self._database.run(
                    lambda connection: pending_store.count_pending(connection, tenant), snapshot=True
                )
                meanwhile = 0 if known is None else known.accepted - accepted_before
                known = self._pending[tenant] = _Pending(counted, now, meanwhile)
            return known

    async def _all_were_accepted(self, submissions: Sequence[NewWorkload]) -> bool:
        """Whether they have been accepted before, by their idempotency keys."""
        keys = [
            (one.specification.tenant, one.idempotency_key) for one in submissions if one.idempotency_key is not None
        ]
        if len(keys) < len(submissions):
            return False
        return await self._database.run(lambda connection: pending_store.all_are_known(connection, keys), snapshot=True)


def _workloads_by_tenant(submissions: Sequence[NewWorkload]) -> Mapping[TenantId, int]:
    """Elements of arrays one by one."""
    wanted: Counter[TenantId] = Counter()
    for one in submissions:
        array = one.specification.array
        wanted[one.specification.tenant] += parse_array(array).size if array else 1
    return wanted
