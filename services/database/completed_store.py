"""What completed workloads leave behind for those to come: their run times, for estimates, and samples of their service.

Every completed workload is counted once, by the first pass after its end (`count_completed`): so what a pass costs does not
grow with how many have ever completed. Sums of run times are kept by name and by tenant. Samples are numbered in the order
in which they are counted, by end, and one transaction after the other: a reader of all up to a number has missed none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from domain.identifiers import TenantId
from domain.life_cycle import State
from global_scheduler.arithmetic import Floats
from services.database.columns import joined, packed, split, unpacked
from services.database.connection import AnyConnection
from services.database.state_guards import quoted

COUNTED_AT_ONCE = 10_000
"""So many completed workloads are counted in one transaction at most."""

SAMPLES_AT_ONCE = 100_000
"""So many samples are read in one transaction at most."""

_LOCK_KEY = 0x746F706D61737463
"""Of the advisory lock under which completed workloads are counted."""

# Those that ended without having worked say nothing.
_COUNT = f"""
    WITH due AS MATERIALIZED (
             SELECT workload FROM workloads WHERE state = {quoted({State.COMPLETED})} AND NOT run_counted
              ORDER BY ended_s, workload LIMIT {COUNTED_AT_ONCE} FOR NO KEY UPDATE SKIP LOCKED),
         counted AS (UPDATE workloads w SET run_counted = true FROM due WHERE w.workload = due.workload
                  RETURNING w.workload, w.tenant, w.name, w.ended_s, w.attained_s, w.attained_gpu_s),
         by_name AS (
             INSERT INTO run_times_of_names AS r (tenant, name, runs, total_s)
             SELECT tenant, name, count(*), sum(attained_s) FROM counted WHERE attained_s > 0
              GROUP BY tenant, name ORDER BY tenant, name
             ON CONFLICT (tenant, name) DO UPDATE SET runs = r.runs + excluded.runs,
                                                      total_s = r.total_s + excluded.total_s),
         by_tenant AS (
             INSERT INTO run_times_of_tenants AS r (tenant, runs, total_s)
             SELECT tenant, count(*), sum(attained_s) FROM counted WHERE attained_s > 0
              GROUP BY tenant ORDER BY tenant
             ON CONFLICT (tenant) DO UPDATE SET runs = r.runs + excluded.runs, total_s = r.total_s + excluded.total_s),
         samples AS (
             INSERT INTO service_samples (tenant, gpu_s)
             SELECT tenant, attained_gpu_s FROM counted WHERE attained_gpu_s > 0 ORDER BY ended_s, workload)
    SELECT count(*) FROM counted"""

_SAMPLES = f"""
    SELECT count(*), {joined("tenant")}, {packed("gpu_s")}, max(sample)
      FROM (SELECT * FROM service_samples WHERE sample > %s ORDER BY sample LIMIT {SAMPLES_AT_ONCE}) AS following"""


@dataclass(frozen=True, slots=True)
class ServiceSamples:
    """Some samples, in the order in which they were counted."""

    tenants: tuple[TenantId, ...]
    gpu_s: Floats
    last: int
    """The number of the last one, or what was given where there is none."""


async def count_completed(connection: AnyConnection) -> int:
    """Counts completed workloads that were not yet, COUNTED_AT_ONCE at most, by their ends; returns how many.

    None while another transaction counts: that may be where two processes take each other for gone.
    """
    row = await (await connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (_LOCK_KEY,))).fetchone()
    if row is None or not row[0]:
        return 0
    row = await (await connection.execute(_COUNT)).fetchone()
    return 0 if row is None else int(row[0])


async def load_samples(connection: AnyConnection, after: int) -> ServiceSamples:
    """The samples after that number (0: all), SAMPLES_AT_ONCE at most."""
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(_SAMPLES, (after,))
        row = await cursor.fetchone()
    if row is None or not row[0]:
        return ServiceSamples((), np.zeros(0), after)
    count = int(row[0])
    tenants = tuple(TenantId(name) for name in split(row[1]))
    return ServiceSamples(tenants, unpacked(row[2], "float8", count).astype(np.float64), int(row[3]))
