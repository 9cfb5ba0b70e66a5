"""What attempts reported of the models of their jobs: kept with the workload, and by name for later ones of the same name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from domain.identifiers import JobName, TenantId, WorkloadId
from domain.model_profile import KnownSkew, SkewSource
from services.database.connection import AnyConnection


class ReportedProfile(NamedTuple):
    """The sizes of the model of one job, in MiB, greater than 0."""

    workload: WorkloadId
    tenant: TenantId
    name: str
    job: JobName
    largest_tensor_mib: float
    model_mib: float


class NamedWorkload(NamedTuple):
    """Of whose jobs the skew is wanted."""

    workload: WorkloadId
    tenant: TenantId
    name: str


_RECORD = """
    WITH u AS (SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::float8[], %s::float8[])
                    AS u (workload, tenant, name, job, largest_tensor_mib, model_mib)),
         own AS (
             INSERT INTO reported_profiles (workload, job, largest_tensor_mib, model_mib, reported_s)
             SELECT workload, job, largest_tensor_mib, model_mib, %s FROM u ORDER BY workload, job
             ON CONFLICT (workload, job) DO UPDATE SET largest_tensor_mib = excluded.largest_tensor_mib,
                                                       model_mib = excluded.model_mib,
                                                       reported_s = excluded.reported_s
             WHERE (reported_profiles.largest_tensor_mib, reported_profiles.model_mib)
                   <> (excluded.largest_tensor_mib, excluded.model_mib))
    INSERT INTO profiles_of_names (tenant, name, job, largest_tensor_mib, model_mib, reported_s)
    SELECT DISTINCT ON (tenant, name, job) tenant, name, job, largest_tensor_mib, model_mib, %s::float8
      FROM u ORDER BY tenant, name, job, workload DESC
    ON CONFLICT (tenant, name, job) DO UPDATE SET largest_tensor_mib = excluded.largest_tensor_mib,
                                                  model_mib = excluded.model_mib,
                                                  reported_s = excluded.reported_s
     WHERE (profiles_of_names.largest_tensor_mib, profiles_of_names.model_mib)
           <> (excluded.largest_tensor_mib, excluded.model_mib)"""

_KNOWN = """
    SELECT r.workload, r.job, least(r.largest_tensor_mib / r.model_mib, 1), true
      FROM reported_profiles r WHERE r.workload = ANY(%(workloads)s)
     UNION ALL
    SELECT u.workload, p.job, least(p.largest_tensor_mib / p.model_mib, 1), false
      FROM unnest(%(workloads)s::text[], %(tenants)s::text[], %(names)s::text[]) AS u (workload, tenant, name)
      JOIN profiles_of_names p USING (tenant, name)"""


async def record_profiles(connection: AnyConnection, profiles: Sequence[ReportedProfile], now: float) -> None:
    """Keeps what was reported, and since when it is known; newer reports replace older ones. Each job of a workload
    comes once."""
    if not profiles:
        return
    columns = [list(column) for column in zip(*profiles, strict=True)]
    await connection.execute(_RECORD, (*columns, now, now))


_UNKNOWN_AT = """
    SELECT u.workload
      FROM unnest(%s::text[], %s::text[], %s::text[], %s::float8[]) AS u (workload, tenant, name, at_s)
     WHERE NOT EXISTS (SELECT FROM reported_profiles r WHERE r.workload = u.workload AND r.reported_s <= u.at_s)
       AND NOT EXISTS (SELECT FROM profiles_of_names p
                        WHERE p.tenant = u.tenant AND p.name = u.name AND p.reported_s <= u.at_s)"""


async def unknown_at(connection: AnyConnection, wanted: Sequence[tuple[NamedWorkload, float]]) -> frozenset[WorkloadId]:
    """Those of these workloads of whose jobs nothing that holds now had been reported by the time beside them."""
    if not wanted:
        return frozenset()
    names = [list(column) for column in zip(*(named for named, _ in wanted), strict=True)]
    cursor = await connection.execute(_UNKNOWN_AT, (*names, [at_s for _, at_s in wanted]))
    return frozenset(WorkloadId(row[0]) for row in await cursor.fetchall())


async def known_skews(
    connection: AnyConnection, wanted: Sequence[NamedWorkload]
) -> dict[WorkloadId, dict[JobName, KnownSkew]]:
    """By workload and job, the skews that were reported; jobs without one are left out. Its own report comes before
    that of an earlier workload of its name."""
    known: dict[WorkloadId, dict[JobName, KnownSkew]] = {}
    if not wanted:
        return known
    cursor = await connection.execute(
        _KNOWN,
        {
            "workloads": [one.workload for one in wanted],
            "tenants": [one.tenant for one in wanted],
            "names": [one.name for one in wanted],
        },
    )
    for workload, job, skew, own in await cursor.fetchall():
        of_workload = known.setdefault(WorkloadId(workload), {})
        if own:
            of_workload[JobName(job)] = KnownSkew(skew, SkewSource.REPORTED)
        else:
            of_workload.setdefault(JobName(job), KnownSkew(skew, SkewSource.OF_ITS_NAME))
    return known
