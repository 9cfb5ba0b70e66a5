"""How long iterations took, consolidated and spread, and the limit that is learnt from that (Tiresias §3.3.2).

Sums are kept by what ran (tenant, name, job, tasks, GPUs of each), so that what learning costs does not grow with how many
attempts there have ever been. A job is a sample once it has run both ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cluster_manager.skew.packlimit import DEFAULT_PACKLIMIT, PackLimit
from domain.identifiers import GpuModel, JobName, TenantId
from domain.iteration_times import RanOn, Sums
from services.database.connection import AnyConnection

_SUBJECT = "gpus"


class IterationTime(NamedTuple):
    """What an iteration took on average in an attempt that has ended."""

    tenant: TenantId
    name: str
    job: JobName
    tasks: int
    gpus: int
    """Of each task."""
    gpu_model: GpuModel
    spread: bool
    """On more machines than it needs."""
    skew: float
    mean_s: float


_ADD = """
    INSERT INTO iteration_times AS i (tenant, name, job, tasks, gpus, gpu_model, spread, skew, attempts, total_s, changed_by)
    SELECT tenant, name, job, tasks, gpus, gpu_model, spread, max(skew), count(*), sum(mean_s),
           pg_current_xact_id()::text::bigint
      FROM unnest(%s::text[], %s::text[], %s::text[], %s::int[], %s::int2[], %s::text[], %s::bool[], %s::float8[],
                  %s::float8[])
        AS u (tenant, name, job, tasks, gpus, gpu_model, spread, skew, mean_s)
     GROUP BY tenant, name, job, tasks, gpus, gpu_model, spread
     ORDER BY tenant, name, job, tasks, gpus, gpu_model, spread
    ON CONFLICT (tenant, name, job, tasks, gpus, gpu_model, spread)
    DO UPDATE SET skew = excluded.skew, attempts = i.attempts + excluded.attempts, total_s = i.total_s + excluded.total_s,
                  changed_by = excluded.changed_by"""

_CHANGED = """
    SELECT tenant, name, job, tasks, gpus, gpu_model, spread, skew, attempts, total_s
      FROM iteration_times WHERE changed_by >= %s
     ORDER BY tenant, name, job, tasks, gpus, gpu_model, spread"""


class ChangedTimes(NamedTuple):
    """Sums that have changed."""

    sums: tuple[tuple[RanOn, Sums], ...]
    next_after: int
    """What to ask after the next time: whatever is not seen yet is of this transaction or a later one."""


async def add_iteration_times(connection: AnyConnection, times: Sequence[IterationTime]) -> None:
    """Adds what attempts that have just ended measured."""
    if times:
        await connection.execute(_ADD, [list(column) for column in zip(*times, strict=True)])


async def load_packlimit(connection: AnyConnection) -> PackLimit:
    """The limit that was learnt last; the paper's before anything was."""
    cursor = await connection.execute(
        "SELECT packlimit, learnt_from, misplaced FROM packlimits WHERE subject = %s", (_SUBJECT,)
    )
    row = await cursor.fetchone()
    return PackLimit(DEFAULT_PACKLIMIT) if row is None else PackLimit(row[0], row[1], row[2])


async def load_changed_times(connection: AnyConnection, after: int) -> ChangedTimes:
    """The sums that transactions from that number on (0: all) have changed; some may have been seen before."""
    row = await (await connection.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")).fetchone()
    cursor = await connection.execute(_CHANGED, (after,))
    sums = tuple(
        (
            RanOn(TenantId(tenant), name, JobName(job), tasks, gpus, GpuModel(model), spread),
            Sums(skew, attempts, total_s),
        )
        for tenant, name, job, tasks, gpus, model, spread, skew, attempts, total_s in await cursor.fetchall()
    )
    return ChangedTimes(sums, after if row is None else int(row[0]))


async def store_packlimit(connection: AnyConnection, learnt: PackLimit, now: float) -> None:
    """The limit that is learnt from now on."""
    await connection.execute(
        """INSERT INTO packlimits AS p (subject, packlimit, learnt_from, misplaced, fitted_s)
           VALUES (%s, %s, %s, %s, %s)
           ON CONFLICT (subject) DO UPDATE SET packlimit = excluded.packlimit, learnt_from = excluded.learnt_from,
               misplaced = excluded.misplaced, fitted_s = excluded.fitted_s""",
        (_SUBJECT, learnt.limit, learnt.learnt_from, learnt.misplaced, now),
    )
