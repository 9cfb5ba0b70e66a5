"""Where attempts stand, and how live ones get another standing: locked without waiting, changed in bulk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from domain.identifiers import AttemptNumber, RegionId, TenantId, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.rank import Standing
from services.database.connection import AnyConnection


@dataclass(frozen=True, slots=True)
class LockedAttempt:
    """A live attempt as it is until this transaction ends."""

    tenant: TenantId
    region: RegionId
    leaving: bool
    standing: Standing
    within_quota: bool
    charges: Mapping[str, int]


async def lock_live(connection: AnyConnection, keys: Sequence[AttemptKey]) -> dict[AttemptKey, LockedAttempt]:
    """Those of the attempts that are live and that no other transaction has locked at this moment. Never waits."""
    cursor = await connection.execute(
        """SELECT a.workload, a.attempt, a.tenant, a.region, a.state, a.priority, a.level, a.within_quota, a.charges
             FROM attempts a
             JOIN unnest(%s::text[], %s::int[]) AS u (workload, attempt)
               ON a.workload = u.workload AND a.attempt = u.attempt
            WHERE a.ended_s IS NULL FOR UPDATE OF a SKIP LOCKED""",
        ([key.workload for key in keys], [int(key.attempt) for key in keys]),
    )
    return {
        AttemptKey(WorkloadId(row[0]), AttemptNumber(row[1])): LockedAttempt(
            tenant=TenantId(row[2]),
            region=RegionId(row[3]),
            leaving=row[4] == State.PREEMPTING.value,
            standing=Standing(row[5], row[6]),
            within_quota=row[7],
            charges=row[8],
        )
        for row in await cursor.fetchall()
    }


async def reclassify(connection: AnyConnection, changes: Sequence[tuple[AttemptKey, Standing, bool]]) -> None:
    """Sets (standing, within quota) of locked attempts; the caller keeps the ledger."""
    await connection.execute(
        """UPDATE attempts a SET priority = u.priority, level = u.level, within_quota = u.within_quota
             FROM unnest(%s::text[], %s::int[], %s::smallint[], %s::smallint[], %s::bool[])
               AS u (workload, attempt, priority, level, within_quota)
            WHERE a.workload = u.workload AND a.attempt = u.attempt AND a.ended_s IS NULL""",
        (
            [key.workload for key, _, _ in changes],
            [int(key.attempt) for key, _, _ in changes],
            [standing.priority for _, standing, _ in changes],
            [standing.level for _, standing, _ in changes],
            [within_quota for _, _, within_quota in changes],
        ),
    )


@dataclass(frozen=True, slots=True)
class StoredStanding:
    """Where an attempt stands, and what its tenant's quota is charged for it when it is within quota."""

    standing: Standing
    within_quota: bool
    charges: Mapping[str, int]


async def stands(connection: AnyConnection, keys: Sequence[AttemptKey]) -> dict[AttemptKey, StoredStanding]:
    """Where these attempts stand, whether or not they have ended."""
    if not keys:
        return {}
    cursor = await connection.execute(
        """SELECT a.workload, a.attempt, a.priority, a.level, a.within_quota, a.charges
             FROM attempts a JOIN unnest(%s::text[], %s::int[]) AS u (workload, attempt)
               ON a.workload = u.workload AND a.attempt = u.attempt""",
        ([key.workload for key in keys], [int(key.attempt) for key in keys]),
    )
    return {
        AttemptKey(WorkloadId(row[0]), AttemptNumber(row[1])): StoredStanding(Standing(row[2], row[3]), row[4], row[5])
        for row in await cursor.fetchall()
    }


async def standings(connection: AnyConnection, region: RegionId) -> dict[AttemptKey, tuple[Standing, bool]]:
    """Standing and within-quota of every live attempt of the region: a scan pass may have re-classified them."""
    cursor = await connection.execute(
        "SELECT workload, attempt, priority, level, within_quota FROM attempts WHERE region = %s AND ended_s IS NULL",
        (region,),
    )
    return {
        AttemptKey(WorkloadId(row[0]), AttemptNumber(row[1])): (Standing(row[2], row[3]), row[4])
        for row in await cursor.fetchall()
    }
