"""GPU-hours: what workloads held of each GPU model, by day (UTC). Counted with the use of tenants (`usage_store`), in the same
statement, so that each second of each attempt is counted once; what is not counted yet is summed up from the attempts.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from services.database.connection import AnyConnection

DAY_S = 86_400.0

GPU_USE_BY_DAY = """
         held AS (
             SELECT moved.workload, moved.attempt, coalesce(m.gpu_model, j.gpu_model, '') AS gpu_model,
                    sum(cardinality(p.gpu_indices)) AS gpus
               FROM moved JOIN placements p USING (workload, attempt) LEFT JOIN machines m USING (machine)
               LEFT JOIN jobs j ON j.workload = p.workload AND j.job = p.job
              GROUP BY moved.workload, moved.attempt, coalesce(m.gpu_model, j.gpu_model, '')),
         by_day AS (
             SELECT moved.workload, held.gpu_model, number * 86400.0::float8 AS day_start_s, min(moved.tenant) AS tenant,
                    sum(sign * held.gpus * (least(hi, (number + 1) * 86400.0) - greatest(lo, number * 86400.0)))
                        AS gpu_seconds
               FROM moved JOIN held USING (workload, attempt),
                    generate_series(floor(lo / 86400.0)::bigint, ceil(hi / 86400.0)::bigint - 1) AS number
              WHERE held.gpus > 0 GROUP BY moved.workload, held.gpu_model, number)"""
"""Of `moved` (workload, attempt, tenant, lo, hi, sign), what those attempts hold now for that time, as `by_day`."""

ADD_GPU_USE = """
         recorded AS (
             INSERT INTO gpu_use AS g (workload, gpu_model, day_start_s, tenant, gpu_seconds)
             SELECT workload, gpu_model, day_start_s, tenant, gpu_seconds FROM by_day
              ORDER BY workload, gpu_model, day_start_s
             ON CONFLICT (workload, gpu_model, day_start_s) DO UPDATE
                SET gpu_seconds = greatest(g.gpu_seconds + excluded.gpu_seconds, 0))"""
"""Counts `by_day`."""

_UNCOUNTED = """
         due AS (
             SELECT workload, attempt, tenant, coalesce(counted_s, dispatched_s) AS since_s,
                    greatest(dispatched_s, least(coalesce(ended_s, %(now)s), %(now)s)) AS until_s
               FROM attempts WHERE ended_s IS NULL OR counted_s IS DISTINCT FROM ended_s),
         moved AS (
             SELECT workload, attempt, tenant, least(since_s, until_s) AS lo, greatest(since_s, until_s) AS hi,
                    sign(until_s - since_s) AS sign FROM due WHERE until_s <> since_s)"""

_PERIODS = {
    "day": "day_start_s",
    "week": "extract(epoch FROM date_trunc('week', to_timestamp(day_start_s) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')::float8",
    "month": "extract(epoch FROM date_trunc('month', to_timestamp(day_start_s) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')::float8",
}


_NOT_APART = "''::text COLLATE \"C\""
"""In the place of what rows are not told apart by."""


class UseKey(StrEnum):
    """What rows of GPU-hours may be told apart by, in the order in which they are sorted."""

    PERIOD = "period"
    TENANT = "tenant"
    WORKLOAD = "workload"
    GPU_MODEL = "gpu_model"


class UsePeriod(StrEnum):
    """How long a period is; all begin at midnight UTC, weeks on Mondays."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class UseFilter:
    """Which use, and what it is told apart by; None and empty exclude nothing."""

    by: tuple[UseKey, ...]
    period: UsePeriod = UsePeriod.DAY
    from_s: float | None = None
    until_s: float | None = None
    """Days that begin before it."""
    tenant: str = ""
    workload: str = ""
    gpu_model: str | None = None
    owners: tuple[str, ...] | None = None
    """Only of these tenants."""


@dataclass(frozen=True, slots=True)
class UseRow:
    """GPU-hours of a group; what it is not told apart by is 0, or empty."""

    period_start_s: float
    tenant: str
    workload: str
    gpu_model: str
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class UsePage:
    """Sorted by period, tenant, workload, model. `next_page_token` is empty on the last page."""

    rows: Sequence[UseRow]
    next_page_token: str


class BadUsePageToken(Exception):
    """The token does not come from a page of such rows."""


