"""How long iterations took, consolidated and spread, and the limit that is learnt from that (Tiresias §3.3.2).

Sums are kept by what ran (tenant, name, job, tasks, GPUs of each), so that what learning costs does not grow with how many
attempts there have ever been. A job is a sample once it has run both ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cluster_manager.skew.packlimit import DEFAULT_PACKLIMIT, PackLimit, fit_packlimit
from domain.identifiers import GpuModel, JobName, TenantId
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
    INSERT INTO iteration_times AS i (tenant, name, job, tasks, gpus, gpu_model, spread, skew, attempts, total_s)
    SELECT tenant, name, job, tasks, gpus, gpu_model, spread, max(skew), count(*), sum(mean_s)
      FROM unnest(%s::text[], %s::text[], %s::text[], %s::int[], %s::int2[], %s::text[], %s::bool[], %s::float8[],
                  %s::float8[])
        AS u (tenant, name, job, tasks, gpus, gpu_model, spread, skew, mean_s)
     GROUP BY tenant, name, job, tasks, gpus, gpu_model, spread
     ORDER BY tenant, name, job, tasks, gpus, gpu_model, spread
    ON CONFLICT (tenant, name, job, tasks, gpus, gpu_model, spread)
    DO UPDATE SET skew = excluded.skew, attempts = i.attempts + excluded.attempts, total_s = i.total_s + excluded.total_s"""

_SAMPLES = """
    SELECT s.skew, (s.total_s / s.attempts) / (c.total_s / c.attempts)
      FROM iteration_times s JOIN iteration_times c USING (tenant, name, job, tasks, gpus, gpu_model)
     WHERE s.spread AND NOT c.spread AND c.total_s > 0 AND s.total_s > 0
     ORDER BY tenant, name, job, tasks, gpus, gpu_model"""


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


async def learn_packlimit(connection: AnyConnection, now: float) -> PackLimit | None:
    """Fits the limit anew where attempts have been added since the last time; None where none have."""
    cursor = await connection.execute(
        """SELECT coalesce(sum(attempts), 0)::bigint, (SELECT attempts FROM packlimits WHERE subject = %s)
             FROM iteration_times""",
        (_SUBJECT,),
    )
    attempts, known = await cursor.fetchone() or (0, None)
    if attempts == (known or 0):
        return None
    rows = await (await connection.execute(_SAMPLES)).fetchall()
    samples = np.array(rows, np.float64).reshape(-1, 2)
    fitted = fit_packlimit(samples[:, 0], samples[:, 1])
    await connection.execute(
        """INSERT INTO packlimits AS p (subject, packlimit, learnt_from, misplaced, fitted_s, attempts)
           VALUES (%s, %s, %s, %s, %s, %s)
           ON CONFLICT (subject) DO UPDATE SET packlimit = excluded.packlimit, learnt_from = excluded.learnt_from,
               misplaced = excluded.misplaced, fitted_s = excluded.fitted_s, attempts = excluded.attempts""",
        (_SUBJECT, fitted.limit, fitted.learnt_from, fitted.misplaced, now, attempts),
    )
    return fitted
