"""The rule of `domain.eviction` as PostgreSQL checks it, at the moment in which a victim is marked.

What the planner decided on may have changed in the database since: a scan pass may have re-classified the victim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from domain.eviction import HOUR_S, EvictionRule, Evictor
from services.database.connection import AnyConnection

VICTIM_MAY_BE_EVICTED: Final = """
    (a.priority, a.level) > (u.by_priority, u.by_level)
    AND (%(minimum_run_time_s)s::float8 = 0
         OR greatest(a.dispatched_s, a.started_s) + %(minimum_run_time_s)s <= %(now)s::float8)
    AND (%(evictions_an_hour)s::int IS NULL
         OR (SELECT count(*) FROM attempts earlier
              WHERE earlier.workload = a.workload
                AND earlier.preempted_s + %(hour_s)s > %(now)s) < %(evictions_an_hour)s)
    AND (u.by_guaranteed OR NOT (%(spares_guaranteed)s::bool AND a.guaranteed))"""
"""A condition on the victim `a` of `attempts` and its newcomer `u` (by_priority, by_level, by_guaranteed); parameters: `guarded_by`."""


def guarded_by(rule: EvictionRule, now: float, newcomers: Sequence[Evictor | None]) -> dict[str, object]:
    """The parameters of `VICTIM_MAY_BE_EVICTED`, and the columns of `u`: None for a victim that leaves for none."""
    return {
        "by_priority": [None if newcomer is None else newcomer.standing.priority for newcomer in newcomers],
        "by_level": [None if newcomer is None else newcomer.standing.level for newcomer in newcomers],
        "by_guaranteed": [newcomer is not None and newcomer.guaranteed for newcomer in newcomers],
        "minimum_run_time_s": rule.minimum_run_time_s,
        "evictions_an_hour": rule.evictions_per_workload_and_hour,
        "hour_s": HOUR_S,
        "spares_guaranteed": rule.spares_guaranteed,
        "now": now,
    }


async def preemptions(
    connection: AnyConnection, rule: EvictionRule, workloads: list[str], now: float
) -> dict[str, tuple[float, ...]]:
    """When attempts of these workloads were asked to leave for others in the last hour, if the rule wants to know."""
    if rule.evictions_per_workload_and_hour is None or not workloads:
        return {}
    return await preempted_within_the_hour(connection, now, workloads)


async def preempted_within_the_hour(
    connection: AnyConnection, now: float, workloads: list[str] | None = None
) -> dict[str, tuple[float, ...]]:
    """When attempts of these workloads (None: of all) were asked to leave for others in the last hour, ascending."""
    cursor = await connection.execute(
        """SELECT workload, array_agg(preempted_s ORDER BY preempted_s) FROM attempts
            WHERE (%(workloads)s::text[] IS NULL OR workload = ANY(%(workloads)s)) AND preempted_s + %(hour_s)s > %(now)s
            GROUP BY workload""",
        {"workloads": workloads, "hour_s": HOUR_S, "now": now},
    )
    return {row[0]: tuple(row[1]) for row in await cursor.fetchall()}