async def load_use(
    connection: AnyConnection, wanted: UseFilter, now: float, page_size: int, page_token: str = ""
) -> UsePage:
    """GPU-hours held, from dispatch to end, of live attempts until now. Raises BadUsePageToken."""
    longer = _PERIODS["week"] if wanted.period is UsePeriod.WEEK else _PERIODS["month"]
    begins = _PERIODS["day"] if wanted.period is UsePeriod.DAY else longer
    period = begins if UseKey.PERIOD in wanted.by else "0::float8"
    tenant = "tenant" if UseKey.TENANT in wanted.by else _NOT_APART
    workload = "workload" if UseKey.WORKLOAD in wanted.by else _NOT_APART
    gpu_model = "gpu_model" if UseKey.GPU_MODEL in wanted.by else _NOT_APART
    after = _read_token(page_token) if page_token else None
    cursor = await connection.execute(
        f"""WITH {_UNCOUNTED.lstrip()},{GPU_USE_BY_DAY},
         used AS (
             SELECT day_start_s, tenant, workload, gpu_model, gpu_seconds FROM gpu_use
             UNION ALL SELECT day_start_s, tenant, workload, gpu_model, gpu_seconds FROM by_day),
         grouped AS (
             SELECT {period} AS period_s, {tenant} AS tenant, {workload} AS workload, {gpu_model} AS gpu_model,
                    sum(gpu_seconds) AS gpu_seconds
               FROM used
              WHERE (%(from_s)s::float8 IS NULL OR day_start_s >= %(from_s)s)
                AND (%(until_s)s::float8 IS NULL OR day_start_s < %(until_s)s)
                AND (%(tenant)s::text = '' OR tenant = %(tenant)s) AND (%(workload)s::text = '' OR workload = %(workload)s)
                AND (%(gpu_model)s::text IS NULL OR gpu_model = %(gpu_model)s)
                AND (%(owners)s::text[] IS NULL OR tenant = ANY(%(owners)s))
              GROUP BY 1, 2, 3, 4)
    SELECT period_s, tenant, workload, gpu_model, greatest(gpu_seconds, 0) / 3600.0 FROM grouped
     WHERE NOT %(pages)s OR (period_s, tenant, workload, gpu_model)
           > (%(period_s)s::float8, %(after_tenant)s::text, %(after_workload)s::text, %(after_model)s::text)
     ORDER BY period_s, tenant, workload, gpu_model LIMIT %(limit)s""",
        {
            "now": now,
            "from_s": wanted.from_s,
            "until_s": wanted.until_s,
            "tenant": wanted.tenant,
            "workload": wanted.workload,
            "gpu_model": wanted.gpu_model,
            "owners": None if wanted.owners is None else list(wanted.owners),
            "pages": after is not None,
            "period_s": after.period_start_s if after else 0.0,
            "after_tenant": after.tenant if after else "",
            "after_workload": after.workload if after else "",
            "after_model": after.gpu_model if after else "",
            "limit": page_size + 1,
        },
    )
    found = await cursor.fetchall()
    rows = [UseRow(*row) for row in found[:page_size]]
    return UsePage(rows, _token(rows[-1]) if len(found) > page_size else "")


async def counted_since_s(connection: AnyConnection) -> float | None:
    """The first day on which anything was held; None: nothing was ever. What was pruned before it was counted so is not known."""
    cursor = await connection.execute(
        """SELECT least((SELECT min(day_start_s) FROM gpu_use),
                        (SELECT floor(min(dispatched_s) / 86400.0) * 86400.0 FROM attempts
                          WHERE ended_s IS NULL OR counted_s IS DISTINCT FROM ended_s))"""
    )
    row = await cursor.fetchone()
    return None if row is None or row[0] is None else float(row[0])


def _token(row: UseRow) -> str:
    document = [row.period_start_s, row.tenant, row.workload, row.gpu_model]
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode()


def _read_token(token: str) -> UseRow:
    try:
        period_s, tenant, workload, gpu_model = json.loads(base64.urlsafe_b64decode(token.encode()))
        return UseRow(float(period_s), str(tenant), str(workload), str(gpu_model), 0.0)
    except (binascii.Error, ValueError, TypeError) as error:
        raise BadUsePageToken("is no token of a page of GPU-hours") from error
