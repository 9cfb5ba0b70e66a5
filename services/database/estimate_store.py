"""What estimates of run times go by: what workloads declare, and how long those that have completed ran.

Sums of the past are kept by name and by tenant (`completed_store`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from domain.identifiers import WorkloadId
from global_scheduler.estimates import estimates_from
from global_scheduler.knowledge import Estimates
from services.database.columns import packed, unpacked
from services.database.connection import AnyConnection

_FACTS = f"""
    SELECT count(*), {packed("declared_s")}, {packed("kept_s")}, {packed("name_s")}, {packed("tenant_s")},
           {packed("attained_s")}
      FROM (SELECT coalesce(w.declared_s, 'nan') AS declared_s, {{kept}} AS kept_s,
                   coalesce(n.total_s / n.runs, 'nan') AS name_s, coalesce(t.total_s / t.runs, 'nan') AS tenant_s,
                   w.attained_s
              FROM {{rows}} JOIN workloads w USING (workload)
              LEFT JOIN run_times_of_names n ON n.tenant = w.tenant AND n.name = w.name
              LEFT JOIN run_times_of_tenants t ON t.tenant = w.tenant
             WHERE {{which}} ORDER BY {{order}}) AS facts"""

_OF_PENDING = _FACTS.format(
    kept="w.checkpoint_progress",
    rows="queue_entries q",
    which="q.not_before_s <= %(now)s",
    order="q.submitted_s, q.workload",
)

_OF_RUNNING = _FACTS.format(
    kept="a.progress_at_start", rows="attempts a", which="a.ended_s IS NULL", order="a.workload, a.attempt"
)


@dataclass(frozen=True, slots=True)
class RunTimes:
    """What the past says of a workload. Seconds; None: there is nothing to go by."""

    same_name_s: float | None
    """The mean of its tenant's completed workloads of its name."""
    same_tenant_s: float | None
    """The mean of all its tenant's completed workloads."""
    earlier_s: float
    """How long its own earlier attempts ran."""


async def run_times(connection: AnyConnection, workloads: Sequence[WorkloadId]) -> Mapping[WorkloadId, RunTimes]:
    """What the past says of each of these workloads, for attempts of theirs that run."""
    cursor = await connection.execute(
        """SELECT w.workload, n.total_s / n.runs, t.total_s / t.runs, w.attained_s
             FROM workloads w
             LEFT JOIN run_times_of_names n ON n.tenant = w.tenant AND n.name = w.name
             LEFT JOIN run_times_of_tenants t ON t.tenant = w.tenant
            WHERE w.workload = ANY(%s)""",
        ([str(workload) for workload in workloads],),
    )
    return {
        WorkloadId(workload): RunTimes(same_name_s, same_tenant_s, attained_s)
        for workload, same_name_s, same_tenant_s, attained_s in await cursor.fetchall()
    }


async def of_pending(connection: AnyConnection, now: float, assumed_run_s: float) -> Estimates:
    """For every queued workload that need not wait any longer, in the order of `queue_store.load_pending`."""
    return await _load(connection, _OF_PENDING, now, assumed_run_s)


async def of_running(connection: AnyConnection, now: float, assumed_run_s: float) -> Estimates:
    """For every live attempt as of its start, in the order of `queue_store.load_running`."""
    return await _load(connection, _OF_RUNNING, now, assumed_run_s)


async def _load(connection: AnyConnection, query: str, now: float, assumed_run_s: float) -> Estimates:
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(query, {"now": now})
        row = await cursor.fetchone()
    if row is None:
        raise LookupError("an aggregate without a row")
    count = int(row[0])
    facts = [unpacked(column, "float8", count).astype(np.float64) for column in row[1:]]
    return estimates_from(*facts, assumed_run_s=assumed_run_s)
