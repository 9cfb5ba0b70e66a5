"""What tenants used over the last hours: the input of window_avg in MAST's Expression 11.

Use is counted exactly, each second of each attempt once: an attempt knows until when it is counted (`counted_s`), and
counting adds what came since to the tenant's stretch of time, and to the GPU-hours of the workload (`gpu_use_store`). An attempt that turns out to have ended before it was
counted to is counted back. What is not counted yet is summed up from the attempts themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete

from domain.identifiers import TenantId
from domain.placement import AttemptKey
from global_scheduler.usage_window import UseStretches
from services.database.connection import AnyConnection
from services.database.core_statements import execute
from services.database.gpu_use_store import ADD_GPU_USE, GPU_USE_BY_DAY
from services.database.tables.tenants import USAGE_WINDOWS

STRETCH_S = 900.0
"""Use is kept per tenant and quarter of an hour. Only at the old end of the window does it matter: there a stretch
counts for the part that is in the window, as if its use had been even."""

_LOCK_KEY = 0x7573616765

# lo..hi is what must be added (sign 1) or taken back (sign -1) of each attempt; a stretch is numbered from the epoch.
_COUNT = """
    WITH due AS MATERIALIZED (
             SELECT workload, attempt, tenant, gpus, cpus, coalesce(counted_s, dispatched_s) AS since_s,
                    CASE WHEN ended_s IS NULL THEN greatest(%(until_s)s, coalesce(counted_s, dispatched_s))
                         ELSE greatest(ended_s, dispatched_s) END AS until_s, ended_s
               FROM attempts WHERE {condition} FOR NO KEY UPDATE SKIP LOCKED),
         moved AS (
             SELECT workload, attempt, tenant, gpus, cpus, least(since_s, until_s) AS lo, greatest(since_s, until_s) AS hi,
                    sign(until_s - since_s) AS sign FROM due WHERE until_s <> since_s),{gpu_use},
         shares AS (
             SELECT tenant, number * %(stretch_s)s AS start_s,
                    sum(sign * gpus * (least(hi, (number + 1) * %(stretch_s)s) - greatest(lo, number * %(stretch_s)s)))
                        AS gpu_seconds,
                    sum(sign * cpus * (least(hi, (number + 1) * %(stretch_s)s) - greatest(lo, number * %(stretch_s)s)))
                        AS cpu_seconds
               FROM moved, generate_series(floor(lo / %(stretch_s)s)::bigint, ceil(hi / %(stretch_s)s)::bigint - 1)
                 AS number
              GROUP BY tenant, number),
         counted AS (
             UPDATE attempts a SET counted_s = CASE WHEN due.ended_s IS NULL THEN due.until_s ELSE due.ended_s END
               FROM due WHERE a.workload = due.workload AND a.attempt = due.attempt),
         taken_back AS (
             UPDATE usage_windows u SET gpu_seconds = greatest(u.gpu_seconds + s.gpu_seconds, 0),
                                        cpu_seconds = greatest(u.cpu_seconds + s.cpu_seconds, 0)
               FROM shares s WHERE u.tenant = s.tenant AND u.window_start_s = s.start_s
                AND (s.gpu_seconds < 0 OR s.cpu_seconds < 0))
    INSERT INTO usage_windows AS u (tenant, window_start_s, window_end_s, gpu_seconds, cpu_seconds)
    SELECT tenant, start_s, start_s + %(stretch_s)s, gpu_seconds, cpu_seconds FROM shares
     WHERE gpu_seconds >= 0 AND cpu_seconds >= 0
    ON CONFLICT (tenant, window_start_s) DO UPDATE
       SET gpu_seconds = u.gpu_seconds + excluded.gpu_seconds, cpu_seconds = u.cpu_seconds + excluded.cpu_seconds"""

# An attempt that is counted up to the end of the last stretch is left alone until the next one is over.
_UNCOUNTED = """(ended_s IS NULL OR counted_s IS DISTINCT FROM ended_s)
                AND (ended_s IS NOT NULL OR coalesce(counted_s, dispatched_s) < %(until_s)s)"""


_GPU_USE = f"{GPU_USE_BY_DAY},{ADD_GPU_USE}"

UNCOUNTED_USE = """
    SELECT tenant, gpus, cpus, coalesce(counted_s, dispatched_s) AS since_s,
           least(coalesce(ended_s, %(now)s), %(now)s) AS until_s
      FROM attempts WHERE ended_s IS NULL OR counted_s IS DISTINCT FROM ended_s"""
"""What is not counted yet up to now, attempt by attempt; nothing where `since_s` is not before `until_s`."""


async def count_use(connection: AnyConnection, now: float) -> None:
    """Counts what is over: finished stretches of live attempts, and ended attempts. Cheap when nothing is due."""
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_KEY,))
    finished_s = now // STRETCH_S * STRETCH_S
    counting = _COUNT.format(condition=_UNCOUNTED, gpu_use=_GPU_USE)
    await connection.execute(counting, {"until_s": finished_s, "stretch_s": STRETCH_S})


async def count_use_of(connection: AnyConnection, attempts: Sequence[AttemptKey], now: float) -> None:
    """Counts live attempts up to now: before what they hold is changed."""
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_KEY,))
    await connection.execute(
        _COUNT.format(
            condition="ended_s IS NULL AND (workload, attempt) IN (SELECT * FROM unnest(%(w)s::text[], %(a)s::int[]))",
            gpu_use=_GPU_USE,
        ),
        {
            "until_s": now,
            "stretch_s": STRETCH_S,
            "w": [key.workload for key in attempts],
            "a": [int(key.attempt) for key in attempts],
        },
    )


async def load_use(connection: AnyConnection, now: float, window_s: float) -> UseStretches:
    """What tenants held in the last `window_s` seconds, at most three stretches each; for `window_averages`."""
    cursor = await connection.execute(
        f"""SELECT tenant, min(window_start_s) AS start_s, least(max(window_end_s), %(now)s), sum(gpu_seconds),
                  sum(cpu_seconds)
             FROM usage_windows WHERE window_end_s > %(cutoff)s AND window_start_s < %(now)s
            GROUP BY tenant, window_start_s >= %(cutoff)s
           UNION ALL
           SELECT tenant, min(lo), max(hi), sum(gpus * (hi - lo)), sum(cpus * (hi - lo))
             FROM (SELECT tenant, gpus, cpus, greatest(since_s, %(cutoff)s) AS lo, until_s AS hi
                     FROM ({UNCOUNTED_USE}) AS uncounted) AS in_window
            WHERE lo < hi GROUP BY tenant
            ORDER BY tenant, start_s""",
        {"now": now, "cutoff": now - window_s},
    )
    rows = await cursor.fetchall()
    return UseStretches(
        tenants=[TenantId(row[0]) for row in rows],
        start_s=[row[1] for row in rows],
        end_s=[row[2] for row in rows],
        gpu_seconds=[row[3] for row in rows],
        cpu_seconds=[row[4] for row in rows],
    )


async def forget_use(connection: AnyConnection, before_s: float) -> int:
    """Drops stretches that ended before; returns how many."""
    cursor = await execute(connection, delete(USAGE_WINDOWS).where(USAGE_WINDOWS.c.window_end_s < before_s))
    return cursor.rowcount
